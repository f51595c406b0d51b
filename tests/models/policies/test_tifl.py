"""TiFL: tiers, probabilities and credits by hand, and their draws."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from models.errors import ParameterError
from models.policies.tifl import TABLES, RankingParameters, Tifl, adaptive_shares, split_into_tiers
from netsim.core.reports import Probed, Reports, RoundOutcome
from tests.helpers.policy_views import answers, view

RANKING = ("interval", "credits", "weights", "measure", "tested", "fill")


def tifl(clients: int = 10, per_round: int = 2, **keywords: Any) -> Tifl:
    ranking = {name: keywords.pop(name) for name in RANKING if name in keywords}
    given = {"timeout_s": 100.0} | keywords
    return Tifl(clients=clients, per_round=per_round, ranking=RankingParameters(**ranking), **given)


def profiled(policy: Tifl, *rounds: Any) -> Tifl:
    """After profiling rounds in which clients took so long (NaN: silent)."""
    everyone = np.ones(len(rounds[0]), np.bool_)
    told: Probed | None = None
    for took_s in rounds:
        asked = policy.probe(view(1, everyone, told))
        assert asked.tolist() == list(range(len(everyone)))
        told = answers(asked, took_s)
    assert len(policy.probe(view(1, everyone, told))) == 0
    return policy


def test_tiers_by_hand() -> None:
    latencies, rng = np.array([3.0, 100.0, 1.0, 4.0, 101.0, 2.0]), np.random.default_rng(1)
    assert split_into_tiers(latencies, 2, 1000.0, equal_width=False, rng=rng).tolist() == [0, 1, 0, 1, 1, 0]
    assert split_into_tiers(latencies, 2, 1000.0, equal_width=True, rng=rng).tolist() == [0, 1, 0, 0, 1, 0]
    # Who is at the limit is in none; the remainder goes to the slowest.
    assert split_into_tiers(latencies, 2, 101.0, equal_width=False, rng=rng).tolist() == [1, 1, 0, 1, -1, 0]
    assert split_into_tiers(np.ones(3), 2, 9.0, equal_width=True, rng=rng).tolist() == [0, 0, 0]
    # Equal latencies at the border: whoever.
    drawn = [split_into_tiers(np.ones(2), 2, 9.0, equal_width=False, rng=rng) for _ in range(50)]
    assert {tuple(tiers.tolist()) for tiers in drawn} == {(0, 1), (1, 0)}


def test_profiling_counts_silence_as_the_limit() -> None:
    policy = profiled(tifl(3, 1, tiers=2, sync_rounds=2, timeout_s=10.0), [1.0, 2.0, np.nan], [3.0, np.nan, 12.0])
    # Means 2, 6 and 10: the third, at the limit, is never selected.
    assert policy.tier_of.tolist() == [0, 1, -1]
    chosen = {int(policy.select(view(t, np.ones(3)))[0]) for t in range(60)}
    assert chosen == {0, 1}
    # Unless nobody else is there.
    assert policy.select(view(1, [False, False, True])).tolist() == [2]


def test_static_probabilities_and_the_mean_round() -> None:
    # Five tiers of two clients that take 1, 2, .. 5 seconds: with equal probabilities the mean round takes 3 s.
    policy = profiled(tifl(tiers=5), np.repeat(np.arange(1.0, 6.0), 2))
    took_s = [float(np.max(policy.tier_of[policy.select(view(t, np.ones(10)))])) + 1 for t in range(3000)]
    assert abs(np.mean(took_s) - 3.0) < 5 * np.sqrt(2.0 / 3000)
    fast = profiled(tifl(tiers=5, probabilities="fast"), np.repeat(np.arange(1.0, 6.0), 2))
    assert fast.select(view(1, np.ones(10))).tolist() == [0, 1]
    # A tier with too few is filled up from the next slower one.
    able = np.ones(10, np.bool_)
    able[0] = False
    assert fast.select(view(1, able))[0] == 1
    assert fast.tier_of[fast.select(view(1, able))].tolist() == [0, 1]
    slow = profiled(tifl(tiers=5, probabilities="slow"), np.repeat(np.arange(1.0, 6.0), 2))
    assert slow.tier_of[slow.select(view(1, np.arange(10) < 9))].tolist() == [3, 4]
    # Or fewer are selected; where it has nobody, those of the next slower tier.
    few = profiled(tifl(tiers=5, probabilities="fast", fill=False), np.repeat(np.arange(1.0, 6.0), 2))
    assert few.select(view(1, np.ones(10))).tolist() == [0, 1]
    assert few.select(view(2, able)).tolist() == [1]
    assert few.select(view(3, np.arange(10) > 2)).tolist() == [3]
    assert all(sum(table) == pytest.approx(1.0) and len(table) == 5 for table in TABLES.values())
    # One tier is a selection at random.
    one = profiled(tifl(4, 2, tiers=1), np.arange(1.0, 5.0))
    pairs = [tuple(one.select(view(t, np.ones(4))).tolist()) for t in range(1200)]
    counts = np.array([pairs.count(pair) for pair in itertools.combinations(range(4), 2)])
    assert np.all(np.abs(counts - 200) < 5 * np.sqrt(1200 * 5 / 36))


def test_who_was_silent_in_profiling_fills_up_no_tier() -> None:
    policy = profiled(tifl(4, 3, tiers=2, timeout_s=10.0), [1.0, 2.0, 3.0, np.nan])
    assert policy.select(view(1, [True, False, True, True])).tolist() == [0, 2]
    assert policy.select(view(2, [False, False, False, True])).tolist() == [3]


def test_adaptive_probabilities_by_hand() -> None:
    assert adaptive_shares(5, shifted=False).tolist() == pytest.approx([0.4, 0.3, 0.2, 0.1, 0.0])
    assert adaptive_shares(3, shifted=True).tolist() == pytest.approx([3 / 6, 2 / 6, 1 / 6])
    assert adaptive_shares(1, shifted=False).tolist() == [1.0]


def told(policy: Tifl, round: int, losses: Any) -> None:
    losses = np.asarray(losses, np.float64)
    reports = Reports.nothing(len(losses))
    reports.loss[:] = losses
    clients = np.arange(len(losses))
    cut = np.isnan(losses)
    policy.observe(RoundOutcome(round, 0.0, 1.0, clients, np.ones(len(losses)), cut, None, lambda: reports))


def test_adaptive_ranking_by_losses() -> None:
    policy = profiled(tifl(4, 1, tiers=2, probabilities="adaptive", interval=1, measure="loss"), [1.0, 2.0, 3.0, 4.0])
    assert policy.needs_losses
    assert len(policy.probe(view(2, np.ones(4)))) == 0
    policy.select(view(1, np.ones(4)))
    # Round 2: the slow tier has the larger loss, and gets all; the other, the best one, gets 0.
    told(policy, 1, [1.0, 1.0, 2.0, 2.0])
    assert {int(policy.tier_of[policy.select(view(2, np.ones(4)))][0])} == {1}
    # It has become better: nothing changes, though the other is worse by now.
    told(policy, 2, [5.0, 5.0, 1.0, 1.0])
    assert {int(policy.tier_of[policy.select(view(3, np.ones(4)))][0])} == {1}
    # It has not become better: ranked again.
    told(policy, 3, [5.0, 5.0, 1.5, 1.5])
    assert {int(policy.tier_of[policy.select(view(4, np.ones(4)))][0])} == {0}


def played(policy: Tifl, round: int, accuracies: Any, able: Any = None) -> tuple[list[int], int]:
    """Who is asked before a round, and the tier that is selected; asked are all four, whose answers are `accuracies`."""
    able = np.ones(4) if able is None else able
    asked = policy.probe(view(round, able))
    assert policy.tests == (len(asked) > 0)
    told = None
    if len(asked):
        accuracy = np.asarray(accuracies, np.float64)[asked]
        nothing = np.full(len(asked), np.nan)
        there = ~np.isnan(accuracy)
        told = Probed(clients=asked, answered=there, loss=nothing, elapsed_s=np.ones(len(asked)), accuracy=accuracy)
        assert len(policy.probe(view(round, able, told))) == 0
    return asked.tolist(), int(policy.tier_of[policy.select(view(round, able, told))][0])


def test_adaptive_ranking_by_accuracies_asked_for() -> None:
    policy = profiled(tifl(4, 1, tiers=2, probabilities="adaptive", interval=2), [1.0, 2.0, 3.0, 4.0])
    assert not policy.needs_losses
    policy.select(view(1, np.ones(4)))
    assert played(policy, 2, [])[0] == []
    # Round 3: the fast tier has 0.5, the slow one 0.6; the worse gets all, the better 0.
    assert played(policy, 3, [0.4, 0.6, 0.6, 0.6]) == ([0, 1, 2, 3], 0)
    assert played(policy, 4, []) == ([], 0)
    # It is better than two rounds ago: nothing changes, though the other is worse by now. Who is silent does not count.
    assert played(policy, 5, [0.55, np.nan, 0.1, 0.1])[1] == 0
    # It is no better: ranked again.
    assert played(policy, 7, [0.55, 0.55, 0.5, 0.3])[1] == 1
    # Of a tier that nobody is heard of nothing is known: as nothing is decided.
    assert played(policy, 9, [0.9, 0.9, np.nan, np.nan])[1] == 1
    # Whoever is away is not asked.
    assert played(policy, 11, [0.9, 0.9, 0.1, 0.1], np.array([True, False, True, True]))[0] == [0, 2, 3]


def test_while_its_accuracy_rises_strictly_the_probabilities_stay() -> None:
    policy = profiled(tifl(4, 1, tiers=2, probabilities="adaptive", interval=1), [1.0, 2.0, 3.0, 4.0])
    policy.select(view(1, np.ones(4)))
    assert played(policy, 2, [0.1, 0.1, 0.2, 0.2])[1] == 0
    share = policy.state_dict()["share"].copy()
    for round in range(3, 20):
        played(policy, round, [0.1 + 0.01 * round] * 2 + [0.0, 0.0])
        assert (policy.state_dict()["share"] == share).all()


def test_tiers_of_equal_accuracy_are_ranked_at_random() -> None:
    policy = profiled(tifl(4, 1, tiers=2, probabilities="adaptive", interval=1), [1.0, 2.0, 3.0, 4.0])
    policy.select(view(1, np.ones(4)))
    # Never better than before, so that tiers are ranked every time; the first of two has all.
    drawn = [played(policy, round, [0.1] * 4)[1] for round in range(2, 1002)]
    assert abs(sum(drawn) - 500) < 5 * np.sqrt(1000 / 4)


def test_so_many_of_each_tier_are_tested() -> None:
    policy = profiled(tifl(9, 1, tiers=3, probabilities="adaptive", interval=1, tested=2), np.arange(1.0, 10.0))
    for round in range(2, 30):
        asked = policy.probe(view(round, np.ones(9)))
        assert np.bincount(policy.tier_of[asked]).tolist() == [2, 2, 2]


def test_a_tier_without_credits_is_not_selected_again() -> None:
    policy = profiled(tifl(4, 1, tiers=2, probabilities="adaptive", interval=100, credits=3), [1.0, 2.0, 3.0, 4.0])
    tiers = [int(policy.tier_of[policy.select(view(t, np.ones(4), seed=5))][0]) for t in range(2, 8)]
    assert sorted(tiers) == [0, 0, 0, 1, 1, 1]
    # All are spent: uniform.
    assert {int(policy.tier_of[policy.select(view(t, np.ones(4), seed=5))][0]) for t in range(8, 40)} == {0, 1}


def test_state_of_tifl_continues() -> None:
    def fresh() -> Tifl:
        return tifl(6, 2, tiers=3, probabilities="adaptive", interval=2, credits=6)

    def play(policy: Tifl, rounds: range) -> list[list[int]]:
        chosen = []
        for t in rounds:
            chosen.append(policy.select(view(t, np.random.default_rng(t).random(6) < 0.8)).tolist())
            told(policy, t, np.random.default_rng([1, t]).random(6))
        return chosen

    policy = profiled(fresh(), np.arange(1.0, 7.0))
    play(policy, range(1, 9))
    state = policy.state_dict()
    later = play(policy, range(9, 25))
    resumed = fresh()
    resumed.load_state_dict(state)
    assert play(resumed, range(9, 25)) == later


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: tifl(timeout_s=0.0), "timeout_s"),
        (lambda: tifl(tiers=11), "tiers"),
        (lambda: tifl(sync_rounds=0), "sync_rounds"),
        (lambda: tifl(interval=0), "interval"),
        (lambda: tifl(credits=0), "credits"),
        (lambda: tifl(credits=3), "credits"),
        (lambda: tifl(interval=3), "interval"),
        (lambda: tifl(weights="shifted"), "weights"),
        (lambda: tifl(measure="loss"), "measure"),
        (lambda: tifl(tested=2), "tested"),
        (lambda: tifl(probabilities="adaptive", measure="loss", tested=2), "tested"),
        (lambda: tifl(split="even"), "split"),
        (lambda: tifl(weights="mine"), "weights"),
        (lambda: tifl(probabilities="quick"), "probabilities"),
        (lambda: tifl(probabilities=[0.5, 0.5]), "probabilities"),
        (lambda: tifl(tiers=2, probabilities=[0.0, 0.0]), "probabilities"),
        (lambda: tifl(tiers=2, probabilities=[-1.0, 2.0]), "probabilities"),
    ],
)
def test_bad_values_are_refused(make: Any, name: str) -> None:
    with pytest.raises(ParameterError) as error:
        make()
    assert error.value.name == name

"""Policies that go by losses: numbers by hand, limits in which they are something simpler, and their draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from models.errors import ParameterError
from models.policies.active_fl import ActiveFl
from models.policies.draws import count_explored, largest, successive_draws, uniform_draws
from models.policies.oort.parameters import OortParameters
from models.policies.pisces import Pisces
from models.policies.power_of_choice import PowerOfChoice
from models.policies.protocols import BoolArray, FloatArray
from netsim.core.protocols import RoundView
from netsim.core.reports import Probed
from tests.helpers.loss_rounds import frequencies_agree, oort, outcome, view


def answers(clients: Any, losses: Any) -> Probed:
    """What came of asking; NaN: no answer."""
    told = np.asarray(losses, np.float64)
    return Probed(clients=clients, answered=~np.isnan(told), loss=told, elapsed_s=np.ones(len(told)))


# Draws.


def test_one_pass_over_arrays_has_the_law_of_successive_draws() -> None:
    # Weights 1, 2, 5, 0: {0,1}: 1/8 2/7 + 2/8 1/6; {0,2}: 1/8 5/7 + 5/8 1/3; {1,2}: 2/8 5/6 + 5/8 2/3.
    with np.errstate(divide="ignore"):
        weights = np.log([1.0, 2.0, 5.0, 0.0])
    rng, able = np.random.default_rng(1), np.ones(4, np.bool_)
    seen = {(0, 1): 0, (0, 2): 0, (1, 2): 0}
    for _ in range(8000):
        seen[tuple(successive_draws(weights, able, 2, rng).tolist())] += 1
    expected = np.array([1 / 28 + 1 / 24, 5 / 56 + 5 / 24, 5 / 24 + 5 / 12])
    assert expected.sum() == pytest.approx(1.0)
    assert frequencies_agree(list(seen.values()), 8000 * expected)
    # A weight of 0 is never drawn, so there may be fewer; all of weight 0: uniform. Nothing overflows.
    assert successive_draws(weights, able, 4, rng).tolist() == [0, 1, 2]
    assert len(successive_draws(np.full(4, -np.inf), able, 2, rng)) == 2
    assert successive_draws(np.array([1e6, 0.0]), np.ones(2, np.bool_), 1, rng).tolist() == [0]


def test_ties_at_the_last_place_are_uniform() -> None:
    rng, counts = np.random.default_rng(2), np.zeros(5)
    for _ in range(4000):
        counts[largest(np.array([3.0, 1.0, 1.0, 1.0, 9.0]), np.array([True, True, True, True, False]), 2, rng)] += 1
    assert counts[[0, 4]].tolist() == [4000, 0]
    assert frequencies_agree(counts[1:4], np.full(3, 4000 / 3))
    assert largest(np.arange(3.0), np.ones(3, np.bool_), 0, rng).tolist() == []
    assert uniform_draws(np.array([True, False, True]), 5, rng).tolist() == [0, 2]


def test_a_share_of_those_wanted_is_rounded_up_or_drawn() -> None:
    rng = np.random.default_rng(3)
    assert [count_explored(5, share, one_by_one=False, rng=rng) for share in (0.0, 0.2, 0.3, 1.0)] == [0, 1, 2, 5]
    assert count_explored(10, 0.9, one_by_one=False, rng=rng) == 9  # 10 * (1 - 0.9) is 0.99999..98
    counts = np.bincount([count_explored(1, 0.3, one_by_one=True, rng=rng) for _ in range(4000)])
    assert frequencies_agree(counts, [2800, 1200])


# Active federated learning.


def active(clients: int, per_round: int, sizes: Any = None, **keywords: Any) -> ActiveFl:
    data = np.ones(clients) if sizes is None else np.asarray(sizes, np.float64)
    return ActiveFl(clients=clients, per_round=per_round, data_sizes=data, **keywords)


def test_valuation_by_hand() -> None:
    policy = active(2, 1, [4.0, 1.0])
    policy.observe(outcome(1, [0], loss=[2.0]))
    assert policy.valuations.tolist() == [4.0, -math.inf]


def test_draws_by_valuation() -> None:
    # v = 0 and 100, alpha2 = 0.01: 1 : e.
    policy = active(2, 1, alpha1=0.0, alpha3=0.0)
    policy.observe(outcome(1, [0, 1], loss=[0.0, 100.0]))
    counts = np.bincount([int(policy.select(view(t, [True, True]))[0]) for t in range(4000)], minlength=2)
    assert frequencies_agree(counts, 4000 * np.array([1.0, math.e]) / (1 + math.e))
    # alpha3 = 1: uniform.
    policy = active(2, 1, alpha1=0.0, alpha3=1.0)
    policy.observe(outcome(1, [0, 1], loss=[0.0, 1e5]))
    counts = np.bincount([int(policy.select(view(t, [True, True]))[0]) for t in range(4000)], minlength=2)
    assert frequencies_agree(counts, [2000, 2000])


def test_few_with_weight_are_all_selected_and_the_rest_uniformly() -> None:
    # 11 clients, 8 set aside (floor(0.75 * 11)), 10 wanted of which 9 by valuation: the 3 of weight are always there.
    policy = active(11, 10)
    policy.observe(outcome(1, list(range(11)), loss=np.arange(11.0)))
    chosen = [policy.select(view(t, np.ones(11))) for t in range(200)]
    assert all(len(set(some.tolist())) == 10 and {8, 9, 10} <= set(some.tolist()) for some in chosen)
    missing = np.bincount([next(iter(set(range(11)) - set(some.tolist()))) for some in chosen], minlength=11)
    assert frequencies_agree(missing[:8], np.full(8, 25.0))


def test_clients_that_have_reported_nothing() -> None:
    policy = active(4, 2, unseen="first", alpha3=0.0)
    policy.observe(outcome(1, [0, 1], loss=[50.0, 60.0]))
    assert policy.select(view(2, np.ones(4))).tolist() == [2, 3]
    # Those who are set aside come among the count_explored only.
    policy = active(4, 1, unseen="explore", alpha1=0.0, alpha3=0.0)
    policy.observe(outcome(1, [2], loss=[1.0]))
    assert {int(policy.select(view(t, np.ones(4)))[0]) for t in range(50)} == {2}
    policy = active(3, 1, unseen="evaluate-all", alpha3=0.0, alpha1=0.5, alpha2=100.0)
    assert policy.probe(view(1, [True, False, True])).tolist() == [0, 2]
    told = answers(np.array([0, 2]), [1.0, 5.0])
    assert policy.select(view(1, [True, False, True], probed=told)).tolist() == [2]
    assert policy.probe(view(2, np.ones(3))).tolist() == [1]


# Power-of-Choice.


def choice(sizes: Any, per_round: int = 1, **keywords: Any) -> PowerOfChoice:
    return PowerOfChoice(clients=len(sizes), per_round=per_round, data_sizes=np.asarray(sizes, np.float64), **keywords)


def chosen_counts(policy: PowerOfChoice, losses: Any, times: int) -> FloatArray:
    counts = np.zeros(len(losses))
    everyone = np.ones(len(losses), np.bool_)
    for t in range(1, times + 1):
        before = view(t, everyone)
        asked = policy.probe(before)
        told = answers(asked, np.asarray(losses, np.float64)[asked])
        after = RoundView(t, 0.0, everyone, before.participations, before.rng, told)
        counts[policy.select(after)] += 1
    return counts


def test_power_of_choice_by_hand() -> None:
    assert chosen_counts(choice([1, 1, 1], candidates=3), [1, 2, 3], 300).tolist() == [0, 0, 300]
    assert frequencies_agree(chosen_counts(choice([1, 1, 1], candidates=2), [1, 2, 3], 6000), [0, 2000, 4000])
    # Sizes 1, 1, 2: pairs {0,1}: 2 * 1/4 * 1/3 = 1/6, {0,2} and {1,2}: 1/4 * 2/3 + 1/2 * 1/2 = 5/12 each.
    assert frequencies_agree(chosen_counts(choice([1, 1, 2], candidates=2), [3, 2, 1], 6000), [3500, 2500, 0])


def test_as_many_candidates_as_selected_is_sampling_by_size() -> None:
    sizes = np.array([1.0, 1.0, 2.0, 4.0])
    counts = chosen_counts(choice(sizes, candidates=1), [9, 9, 0, 0], 8000)
    assert frequencies_agree(counts, 1000 * sizes)
    policy = choice(sizes, variant="adapow-d", until_round=2)
    everyone = np.ones(4, np.bool_)
    assert [len(policy.probe(view(t, everyone))) for t in (1, 2, 3)] == [4, 4, 1]


def test_who_does_not_answer_is_not_selected() -> None:
    policy = choice(np.ones(4), per_round=2, candidates=4)
    told = answers(np.arange(4), [np.nan, 3.0, 2.0, 1.0])
    for t in range(20):
        assert policy.select(view(t, np.ones(4), probed=told)).tolist() == [1, 2]
        # Nor one that has left since.
        assert policy.select(view(t, [True, False, True, True], probed=told)).tolist() == [2, 3]
    one = answers(np.arange(4), [np.nan, np.nan, 1.0, np.nan])
    assert policy.select(view(1, np.ones(4), probed=one)).tolist() == [2]
    nobody = answers(np.arange(4), np.full(4, np.nan))
    assert {tuple(policy.select(view(t, np.ones(4), probed=nobody)).tolist()) for t in range(200)} == {
        (0, 1),
        (0, 2),
        (0, 3),
        (1, 2),
        (1, 3),
        (2, 3),
    }


def test_reported_losses_in_place_of_probes() -> None:
    policy = choice(np.ones(4), per_round=2, candidates=4, variant="rpow-d")
    everyone = np.ones(4, np.bool_)
    assert len(policy.probe(view(1, everyone))) == 0
    policy.observe(outcome(1, [0, 1], loss=[5.0, 1.0]))
    assert policy.select(view(2, everyone)).tolist() == [2, 3]
    policy.observe(outcome(2, [2, 3], loss=[3.0, np.nan], censored=[False, True]))
    assert policy.select(view(3, everyone)).tolist() == [0, 3]


# What all have in common.


def test_weights_without_bound_come_first_and_are_equally_likely() -> None:
    weights, rng = np.array([math.inf, 0.0, math.inf, 5.0, math.inf, -math.inf]), np.random.default_rng(2)
    counts = np.zeros(6)
    for _ in range(3000):
        counts[successive_draws(weights, np.ones(6, np.bool_), 2, rng)] += 1
    assert frequencies_agree(counts[[0, 2, 4]], np.full(3, 2000.0))
    assert counts.sum() == 6000 == counts[[0, 2, 4]].sum()
    assert successive_draws(weights, np.ones(6, np.bool_), 5, rng).tolist() == [0, 1, 2, 3, 4]


def test_an_update_that_took_no_step_counts_as_a_loss_of_0() -> None:
    # A client of one sample, where batch normalisation leaves batches of one sample out, has no losses to report.
    arrived = outcome(1, [0, 1, 2], rms=[1.0, 2.0, np.nan], loss=[1.0, 2.0, np.nan])
    guided, greedy = oort(3, 3), Pisces(clients=3, per_round=3, data_sizes=np.ones(3))
    reported, valued = choice(np.ones(3), per_round=1, candidates=3, variant="rpow-d"), active(3, 1, np.ones(3), unseen="first")
    for policy in (guided, greedy, reported, valued):
        policy.observe(arrived)
    assert guided.utility.tolist() == [1.0, 2.0, 0.0]
    assert greedy.scores().tolist() == [1.0, 2.0, 0.0]
    assert valued.valuations.tolist() == [1.0, 2.0, 0.0]
    assert guided.select(view(2, np.ones(3))).tolist() == greedy.select(view(2, np.ones(3))).tolist() == [0, 1, 2]
    assert reported.select(view(2, np.ones(3))).tolist() == [1]

EVERY: dict[str, Any] = {
    "active-fl": lambda: active(12, 4, np.arange(1, 13)),
    "oort": lambda: oort(12, 4, np.arange(1, 13)),
    "oort, blacklist": lambda: oort(12, 4, np.arange(1, 13), preset="oort", blacklist_after=3, window=2),
    "pisces": lambda: Pisces(clients=12, per_round=4, data_sizes=np.arange(1.0, 13.0)),
    "rpow-d": lambda: choice(np.arange(1, 13), per_round=4, candidates=6, variant="rpow-d"),
}


def played(policy: Any, rounds: range) -> list[list[int]]:
    history = []
    for t in rounds:
        world = np.random.default_rng([7, t])
        able: BoolArray = world.random(12) < 0.7
        loss, latency_s, lost = world.random(12), world.random(12), world.random(12) < 0.2
        chosen = policy.select(view(t, able))
        assert able[chosen].all()
        assert len(set(chosen.tolist())) == len(chosen) == min(4, int(able.sum()))
        gone = lost[chosen]
        policy.observe(
            outcome(
                t,
                chosen.tolist(),
                loss=np.where(gone, np.nan, loss[chosen]),
                rms=np.where(gone, np.nan, 1 + loss[chosen]),
                latency_s=latency_s[chosen],
                censored=gone,
            )
        )
        history.append(chosen.tolist())
    return history


@pytest.mark.parametrize("name", EVERY)
def test_state_continues(name: str) -> None:
    policy = EVERY[name]()
    first = played(policy, range(1, 30))
    assert played(EVERY[name](), range(1, 30)) == first
    state = policy.state_dict()
    later = played(policy, range(30, 60))
    for _ in range(2):
        resumed = EVERY[name]()
        resumed.load_state_dict(state)
        assert played(resumed, range(30, 60)) == later


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: active(3, 1, alpha1=1.5), "alpha1"),
        (lambda: active(3, 1, alpha2=math.inf), "alpha2"),
        (lambda: active(3, 1, alpha3=-0.1), "alpha3"),
        (lambda: active(3, 1, unseen="last"), "unseen"),
        (lambda: choice(np.ones(3), per_round=2, candidates=1), "candidates"),
        (lambda: choice(np.ones(3)), "candidates"),
        (lambda: choice(np.ones(3), candidates=2, variant="adapow-d"), "candidates"),
        (lambda: choice(np.ones(3), variant="adapow-d"), "until_round"),
        (lambda: choice(np.ones(3), candidates=2, variant="pow"), "variant"),
        (lambda: OortParameters(decay=1.5), "decay"),
        (lambda: OortParameters(alpha=-1.0), "alpha"),
        (lambda: OortParameters(pacer="seconds"), "target_s"),
        (lambda: OortParameters(target_s=1.0), "target_s"),
        (lambda: OortParameters(percentile=101.0), "percentile"),
        (lambda: OortParameters(percentile=30.0, pacer="none"), "percentile"),
        (lambda: OortParameters(window=0), "window"),
        (lambda: OortParameters(blacklist_after=0), "blacklist_after"),
        (lambda: OortParameters(preset="mine"), "preset"),  # type: ignore[arg-type]
        (lambda: OortParameters(explore="slow"), "explore"),  # type: ignore[arg-type]
        (lambda: OortParameters(pacer="slow"), "pacer"),  # type: ignore[arg-type]
        (lambda: Pisces(clients=3, per_round=1, data_sizes=np.ones(3), discount=-1.0), "discount"),
        (lambda: Pisces(clients=3, per_round=1, data_sizes=np.ones(3), decay=1.1), "decay"),
        (lambda: oort(3, 4), "per_round"),
        (lambda: oort(3, 1, [1.0, 2.0]), "data_sizes"),
    ],
)
def test_bad_values_are_refused(make: Any, name: str) -> None:
    with pytest.raises(ParameterError) as error:
        make()
    assert error.value.name == name

"""Policies that go by losses: numbers by hand, limits in which they are something simpler, and their draws."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from models.errors import ParameterError
from models.policies.active_fl import ActiveFl
from models.policies.bsfl import Bsfl
from models.policies.draws import explored, largest, successive_draws, uniform_draws
from models.policies.oort import Oort, clipped_and_scaled
from models.policies.oort_pacer import PercentilePacer, SecondsPacer
from models.policies.oort_parameters import PRESETS, OortParameters
from models.policies.pause import Pause
from models.policies.pause_parameters import PauseParameters, SpeedAndGeneralization
from models.policies.pisces import Pisces
from models.policies.power_of_choice import PowerOfChoice
from models.policies.protocols import BoolArray, FloatArray
from models.privacy import NoSchedule
from netsim.core.protocols import RoundView, SelectionPolicy
from netsim.core.reports import Probed, Reports, RoundOutcome

CONFIDENCE = 1 - 1e-6


class Means:
    """Client k takes k + 1 seconds."""

    def mean_latency_s(self, round: int, time_s: float) -> FloatArray:
        return np.arange(1.0, 101.0)

    def mean_ratio(self, tau_min_s: float, round: int, time_s: float) -> FloatArray:
        return tau_min_s / self.mean_latency_s(round, time_s)


class MeansOf(Means):
    def __init__(self, clients: int) -> None:
        self.clients = clients

    def mean_latency_s(self, round: int, time_s: float) -> FloatArray:
        return np.arange(1.0, self.clients + 1)


def view(round: int, able: Any, seed: int = 0, probed: Probed | None = None) -> RoundView:
    selectable = np.asarray(able, np.bool_)
    rng, probed = np.random.default_rng([seed, round]), Probed.nobody() if probed is None else probed
    return RoundView(round, float(round), selectable, np.zeros(len(selectable), np.int64), rng, probed)


def answers(clients: Any, losses: Any) -> Probed:
    """What came of asking; NaN: no answer."""
    told = np.asarray(losses, np.float64)
    return Probed(clients=clients, answered=~np.isnan(told), loss=told, elapsed_s=np.ones(len(told)))


def outcome(
    round: int,
    clients: list[int],
    *,
    rms: Any = None,
    loss: Any = None,
    latency_s: Any = None,
    censored: Any = None,
    staleness: Any = None,
) -> RoundOutcome:
    n = len(clients)
    reports = dataclasses.replace(
        Reports.nothing(n),
        loss=np.full(n, np.nan) if loss is None else np.array(loss, np.float64),
        loss_rms=np.full(n, np.nan) if rms is None else np.array(rms, np.float64),
        staleness=np.zeros(n, np.int64) if staleness is None else np.array(staleness),
    )
    latencies = np.ones(n) if latency_s is None else np.array(latency_s, np.float64)
    cut = np.zeros(n, np.bool_) if censored is None else np.array(censored, np.bool_)
    return RoundOutcome(round, 0.0, 1.0, np.array(clients), latencies, cut, None, lambda: reports)


def frequencies_agree(counts: Any, expected: Any) -> bool:
    """Chi-square, at a confidence of one in a million."""
    counts, expected = np.asarray(counts, np.float64), np.asarray(expected, np.float64)
    assert counts[expected == 0].sum() == 0
    there = expected > 0
    statistic = ((counts - expected)[there] ** 2 / expected[there]).sum()
    return bool(statistic < chi2.ppf(CONFIDENCE, there.sum() - 1))


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
    assert [explored(5, share, one_by_one=False, rng=rng) for share in (0.0, 0.2, 0.3, 1.0)] == [0, 1, 2, 5]
    assert explored(10, 0.9, one_by_one=False, rng=rng) == 9  # 10 * (1 - 0.9) is 0.99999..98
    counts = np.bincount([explored(1, 0.3, one_by_one=True, rng=rng) for _ in range(4000)])
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
    # Those who are set aside come among the explored only.
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


# Oort.


def oort(clients: int, per_round: int, sizes: Any = None, per_model: int | None = None, **parameters: Any) -> Oort:
    return Oort(
        clients=clients,
        per_round=per_round,
        data_sizes=np.ones(clients) if sizes is None else np.asarray(sizes, np.float64),
        truth=MeansOf(clients),
        parameters=OortParameters(**parameters),
        per_model=per_model,
    )


@pytest.mark.parametrize(("target_s", "score"), [(2.0, 1.299), (4.0, 5.196)])
def test_utility_and_penalty_by_hand(target_s: float, score: float) -> None:
    # Three samples of losses 1, 2, 2: 3 sqrt(9/3).
    policy = oort(2, 1, [3, 3], norm=False, temporal=False, pacer="seconds", target_s=target_s, step_s=1.0)
    policy.observe(outcome(1, [0], rms=[math.sqrt(3)], latency_s=[4.0]))
    assert policy.utility[0] == pytest.approx(5.196, abs=5e-4)
    assert policy.scores(np.array([True, False]), 2) == pytest.approx([score], abs=5e-4)
    # alpha = 0 ignores time.
    free = oort(2, 1, [3, 3], norm=False, temporal=False, pacer="seconds", target_s=target_s, step_s=1.0, alpha=0.0)
    free.observe(outcome(1, [0], rms=[math.sqrt(3)], latency_s=[4.0]))
    assert free.scores(np.array([True, False]), 2) == pytest.approx([5.196], abs=5e-4)


def test_scores_by_hand() -> None:
    policy = oort(3, 1, pacer="none")
    for round, client, rms in ((2, 2, 2.0), (4, 1, 6.0), (8, 0, 10.0)):
        policy.observe(outcome(round, [client], rms=[rms]))
    assert policy.scores(np.ones(3, np.bool_), 9) == pytest.approx([1.1657, 0.7345, 0.3317], abs=5e-5)
    # The temporal term alone: at t = 100, sqrt(0.1 ln 100 / L).
    policy = oort(2, 1, pacer="none", norm=False)
    policy.observe(outcome(1, [0], rms=[0.0]))
    policy.observe(outcome(100, [1], rms=[0.0]))
    assert policy.scores(np.ones(2, np.bool_), 100) == pytest.approx([0.6786, 0.0679], abs=5e-5)


def test_nothing_is_clipped_of_few() -> None:
    assert clipped_and_scaled(np.arange(20.0), 0.95, scale=False).tolist() == list(range(20))
    assert clipped_and_scaled(np.arange(40.0), 0.95, scale=False).max() == 38
    assert clipped_and_scaled(np.array([5.0]), 0.95, scale=True).tolist() == pytest.approx([1.0])


def test_exploration_falls_to_its_floor() -> None:
    policy = oort(3, 1)
    assert [policy.exploration(t) > 0.2 for t in (75, 76)] == [True, False]
    assert policy.exploration(75) == pytest.approx(0.2018, abs=5e-5)
    # Nobody is left to explore: 0 for good.
    policy.observe(outcome(1, [0, 1, 2], rms=[1.0, 1.0, 1.0]))
    assert policy.exploration(2) == 0.0


def test_equal_clients_are_exploited_equally_often() -> None:
    policy = oort(20, 4)
    policy.observe(outcome(1, list(range(20)), rms=np.ones(20)))
    counts = np.zeros(20)
    for t in range(2, 3002):
        counts[policy.select(view(t, np.ones(20)))] += 1
    # Four distinct ones of 20: less variance than multinomial counts, so that the chi-square threshold is a safe one.
    assert frequencies_agree(counts, np.full(20, 600.0))


def test_the_fast_are_explored_first_and_lost_updates_teach_no_utility() -> None:
    policy = oort(4, 1, exploration=1.0, least_exploration=1.0)
    counts = np.zeros(4)
    for t in range(2, 4002):
        counts[policy.select(view(t, np.ones(4)))] += 1
    speed = 1 / np.arange(1.0, 5.0)
    assert frequencies_agree(counts, 4000 * speed / speed.sum())
    policy.observe(outcome(5, [0, 1], rms=[np.nan, 2.0], latency_s=[50.0, 1.0], censored=[True, False]))
    assert policy.utility.tolist() == [0.0, 2.0, 0.0, 0.0]
    assert policy.last_round.tolist() == [0.0, 5.0, 0.0, 0.0]
    credited = oort(4, 1, credit_cut=True)
    credited.observe(outcome(5, [0, 1, 2], rms=[np.nan, 2.0, 4.0], censored=[True, False, False]))
    assert credited.utility.tolist() == [3.0, 2.0, 4.0, 0.0]
    assert credited.last_round.tolist() == [5.0, 5.0, 5.0, 0.0]


def test_pacers_by_hand() -> None:
    seconds = SecondsPacer(2, 10.0, 5.0)
    for t, utility in enumerate([10.0, 9.0, 5.0, 4.0, 4.0, 5.0], 1):
        seconds.observe(t, utility)
    # 19 against 9 after round 4: longer; 9 against 9 after round 6: not.
    assert seconds.target_s(np.ones(3)) == 15.0
    pacer = PercentilePacer(1, 50.0)
    durations_s = np.arange(1.0, 101.0)
    assert pacer.target_s(durations_s) == 51.0
    for t, (utility, target_s) in enumerate([(10.0, 51.0), (11.0, 56.0), (11.5, 61.0), (1.0, 61.0), (6.5, 56.0)], 1):
        pacer.observe(t, utility)
        assert pacer.target_s(durations_s) == target_s
    assert PercentilePacer(1, 100.0).target_s(durations_s) is None


def test_who_took_part_often_is_blacklisted_but_not_everybody() -> None:
    policy = oort(10, 7, blacklist_after=2)
    for t in range(1, 5):
        policy.observe(outcome(t, list(range(5)), rms=np.ones(5)))
    chosen = {tuple(policy.select(view(t, np.ones(10))).tolist()) for t in range(5, 60)}
    # Five are over the limit, floor(0.3 * 10) = 3 of them are left out, whichever.
    assert all(len(some) == 7 and set(range(5, 10)) <= set(some) for some in chosen)
    assert len(chosen) > 3


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_of_oort(preset: str) -> None:
    given = OortParameters(preset=preset)  # type: ignore[arg-type]
    assert [given.of(name) for name in PRESETS[preset]._fields] == list(PRESETS[preset])
    assert OortParameters(preset=preset, clip=0.5).of("clip") == 0.5  # type: ignore[arg-type]


# Pisces.


def test_pisces_by_hand() -> None:
    policy = Pisces(clients=3, per_round=1, data_sizes=np.array([100.0, 50.0, 1.0]), exploration=0.0, least_exploration=0.0)
    for staleness in (3, 3, 2, 4):
        policy.observe(outcome(1, [0], rms=[2.0], staleness=[staleness]))
    policy.observe(outcome(1, [1], rms=[3.0], staleness=[0]))
    assert policy.scores().tolist() == pytest.approx([100.0, 150.0, -math.inf])
    assert policy.select(view(2, np.ones(3))).tolist() == [1]
    # Of more than five values the last five count.
    for _ in range(5):
        policy.observe(outcome(1, [1], rms=[3.0], staleness=[8]))
    assert policy.scores()[1] == pytest.approx(50.0)
    assert policy.select(view(3, np.ones(3))).tolist() == [0]


def test_pisces_explores_with_its_share() -> None:
    policy = Pisces(clients=4, per_round=1, data_sizes=np.ones(4), exploration=0.4, decay=1.0)
    policy.observe(outcome(1, [0, 1], rms=[1.0, 2.0]))
    counts = np.zeros(4)
    for t in range(4000):
        counts[policy.select(view(t, np.ones(4)))] += 1
    assert frequencies_agree(counts, [0, 2400, 800, 800])


# BSFL.


def test_bsfl_is_pause_without_privacy() -> None:
    sizes = np.random.default_rng(1).dirichlet(np.full(9, 3.0))
    common: dict[str, Any] = {"clients": 9, "per_round": 3, "data_sizes": sizes, "schedule": NoSchedule()}
    both: list[SelectionPolicy] = [
        Bsfl(**common, weights=SpeedAndGeneralization(alpha=7.0, tau_min_s=0.1)),
        Pause(**common, parameters=PauseParameters(alpha=7.0, gamma=0.0, tau_min_s=0.1)),
    ]
    for t in range(1, 60):
        able = np.random.default_rng(t).random(9) < 0.8
        picks = [policy.select(view(t, able)) for policy in both]
        assert picks[0].tolist() == picks[1].tolist()
        for policy, chosen in zip(both, picks, strict=True):
            policy.observe(outcome(t, chosen.tolist(), latency_s=0.1 + chosen / 10))


# What all have in common.

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

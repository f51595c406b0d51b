"""Oort, Pisces and BSFL: utilities, penalties and pacers by hand, exploration, limits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from models.policies.oort.oort import clip_and_scale
from models.policies.oort.pacer import PercentilePacer, SecondsPacer
from models.policies.oort.parameters import PRESETS, OortParameters
from models.policies.outliers import OutlierParameters, Outliers, find_noise
from models.policies.pause.bsfl import Bsfl
from models.policies.pause.parameters import PauseParameters, SpeedAndGeneralization
from models.policies.pause.pause import Pause
from models.policies.pisces import Pisces
from models.privacy import NoSchedule
from netsim.core.protocols import SelectionPolicy
from tests.helpers.loss_rounds import frequencies_agree, oort, outcome, view


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


def test_a_utility_counts_the_samples_that_were_trained_on_or_those_held() -> None:
    # 100 samples held; 40, 300 (three passes) and an unknown number trained on.
    for counted, expected in (({"counted": "held"}, [200, 200, 200]), ({}, [80, 200, 200])):
        policy = oort(3, 1, [100, 100, 100], pacer="none", **counted)
        policy.observe(outcome(1, [0, 1, 2], rms=[2.0, 2.0, 2.0], samples=[40, 300, -1]))
        assert policy.utility.tolist() == expected


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
    assert clip_and_scale(np.arange(20.0), 0.95, scale=False).tolist() == list(range(20))
    assert clip_and_scale(np.arange(40.0), 0.95, scale=False).max() == 38
    assert clip_and_scale(np.array([5.0]), 0.95, scale=True).tolist() == pytest.approx([1.0])


def test_a_percentile_that_is_a_whole_number_of_clients_is_that_number() -> None:
    # 0.7 of 1460 are 1022; in doubles the product is less.
    assert PercentilePacer(20, 70.0).target_s(np.arange(1460.0)) == 1022.0


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


def test_scores_of_0_are_drawn_after_all_others_and_not_never() -> None:
    # T, the tenth percentile of the durations, is 0: clients 2 to 4, slower, have scores of 0.
    policy = oort(5, 3)
    policy.observe(outcome(1, [0, 1, 2, 3, 4], rms=np.ones(5), latency_s=[0.0, 0.0, 1.0, 1.0, 1.0]))
    third = np.zeros(5)
    for t in range(2, 1202):
        chosen = policy.select(view(t, np.ones(5)))
        assert len(chosen) == 3
        assert chosen[:2].tolist() == [0, 1]
        third[chosen[2]] += 1
    assert frequencies_agree(third[2:], np.full(3, 400.0))


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
    assert [given.number(name) for name in PRESETS[preset]._fields] == list(PRESETS[preset])
    assert OortParameters(preset=preset, clip=0.5).number("clip") == 0.5  # type: ignore[arg-type]


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


def test_noise_by_hand() -> None:
    # 1.0, 1.2 and 1.4 are near each other; 1.9 is near one that has three near it; 3 and 3.2 are two only.
    values = np.array([3.0, 1.0, 1.2, 1.4, 1.9, 3.2, 9.0])
    assert find_noise(values, 0.5, 3).tolist() == [True, False, False, False, False, True, True]
    assert find_noise(values, 0.5, 2).tolist() == [False] * 6 + [True]
    assert find_noise(values, 0.5, 4).tolist() == [True, False, False, False, False, True, True]
    assert find_noise(values, 0.5, 5).tolist() == [True] * 7


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_that_of_the_clustering(seed: int) -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    rng = np.random.default_rng(seed)
    # Multiples of 1/8, so that some are exactly as far apart as the radius.
    values, least = np.round(rng.normal(size=40) * 24) / 8, int(rng.integers(1, 12))
    labels = cluster.DBSCAN(eps=0.5, min_samples=least).fit(values.reshape(-1, 1)).labels_
    assert find_noise(values, 0.5, least).tolist() == (labels == -1).tolist()


def test_who_is_an_outlier_loses_credits_and_is_banned() -> None:
    # Six losses are compared at least, and three make a cluster. Client 5 has a loss of its own.
    found = Outliers(8, OutlierParameters(compared=6, credits=2))
    losses = np.array([1.0, 1.1, 1.2, 1.3, 1.4, 9.0, 1.1, 1.2])
    found.observe(np.arange(5), losses[:5], np.zeros(5, np.int64))
    assert found.credits.tolist() == [2] * 8
    found.observe(np.array([5]), losses[5:6], np.array([1]))
    assert found.credits.tolist() == [2, 2, 2, 2, 2, 1, 2, 2]
    # Of an update from a version more than four later nobody else is near in time.
    found.observe(np.array([6]), losses[6:7], np.array([6]))
    assert found.credits[5] == 1
    # Nor is a loss compared with one of a later version.
    found.observe(np.array([7]), losses[7:], np.array([4]))
    assert found.credits.tolist() == [2, 2, 2, 2, 2, 0, 2, 2]
    assert found.banned.tolist() == [False] * 5 + [True, False, False]


def test_losses_are_compared_within_five_versions() -> None:
    # Seven are compared at least; client 5 alone has a loss of its own.
    found = Outliers(8, OutlierParameters(compared=7))
    found.observe(np.arange(6), np.array([1.0, 1.1, 1.2, 1.3, 1.4, 9.0]), np.zeros(6, np.int64))
    # Of version 6 there is one loss in time, of version 4 there are seven.
    found.observe(np.array([6, 7]), np.array([1.1, 1.2]), np.array([6, 4]))
    assert found.credits.tolist() == [5, 5, 5, 5, 5, 4, 5, 5]
    # Up to version 1 there are six.
    found.observe(np.array([0]), np.array([1.0]), np.array([1]))
    assert found.credits.tolist() == [5, 5, 5, 5, 5, 4, 5, 5]


def test_pisces_selects_no_outlier_unless_there_is_nobody_else() -> None:
    def made() -> Pisces:
        parameters = OutlierParameters(compared=4, credits=1)
        return Pisces(clients=4, per_round=2, data_sizes=np.ones(4), exploration=0.0, least_exploration=0.0, outliers=parameters)

    policy = made()
    policy.observe(outcome(1, [0, 1, 2, 3], rms=[1.0, 1.1, 1.2, 8.0]))
    # The greatest loss would come first.
    assert policy.select(view(2, [True] * 4)).tolist() == [1, 2]
    assert policy.select(view(2, [False, False, False, True])).tolist() == [3]
    resumed = made()
    resumed.load_state_dict(policy.state_dict())
    assert resumed.select(view(2, [True] * 4)).tolist() == [1, 2]
    off = Pisces(clients=4, per_round=2, data_sizes=np.ones(4), exploration=0.0, least_exploration=0.0)
    off.observe(outcome(1, [0, 1, 2, 3], rms=[1.0, 1.1, 1.2, 8.0]))
    assert off.select(view(2, [True] * 4)).tolist() == [2, 3]
    for name, value in {"compared": 1, "radius": 0.0, "credits": 0}.items():
        with pytest.raises(ValueError, match=f"{name} = {value}: must be"):
            OutlierParameters(**{name: value})

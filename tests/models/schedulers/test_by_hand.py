"""Schedulers and matchers, worked out by hand: channels, ages, restarts, rotation, priorities, overdue clients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from models.laws.sub_channels.sequences import StateSequence
from models.schedulers.aoi_aware import AoiAware
from models.schedulers.cucb import Cucb
from models.schedulers.glr_cucb import GlrCucb, alpha_for_segments
from models.schedulers.m_exp3 import MExp3
from models.schedulers.matchers.adaptive import Adaptive
from models.schedulers.matchers.age_first import AgeFirst
from models.schedulers.matchers.random_matching import RandomMatching
from models.schedulers.matchers.rotation import Rotation
from models.schedulers.oracles.means import Means
from models.schedulers.oracles.means_age import MeansAge
from models.schedulers.random import Random
from models.schedulers.round_robin import RoundRobin
from models.theory.aoi import regret, simulate, variance
from netsim.core.scheduling import SlotView


class InOrder:
    """Draws of a generator whose permutations change nothing."""

    def permutation(self, n: int) -> np.ndarray:
        return np.arange(n)


class Rehearsed:
    """Addresses every round to the generator that changes nothing."""

    def generator(self, index: int) -> InOrder:
        return InOrder()


class TwoBad:
    """Declares a change at the second Bad in a row; remembers what it was shown."""

    def __init__(self) -> None:
        self.seen: list[bool] = []
        self.shown: list[bool] = []

    def update(self, x: float) -> bool:
        self.seen.append(bool(x))
        self.shown.append(bool(x))
        return self.seen[-2:] == [False, False]

    def reset(self) -> None:
        self.seen = []

    def state_dict(self) -> dict[str, Any]:
        return {"seen": list(self.seen)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = list(state["seen"])


def view(round: int, ages: list[int], contribution: list[float] | None = None, rng: Any = None) -> SlotView:
    worth = np.ones(len(ages)) if contribution is None else np.array(contribution)
    return SlotView(round, np.array(ages, np.int64), worth, rng or np.random.default_rng([7, round]))


def tell(scheduler: Any, round: int, channels: list[int], good: list[bool]) -> None:
    scheduler.observe(view(round, [1] * len(channels)), np.array(channels), np.array(good))


def test_six_rounds_of_glr_cucb_with_ages_restart_and_rotation() -> None:
    """Three channels, two clients, period floor(3 / 0.5) = 6; drawn partners are the lowest channels.

    1: t - tau = 1, channel 1 due, with 0. Never played, both infinite: 0 before 1. t odd: client 0 takes rank 1. 1 Bad, 0 Good.
    2: channel 2 due, with 0. Ranked 2 (infinite), 0. t even: client 0 takes rank 0. Both Good.
    3: indices 1 + sqrt(1.5 ln 3 / 2) = 1.908, sqrt(1.5 ln 3) = 1.284, 1 + 1.284 = 2.284: ranked 2, 0. 0 is Bad, 2 is Good.
    4: 2/3 + sqrt(1.5 ln 4 / 3) = 1.499, sqrt(1.5 ln 4) = 1.442, 1 + sqrt(1.5 ln 4 / 2) = 2.020: ranked 2, 0. Both Bad, and 0
       for the second time: restart, tau = 4.
    5: as round 1. 1 is Good, 0 Bad.   6: as round 2. Both Good.
    """
    states = np.array([[1, 0, 1], [1, 0, 1], [0, 0, 1], [0, 1, 0], [0, 1, 1], [1, 0, 1]], bool)
    scheduler = GlrCucb(clients=2, channels=3, alpha=0.5, detector=TwoBad)
    history = simulate(scheduler, states, clients=2, draws=Rehearsed())  # type: ignore[arg-type]
    np.testing.assert_array_equal(history.channels, [[1, 0], [2, 0], [0, 2], [2, 0], [1, 0], [2, 0]])
    np.testing.assert_array_equal(history.ages, [[2, 1], [1, 1], [2, 1], [3, 2], [1, 3], [1, 1]])
    assert scheduler.restarts == [4]
    np.testing.assert_array_equal(scheduler.means(), [0.5, 1.0, 1.0])

    # The oracle plays 0 and 2 with means 0.9, 0.1, 0.8 and from round 4 on 2 and 1 with means 0.1, 0.8, 0.9.
    truth = StateSequence(table=states, segment_means=np.array([[0.9, 0.1, 0.8], [0.1, 0.8, 0.9]]), starts=[4])
    oracle = simulate(Means(clients=2, channels=3, truth=truth), states, clients=2, draws=np.random.default_rng(0))
    np.testing.assert_array_equal(oracle.channels, [[2, 0], [0, 2], [2, 0], [2, 1], [1, 2], [2, 1]])
    np.testing.assert_array_equal(oracle.ages, [[1, 1], [1, 1], [1, 2], [2, 1], [1, 1], [1, 2]])
    np.testing.assert_array_equal(regret(history.ages, oracle.ages), [1, 1, 1, 3, 5, 4])
    np.testing.assert_allclose(np.cumsum(variance(history.ages)), [0.5, 0.5, 1.0, 1.5, 3.5, 3.5])


def test_after_a_restart_the_rounds_other_channels_are_not_tested() -> None:
    detectors: list[TwoBad] = []

    def make() -> TwoBad:
        detectors.append(TwoBad())
        return detectors[-1]

    scheduler = GlrCucb(clients=3, channels=3, alpha=0.5, detector=make)
    tell(scheduler, 1, [0, 1, 2], [True, False, True])
    tell(scheduler, 2, [0, 1, 2], [True, False, False])
    assert scheduler.restarts == [2]
    assert [detector.shown for detector in detectors] == [[True, True], [False, False], [True]]
    assert all(detector.seen == [] for detector in detectors)
    assert np.isnan(scheduler.means()).all()
    # Nothing of before the restart counts: a first Bad is no second one, and the index starts from tau.
    tell(scheduler, 3, [1], [False])
    assert scheduler.restarts == [2]
    assert scheduler.index(4)[1] == pytest.approx(math.sqrt(1.5 * math.log(2)))


def test_forced_exploration_comes_once_a_period_for_every_channel() -> None:
    # alpha = 0.05 sqrt(ln 20000 / 20000) = 0.0011126; 5 / alpha = 4493.9.
    scheduler = GlrCucb(clients=2, channels=5, rounds=20_000)
    assert scheduler.period == 4493
    for channel in range(5):
        for round in range(1, 200):
            tell(scheduler, round, [channel], [channel != 2])
    forced = {1: 1, 2: 2, 3: 3, 4: 4, 4493: 0, 4494: 1, 4497: 4, 2 * 4493 + 2: 2}
    restart_free = [5, 6, 1000, 4492, 4498, 2 * 4493 - 1]
    for round, due in forced.items():
        partners = set()
        for seed in range(40):
            chosen = set(scheduler.assign(view(round, [1, 1], rng=np.random.default_rng(seed))).tolist())
            assert due in chosen
            partners |= chosen - {due}
        assert partners == set(range(5)) - {due}
    for round in restart_free:
        sets = {tuple(scheduler.assign(view(round, [1, 1], rng=np.random.default_rng(seed))).tolist()) for seed in range(20)}
        assert len(sets) == 1


def test_without_forced_exploration_glr_cucb_is_cucb_until_a_change() -> None:
    states = np.random.default_rng(3).random((400, 5)) < np.array([0.9, 0.7, 0.5, 0.3, 0.2])
    glr = GlrCucb(clients=2, channels=5, forced_exploration=False)
    plain = Cucb(clients=2, channels=5)
    one = simulate(glr, states, clients=2, draws=np.random.default_rng(1))
    two = simulate(plain, states, clients=2, draws=np.random.default_rng(2))
    assert glr.restarts == plain.restarts == []
    np.testing.assert_array_equal(one.channels, two.channels)


def test_rotation() -> None:
    # Client j takes rank (j + t) mod 3; in round 4 clients 0, 1, 2 take ranks 1, 2, 0.
    assert Rotation().match(view(4, [1, 1, 1]), [7, 8, 9]) == [8, 9, 7]
    assert Rotation().match(view(6, [1, 1, 1]), [7, 8, 9]) == [7, 8, 9]


def test_age_first_and_its_ties() -> None:
    assert AgeFirst().match(view(3, [2, 9, 4]), [7, 8, 9]) == [9, 7, 8]
    # Equal ages: as in rotation, where in round 4 client 2 comes first.
    assert AgeFirst().match(view(4, [5, 5, 5]), [7, 8, 9]) == [8, 9, 7]
    assert AgeFirst().match(view(4, [5, 6, 5]), [7, 8, 9]) == [9, 7, 8]


def test_random_matching_is_uniform() -> None:
    rng = np.random.default_rng(0)
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(6000):
        matched = tuple(RandomMatching().match(view(1, [1, 1, 1], rng=rng), [7, 8, 9]))
        counts[matched] = counts.get(matched, 0) + 1
    assert len(counts) == 6
    assert all(abs(count - 1000) < 4.5 * math.sqrt(1000 * 5 / 6) for count in counts.values())


def test_adaptive_priorities_by_hand() -> None:
    """beta = 0.5.

    Round 3, ages 1, 4, 1: mean 2, V = 6, the largest; beta_t = 1/2, lambda = 1/2 C + 1/2 a / 4 = 0.325, 0.55, 0.425 for C = 0.4,
    0.1, 0.6. Round 4, ages 1, 1, 4 have V = 6 too: 0.325, 0.175, 0.8. Round 5, ages 2, 1, 3: V = 2, beta_t = 1/6,
    lambda = 5/6 C + 1/6 a / 4 = 0.41667, 0.125, 0.625.
    """
    matcher = Adaptive(beta=0.5)
    worth = [0.4, 0.1, 0.6]
    assert matcher.match(view(3, [1, 4, 1], worth), [7, 8, 9]) == [9, 7, 8]
    assert matcher.match(view(4, [1, 1, 4], worth), [7, 8, 9]) == [8, 9, 7]
    assert matcher._priorities([2, 1, 3], worth) == pytest.approx([5 / 12, 0.125, 0.625])
    assert matcher.state_dict() == {"largest_age": 4, "largest_variance": 6.0}


def test_adaptive_at_its_ends() -> None:
    # beta 0: contribution alone. Equal ages: V = 0, contribution alone too. Nothing to tell them apart: rotation.
    assert Adaptive(beta=0.0).match(view(1, [9, 1, 1], [0.1, 0.3, 0.2]), [7, 8, 9]) == [9, 7, 8]
    assert Adaptive(beta=1.0).match(view(1, [3, 3, 3], [0.1, 0.3, 0.2]), [7, 8, 9]) == [9, 7, 8]
    assert Adaptive(beta=1.0).match(view(1, [9, 1, 2], [0.1, 0.3, 0.2]), [7, 8, 9]) == [7, 9, 8]
    assert Adaptive().match(view(4, [1, 1, 1]), [7, 8, 9]) == Rotation().match(view(4, [1, 1, 1]), [7, 8, 9])


def known(scheduler: Any) -> Any:
    """Means 1/2, 1/4, 3/4 and none for channels 0, 1, 2 and 3."""
    for channel, wins in ((0, 2), (1, 1), (2, 3)):
        for play_ in range(4):
            tell(scheduler, 1, [channel], [play_ < wins])
    return scheduler


def test_overdue_clients_get_the_best_channels_and_change_places() -> None:
    aware = known(AoiAware(clients=3, channels=4, scheduler=RoundRobin(clients=3, channels=4)))
    # h = 1 / 0.75 = 4/3. In round 1 client j is to have channel j; an age of 1 is below h.
    assert aware.assign(view(1, [1, 1, 1])).tolist() == [0, 1, 2]
    # Client 0 is overdue and takes 2 from client 2, which gets 0.
    assert aware.assign(view(1, [2, 1, 1])).tolist() == [2, 1, 0]
    # Client 1 is older than 0: 1 takes 2 (2 gets 1), 0 keeps 0, the next best.
    assert aware.assign(view(1, [2, 3, 1])).tolist() == [0, 2, 1]
    # In round 4 the clients are to have 3, 0, 1: the overdue client 2 moves to 2, and its 1 is left alone.
    assert aware.assign(view(4, [1, 1, 5])).tolist() == [3, 0, 2]
    # Then client 0 would get 0 from client 1, which gets 3.
    assert aware.assign(view(4, [4, 1, 5])).tolist() == [0, 3, 2]
    # All overdue: oldest first over 2, 0, 1.
    assert aware.assign(view(4, [4, 6, 5])).tolist() == [1, 2, 0]


def test_an_age_at_the_threshold_is_not_overdue() -> None:
    aware = AoiAware(clients=2, channels=3, scheduler=RoundRobin(clients=2, channels=3))
    tell(aware, 1, [2], [True])
    tell(aware, 1, [2], [False])
    # h = 2: in round 1 an age of 2 follows, one of 3 does not.
    assert aware.assign(view(1, [2, 1])).tolist() == [0, 1]
    assert aware.assign(view(1, [3, 1])).tolist() == [2, 1]


def test_nothing_known_means_no_threshold() -> None:
    aware = AoiAware(clients=2, channels=3, scheduler=RoundRobin(clients=2, channels=3))
    assert aware.assign(view(1, [99, 99])).tolist() == [0, 1]
    tell(aware, 1, [0, 1], [False, False])
    assert aware.assign(view(2, [99, 99])).tolist() == [1, 2]


def test_total_age_above_its_threshold_plays_the_best_means() -> None:
    inner = RoundRobin(clients=2, channels=4, matcher=Rotation())
    aware = known(AoiAware(clients=2, channels=4, scheduler=inner, mode="total"))
    # K h = 8/3. A sum of 2 follows (round 5: channels 0, 1), a sum of 3 plays 2 and 0 in rotation.
    assert set(aware.assign(view(5, [1, 1])).tolist()) == {0, 1}
    assert aware.assign(view(5, [2, 1])).tolist() == [0, 2]
    assert aware.assign(view(6, [2, 1])).tolist() == [2, 0]
    patient = known(AoiAware(clients=2, channels=4, scheduler=inner, mode="total", total_threshold=9.5))
    assert set(patient.assign(view(5, [8, 1])).tolist()) == {0, 1}
    assert patient.assign(view(5, [9, 1])).tolist() == [0, 2]


def test_means_of_the_wrapper_over_history_window_and_discount() -> None:
    def wrapped(**parameters: Any) -> AoiAware:
        inner = GlrCucb(clients=1, channels=3, alpha=0.5, detector=TwoBad)
        aware = AoiAware(clients=1, channels=3, scheduler=inner, **parameters)
        for round, (channel, good) in enumerate([(0, True), (1, True), (0, False), (0, False), (1, False)], start=1):
            tell(aware, round, [channel], [good])
        assert aware.restarts == [4]
        return aware

    nan = math.nan
    np.testing.assert_allclose(wrapped().means(), [nan, 0.0, nan])
    np.testing.assert_allclose(wrapped(means="own").means(), [nan, 0.0, nan])
    np.testing.assert_allclose(wrapped(means="history").means(), [1 / 3, 1 / 2, nan])
    np.testing.assert_allclose(wrapped(means="window", window_rounds=4).means(), [0.0, 1 / 2, nan])
    np.testing.assert_allclose(wrapped(means="window", window_rounds=2).means(), [0.0, 0.0, nan])
    # Weights 1/16 (t = 1), 1/8, 1/4, 1/2, 1: channel 0: (1/16) / (13/16); channel 1: (1/8) / (9/8).
    np.testing.assert_allclose(wrapped(means="discount", discount=0.5).means(), [1 / 13, 1 / 9, nan])


@pytest.mark.parametrize("inner", [MExp3(clients=1, channels=2), Cucb(clients=1, channels=2), Random(clients=1, channels=2)])
def test_means_forget_by_a_window_where_the_scheduler_never_forgets(inner: Any) -> None:
    aware = AoiAware(clients=1, channels=2, scheduler=inner)
    tell(aware, 1, [0], [True])
    for round in range(2, 252):
        tell(aware, round, [0], [False])
        # The one success is 250 rounds back in round 251: no longer among the last 250.
        assert aware.means()[0] == (1 / round if round <= 250 else 0.0)
    assert inner.means()[0] == 1 / 251


def test_glr_cucb_with_a_known_number_of_segments_by_hand() -> None:
    # 6 x 5 ln(20000) / 20000 = 30 x 9.90349 / 20000 = 0.01485523, whose root is 0.121882; 5 / 0.121882 = 41.02.
    assert alpha_for_segments(20_000, channels=5, segments=6) == pytest.approx(0.121882, abs=5e-7)
    scheduler = GlrCucb(clients=2, channels=5, rounds=20_000, segments=6)
    assert scheduler.period == 41
    # delta = 1/T: 20 Good, and then Bads until the test declares.
    found = {}
    for name, known in (("known", {"segments": 6}), ("unknown", {})):
        scheduler = GlrCucb(clients=1, channels=5, rounds=20_000, **known)
        for round in range(1, 21):
            tell(scheduler, round, [3], [True])
        round = 20
        while not scheduler.restarts:
            round += 1
            tell(scheduler, round, [3], [False])
        found[name] = round - 20
    assert found == {name: bads_until_declared(delta) for name, delta in (("known", 1 / 20_000), ("unknown", 0.001))}
    assert found["known"] > found["unknown"]
    # alpha cannot exceed 1, and one round leaves nothing to explore.
    assert alpha_for_segments(10, channels=5, segments=6) == 1.0
    assert GlrCucb(clients=1, channels=2, rounds=1, segments=1).period == 0
    # A detector that is given keeps its own delta.
    given = GlrCucb(clients=1, channels=5, rounds=20_000, segments=6, detector=TwoBad)
    for round in (1, 2):
        tell(given, round, [3], [False])
    assert given.restarts == [2]


def bads_until_declared(delta: float) -> int:
    """The number n of Bads after 20 Goods at which the GLR test declares: the best split is between them, where G = -l(all)."""
    n = 0
    while True:
        n += 1
        count = 20 + n
        statistic = count * math.log(count) - 20 * math.log(20) - n * math.log(n)
        if statistic >= (1 + 1 / count) * math.log(3 * count**1.5 / delta):
            return n


def test_oracles_differ_in_who_gets_the_best_channel() -> None:
    truth = StateSequence(table=np.ones((9, 4), bool), segment_means=np.array([[0.2, 0.9, 0.4, 0.6]]))
    means = Means(clients=3, channels=4, truth=truth)
    by_age = MeansAge(clients=3, channels=4, truth=truth)
    assert means.assign(view(3, [1, 7, 2])).tolist() == [1, 3, 2]
    assert by_age.assign(view(3, [1, 7, 2])).tolist() == [2, 1, 3]


def test_index_is_the_formula() -> None:
    scheduler = known(Cucb(clients=2, channels=4))
    expected = [m + math.sqrt(3 * math.log(50) / (2 * 4)) for m in (0.5, 0.25, 0.75)]
    assert scheduler.index(50) == pytest.approx([*expected, math.inf])
    assert set(scheduler.assign(view(50, [1, 1])).tolist()) == {3, 2}

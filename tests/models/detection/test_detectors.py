"""Detectors of changes: numbers by hand, the hull against all split points, false alarms and delays against their guarantee."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import rel_entr, xlogy
from scipy.stats import binom

from models.detection.cusum import Cusum
from models.detection.glr import Glr, threshold
from models.detection.glr_exact import GlrExact
from models.detection.glr_grid import GlrGrid
from models.detection.no_detection import NoDetection
from models.detection.page_hinkley import PageHinkley
from models.detection.protocols import Detector


def all_splits(xs: list[float], step: int = 1) -> float:
    """The statistic as Algorithm 2 prints it, kl by kl."""
    x = np.array(xs)
    count = len(x)
    s = np.arange(step, count, step)
    if not len(s):
        return 0.0
    head = np.cumsum(x)[s - 1]
    mean, left = x.mean(), head / s
    right = np.clip((x.sum() - head) / (count - s), 0.0, 1.0)

    def kl(p: np.ndarray, q: float) -> np.ndarray:
        p = np.clip(p, 0.0, 1.0)
        if q in (0.0, 1.0):  # all alike
            return np.zeros_like(p)
        return rel_entr(p, q) + rel_entr(1.0 - p, 1.0 - q)

    return float((s * kl(left, mean) + (count - s) * kl(right, mean)).max())


def fill(detector: Detector, xs: list[float]) -> list[int]:
    """The observations, from 1, at which a change was declared."""
    return [n for n, x in enumerate(xs, start=1) if detector.update(x)]


def test_statistic_and_threshold_by_hand() -> None:
    # 0 0 1 1 splits into two pure halves: 2 kl(0, 1/2) + 2 kl(1, 1/2) = 4 ln 2.
    glr = GlrExact()
    fill(glr, [0, 0, 1, 1])
    assert glr.statistic() == pytest.approx(4 * math.log(2))
    # 0 1 1: best after the first: kl(0, 2/3) + 2 kl(1, 2/3) = ln 3 + 2 ln 1.5.
    glr.reset()
    fill(glr, [0, 1, 1])
    assert glr.statistic() == pytest.approx(math.log(3) + 2 * math.log(1.5))
    assert threshold(4, 0.001) == pytest.approx(1.25 * math.log(24_000))


def test_first_alarm_by_hand() -> None:
    # After 40 zeros and n ones the split at 40 is pure: G = N ln N - 40 ln 40 - n ln n with N = 40 + n. The threshold for
    # delta = 0.001 is 13.994 at N = 44 and 14.021 at N = 45, where G is 13.404 and 15.697.
    def g(n: int) -> float:
        return (40 + n) * math.log(40 + n) - 40 * math.log(40) - n * math.log(n)

    assert g(4) < threshold(44, 0.001)
    assert g(5) >= threshold(45, 0.001)
    glr = GlrExact(delta=0.001)
    assert fill(glr, [0.0] * 40 + [1.0] * 5) == [45]
    assert glr.statistic() == pytest.approx(g(5))


bits = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=120)
parts = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60)


@settings(max_examples=80)
@given(bits | parts)
def test_hull_statistic_equals_all_splits(xs: list[float]) -> None:
    glr = GlrExact()
    for n, x in enumerate(xs, start=1):
        glr.update(x)
        assert glr.statistic() == pytest.approx(all_splits(xs[:n]), abs=1e-9)


@pytest.mark.parametrize("mean", [0.02, 0.5, 0.97])
def test_hull_statistic_equals_all_splits_on_long_streams(mean: float) -> None:
    rng = np.random.default_rng(3)
    xs = np.concatenate([rng.random(4000) < mean, rng.random(1000) < 0.5]).astype(float).tolist()
    glr = GlrExact(delta=1e-300)
    for n, x in enumerate(xs, start=1):
        glr.update(x)
        if n % 97 == 0:
            assert glr.statistic() == pytest.approx(all_splits(xs[:n]), abs=1e-8)
    assert sum(map(len, glr.state_dict()["path"].values())) < 100


@pytest.mark.each_nth(5)
@pytest.mark.parametrize(("cls", "step"), [(GlrExact, 1), (GlrGrid, 7), (GlrGrid, 60)])
@pytest.mark.parametrize("seed", range(6))
def test_every_decision_is_that_of_a_test_without_shortcut(cls: type[Glr], step: int, seed: int) -> None:
    # Streams that wander near the threshold: a mean that drifts by little; decisions are compared well past the first alarm.
    rng = np.random.default_rng(seed)
    mean = np.clip(0.5 + np.cumsum(rng.normal(0.0, 0.02, 600)), 0.05, 0.95)
    xs = (rng.random(600) < mean).astype(float).tolist()
    detector = GlrExact(delta=0.3) if cls is GlrExact else GlrGrid(delta=0.3, step=step)
    declared = fill(detector, xs)
    expected = [n for n in range(2, 601) if all_splits(xs[:n], step) >= threshold(n, 0.3)]
    assert declared == expected
    assert seed > 2 or declared


def test_grid_is_exact_at_step_1_and_below_it_otherwise() -> None:
    rng = np.random.default_rng(5)
    xs = (rng.random(500) < np.repeat([0.3, 0.6], 250)).astype(float).tolist()
    exact, fine, coarse = GlrExact(), GlrGrid(step=1), GlrGrid(step=13)
    for n, x in enumerate(xs, start=1):
        for detector in (exact, fine, coarse):
            detector.update(x)
        assert fine.statistic() == pytest.approx(exact.statistic(), abs=1e-9)
        assert coarse.statistic() == pytest.approx(all_splits(xs[:n], 13), abs=1e-9)


@pytest.mark.parametrize("mean", [0.1, 0.5])
def test_false_alarms_stay_below_delta(mean: float) -> None:
    delta, streams = 0.3, 200
    rng = np.random.default_rng(11)
    alarms = 0
    for _ in range(streams):
        glr = GlrExact(delta=delta)
        alarms += any(glr.update(x) for x in (rng.random(800) < mean).astype(float).tolist())
    assert alarms <= binom.ppf(0.999, streams, delta)


@pytest.mark.slow
def test_false_alarms_stay_below_delta_in_long_streams() -> None:
    delta, streams = 0.1, 150
    rng = np.random.default_rng(12)
    alarms = 0
    for i in range(streams):
        glr = GlrExact(delta=delta)
        alarms += any(glr.update(x) for x in (rng.random(10_000) < 0.05 + 0.9 * i / streams).astype(float).tolist())
    assert alarms <= binom.ppf(0.999, streams, delta)


@pytest.mark.parametrize(("before", "after"), [(0.2, 0.7), (0.9, 0.5)])
def test_changes_are_declared_within_the_guaranteed_delay(before: float, after: float) -> None:
    delta, streams = 0.05, 100
    # The delay of Zhou et al. 2020 without the share of forced exploration, 4 beta / gap^2 with beta the threshold at 2000
    # observations: with n on either side, Pinsker's inequality gives G >= n (observed gap)^2, and an observed gap below gap / 2
    # is as unlikely as exp(-beta).
    bound = math.ceil(4 * (1 + 1 / 2000) * math.log(3 * 2000**1.5 / delta) / (after - before) ** 2)
    rng = np.random.default_rng(13)
    late = 0
    for _ in range(streams):
        glr = GlrExact(delta=delta)
        for x in (rng.random(bound) < before).astype(float).tolist():
            if glr.update(x):  # a false alarm, which has its own guarantee
                glr.reset()
        late += not any(glr.update(x) for x in (rng.random(bound) < after).astype(float).tolist())
    assert late <= binom.ppf(0.999, streams, delta)


def test_reset_forgets_everything() -> None:
    rng = np.random.default_rng(2)
    xs = (rng.random(300) < 0.4).astype(float).tolist()
    for detector in (GlrExact(), GlrGrid(), Cusum(), PageHinkley()):
        fresh = copy.deepcopy(detector)
        fill(detector, xs)
        detector.reset()
        for x in xs[::-1]:
            assert detector.update(x) == fresh.update(x)
        np.testing.assert_equal(detector.state_dict(), fresh.state_dict())


def test_cusum_by_hand() -> None:
    # Mean 1/2 of the first two; then each 1 adds 1 - 1/2 - 1/4 to the upper sum.
    cusum = Cusum(warm_up=2, drift=0.25, threshold=0.75)
    assert [cusum.update(x) for x in (0, 1, 1, 0, 1, 1, 1)] == [False] * 6 + [True]
    cusum.reset()
    assert [cusum.update(x) for x in (0, 1, 0, 0, 0)] == [False] * 4 + [True]


def test_page_hinkley_by_hand() -> None:
    # Means 0, 0, 1/3, 1/2, 3/5; the ones deviate by 2/3, 1/2, 2/5, each less 1/10: 17/30, 29/30, 38/30.
    detector = PageHinkley(drift=0.1, threshold=1.0)
    assert [detector.update(x) for x in (0, 0, 1, 1, 1)] == [False] * 4 + [True]


def test_page_hinkley_is_the_cumulated_deviation_off_its_extreme() -> None:
    rng = np.random.default_rng(4)
    x = rng.random(400)
    mean = np.cumsum(x) / np.arange(1, 401)
    drift, limit = 0.02, 3.0
    up = np.cumsum(x - mean - drift)
    down = np.cumsum(mean - x - drift)
    off = [max(m[-1] - min(0.0, m.min()) for m in (up[:n], down[:n])) for n in range(1, 401)]
    detector = PageHinkley(drift=drift, threshold=limit)
    assert [detector.update(v) for v in x.tolist()] == [value >= limit for value in off]
    assert max(off) > limit


def test_no_detection_declares_nothing() -> None:
    assert fill(NoDetection(), [0.0] * 500 + [1.0] * 500) == []


@pytest.mark.parametrize("make", [GlrExact, GlrGrid, Cusum, PageHinkley, NoDetection])
def test_state_round_trip(make: type[Detector]) -> None:
    rng = np.random.default_rng(8)
    xs = (rng.random(700) < np.repeat([0.3, 0.7], 350)).astype(float).tolist()
    one, two = make(), make()
    fill(two, xs[100:140])
    fill(one, xs[:333])
    saved = one.state_dict()
    kept = copy.deepcopy(saved)
    two.load_state_dict(saved)
    assert fill(one, xs[333:]) == fill(two, xs[333:])
    np.testing.assert_equal(saved, kept)
    np.testing.assert_equal(one.state_dict(), two.state_dict())


@pytest.mark.parametrize(
    ("make", "start"),
    [
        (lambda: GlrExact(delta=0.0), "delta = 0.0"),
        (lambda: GlrExact(delta=1.0), "delta = 1.0"),
        (lambda: GlrGrid(step=0), "step = 0"),
        (lambda: Cusum(warm_up=0), "warm_up = 0"),
        (lambda: Cusum(drift=-0.1), "drift = -0.1"),
        (lambda: PageHinkley(threshold=0.0), "threshold = 0.0"),
        (lambda: PageHinkley(threshold=math.nan), "threshold = nan"),
        (lambda: GlrExact().update(1.5), "x = 1.5"),
        (lambda: Cusum().update(math.nan), "x = nan"),
    ],
)
def test_bad_values_are_refused(make: object, start: str) -> None:
    with pytest.raises(ValueError, match=f"^{start}"):
        make()  # type: ignore[operator]


def test_likelihood_form_is_the_divergence_form() -> None:
    # The algebra behind the hull: s kl(a, m) + (D - s) kl(b, m) is a difference of greatest log-likelihoods.
    d, s, head, total = 50.0, 20.0, 4.0, 21.0

    def most(n: float, ones: float) -> float:
        return float(xlogy(ones, ones) + xlogy(n - ones, n - ones) - xlogy(n, n))

    mean = total / d
    a, b = head / s, (total - head) / (d - s)
    kl = [p * math.log(p / mean) + (1 - p) * math.log((1 - p) / (1 - mean)) for p in (a, b)]
    assert s * kl[0] + (d - s) * kl[1] == pytest.approx(most(s, head) + most(d - s, total - head) - most(d, total))

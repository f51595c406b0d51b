"""Timelines at their boundaries, and random change points against the law they claim."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from models.laws.changes import Piecewise, Unchanging, draw_change_points, draw_factor


def test_unchanging() -> None:
    law = object()
    assert Unchanging(law).at(1, 0.0) == (law, math.inf)
    assert Unchanging(law).at(10**9, 1e9) == (law, math.inf)


def test_changes_in_rounds_by_hand() -> None:
    line = Piecewise(laws=["a", "b", "c"], starts=[3, 7], unit="rounds")
    assert [line.at(t, 99.0) for t in (1, 2, 3, 6, 7, 100)] == [(law, math.inf) for law in "aabbcc"]


def test_changes_in_seconds_by_hand() -> None:
    line = Piecewise(laws=["a", "b", "c"], starts=[0.5, 2.0], unit="seconds")
    times = (0.0, 0.49, 0.5, 1.99, 2.0, 1e9)
    assert [line.at(5, t) for t in times] == [("a", 0.5), ("a", 0.5), ("b", 2.0), ("b", 2.0), ("c", math.inf), ("c", math.inf)]


@given(starts=st.lists(st.floats(1e-3, 1e6), max_size=8, unique=True).map(sorted), time_s=st.floats(0, 1e6))
def test_a_law_is_in_force_until_the_time_it_names(starts: list[float], time_s: float) -> None:
    line = Piecewise(laws=list(range(len(starts) + 1)), starts=starts, unit="seconds")
    law, until = line.at(1, time_s)
    assert law == sum(start <= time_s for start in starts)
    assert until > time_s
    if until < math.inf:
        assert line.at(1, until)[0] == law + 1
        assert line.at(1, math.nextafter(until, 0.0))[0] == law


@pytest.mark.parametrize(
    ("starts", "unit", "message"),
    [
        ([3.0, 2.0], "rounds", r"2.0 must come after 3.0"),
        ([3.0, 3.0], "seconds", r"3.0 must come after 3.0"),
        ([1, 2], "rounds", r"change point 1 must be whole and >= 2"),
        ([2.5, 3], "rounds", r"change point 2.5 must be a whole number of rounds"),
        ([0.0, 2.0], "seconds", r"change point 0.0 must be finite and > 0 seconds"),
        ([1.0, math.inf], "seconds", r"change point inf must be finite"),
        ([math.nan, 1.0], "rounds", r"change point nan must be"),
        ([2.0], "rounds", r"must hold 2 change points"),
    ],
)
def test_bad_starts_are_refused(starts: list[float], unit: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r"^starts = .*" + message):
        Piecewise(laws=[0, 1, 2], starts=starts, unit=unit)


def test_bad_unit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^unit = 'hours'"):
        Piecewise(laws=[0], starts=[], unit="hours")  # type: ignore[arg-type]


@given(
    count=st.integers(0, 12),
    spacing=st.floats(0.0, 10.0),
    extra=st.floats(1e-3, 100.0),
    seed=st.integers(0, 2**32),
    whole=st.booleans(),
)
def test_change_points_keep_their_distance(count: int, spacing: float, extra: float, seed: int, whole: bool) -> None:
    horizon = count * (math.ceil(spacing) + 1) + 1 + extra
    unit: Any = "rounds" if whole else "seconds"
    points = draw_change_points(count=count, horizon=horizon, min_spacing=spacing, rng=np.random.default_rng(seed), unit=unit)
    assert points.shape == (count,)
    begin = 1.0 if whole else 0.0
    gaps = np.diff(np.concatenate(([begin], points)))
    assert (gaps >= max(spacing, begin) - 1e-12).all()
    if count:
        assert points[-1] <= horizon
    if whole:
        assert (points == np.floor(points)).all()
        Piecewise(laws=[0] * (count + 1), starts=points.tolist(), unit="rounds")


def test_placements_in_rounds_are_equally_likely() -> None:
    # All pairs of rounds in 2..9 with a first segment of >= 2 rounds and a second of >= 2.
    allowed = [(a, b) for a, b in itertools.combinations(range(2, 10), 2) if a - 1 >= 2 and b - a >= 2]
    assert len(allowed) == 15
    rng = np.random.default_rng(12)
    draws = Counter(tuple(draw_change_points(count=2, horizon=9, min_spacing=2, rng=rng, unit="rounds")) for _ in range(6000))
    assert set(draws) == set(allowed)
    assert stats.chisquare(list(draws.values())).pvalue > 1e-4


def test_placements_in_seconds_are_uniform() -> None:
    # Against the definition: uniform points, kept only where they keep their distance.
    rng = np.random.default_rng(5)
    trials = np.sort(rng.uniform(0, 10, size=(60_000, 3)), axis=1)
    kept = trials[(np.diff(trials, prepend=0.0, axis=1) >= 1.0).all(axis=1)]
    ours = np.array([draw_change_points(count=3, horizon=10.0, min_spacing=1.0, rng=rng) for _ in range(8000)])
    assert len(kept) > 15_000
    for column in range(3):
        assert stats.ks_2samp(kept[:, column], ours[:, column]).pvalue > 1e-4


def test_factors_are_log_uniform() -> None:
    factors = draw_factor(low=0.25, high=4.0, rng=np.random.default_rng(2), count=5000)
    assert factors.shape == (5000,)
    assert stats.kstest(np.log(factors), stats.uniform(np.log(0.25), np.log(16.0)).cdf).pvalue > 1e-4
    assert draw_factor(low=0.1, high=0.1, rng=np.random.default_rng(2)).tolist() == [0.1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 6}, r"^count = 6: 6 segments of 2.0 s do not fit into 10.0 s"),
        ({"count": 5}, r"^count = 5: 5 segments"),
        ({"count": 5, "unit": "rounds"}, r"^count = 5: 5 segments of 2.0 rounds do not fit into 10.0 rounds"),
        ({"count": -1}, r"^count = -1"),
        ({"horizon": math.inf}, r"^horizon = inf"),
        ({"min_spacing": -1.0}, r"^min_spacing = -1.0"),
        ({"unit": "hours"}, r"^unit = 'hours'"),
    ],
)
def test_change_points_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    parameters: dict[str, Any] = {"count": 2, "horizon": 10.0, "min_spacing": 2.0, "rng": np.random.default_rng(0)}
    with pytest.raises(ValueError, match=message):
        draw_change_points(**(parameters | change))


@pytest.mark.parametrize(
    ("low", "high", "count", "message"),
    [
        (0.0, 1.0, 1, r"^low = 0.0"),
        (2.0, 1.0, 1, r"^high = 1.0: must be finite and >= low = 2.0"),
        (1.0, 2.0, -1, r"^count = -1"),
    ],
)
def test_bad_factors_are_refused(low: float, high: float, count: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw_factor(low=low, high=high, rng=np.random.default_rng(0), count=count)

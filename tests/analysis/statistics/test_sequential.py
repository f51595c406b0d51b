"""Intervals that hold at every number of values: by hand, by simulation of the rule that they are for, and by properties."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import stdtrit
from scipy.stats import binom

from analysis.statistics.intervals import mean_interval
from analysis.statistics.sequential import EFFECT_VARIANCE, always_valid_interval
from tests.helpers.suites import each_nth


def bayes_factor(values: np.ndarray, mean: float) -> float:
    """E_n(mean), as the module states it."""
    n = values.size
    u = n * (values.mean() - mean) ** 2 / values.var(ddof=1) / (n - 1)
    spread = 1.0 + n * EFFECT_VARIANCE
    return float(spread**-0.5 * ((1.0 + u) / (1.0 + u / spread)) ** (n / 2))


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_the_ends_are_where_the_bayes_factor_reaches_one_over_alpha(confidence: float) -> None:
    values = np.random.default_rng(1).normal(3.0, 2.0, 12)
    found = always_valid_interval(values, confidence)
    for end in (found.low, found.high):
        assert bayes_factor(values, end) == pytest.approx(1.0 / (1.0 - confidence))
    assert bayes_factor(values, found.mean) < 1.0 / (1.0 - confidence)


def test_the_bayes_factor_is_the_integral_that_it_stands_for() -> None:
    """Of the noncentral t density over N(0, g), as Rouder et al. 2009 have it."""
    from scipy.integrate import quad
    from scipy.stats import nct, norm, t

    values = np.random.default_rng(2).normal(0.4, 1.0, 9)
    statistic = math.sqrt(9) * values.mean() / values.std(ddof=1)
    prior = norm(0.0, math.sqrt(EFFECT_VARIANCE))
    whole, _ = quad(lambda effect: nct.pdf(statistic, 8, math.sqrt(9) * effect) * prior.pdf(effect), -8.0, 8.0)
    assert whole / t.pdf(statistic, 8) == pytest.approx(bayes_factor(values, 0.0), rel=1e-6)


def test_it_moves_and_scales_with_the_values_and_is_wider_than_one_of_a_fixed_number() -> None:
    values = np.random.default_rng(3).normal(size=30)
    plain, moved = always_valid_interval(values), always_valid_interval(5.0 - 2.0 * values)
    assert (moved.mean, moved.half_width) == pytest.approx((5.0 - 2.0 * plain.mean, 2.0 * plain.half_width))
    for n in range(8, 31):
        ratio = always_valid_interval(values[:n]).half_width / mean_interval(values[:n]).half_width
        assert 1.6 < ratio < 1.82


def test_few_values_tell_nothing() -> None:
    assert math.isnan(always_valid_interval([]).mean)
    assert always_valid_interval([2.0]).half_width == math.inf
    assert always_valid_interval([1.0, 2.0, 4.0, math.nan, math.inf]).half_width == math.inf
    assert math.isfinite(always_valid_interval([1.0, 2.0, 4.0, 8.0, 3.0]).half_width)
    assert always_valid_interval([1.0] * 6).half_width == 0.0
    with pytest.raises(ValueError, match=r"confidence = 1\.0"):
        always_valid_interval([1.0, 2.0], 1.0)


LAWS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "uniform": lambda rng, n: rng.uniform(-1.7, 1.7, n),
    "differences of exponential times": lambda rng, n: rng.exponential(size=n) - rng.exponential(size=n),
    "exponential times": lambda rng, n: rng.exponential(size=n) - 1.0,
}
REPEATED, MOST = 400, 120


def coverage(half_width: Callable[[np.ndarray], float], law: str, target: float) -> int:
    """How often the interval holds the mean, 0, at which a look after every value stops: the first that is small enough."""
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(REPEATED):
        values = LAWS[law](rng, MOST)
        for n in range(5, MOST + 1):
            width = half_width(values[:n])
            if width <= target:
                break
        covered += bool(abs(values[:n].mean()) <= width)
    return covered


def fixed(values: np.ndarray) -> float:
    n = values.size
    return float(stdtrit(n - 1, 0.975) * values.std(ddof=1) / math.sqrt(n))


# 0.4 of a standard deviation is reached after some 60 values, 0.8 after some 20.
@pytest.mark.parametrize(("law", "target"), each_nth(3, [(law, target) for law in LAWS for target in (0.4, 0.8)], first=1))
def test_it_covers_as_often_as_it_claims_where_a_look_after_every_value_stops(law: str, target: float) -> None:
    least = binom.ppf(0.001, REPEATED, 0.95)  # fewer than once in a thousand times, if it covers in 95 of 100 cases
    assert coverage(lambda values: always_valid_interval(values).half_width, law, target) >= least


def test_one_of_a_fixed_number_does_not() -> None:
    """The rule is what spoils it: of exponential times Student's interval covers in less than 90 of 100 cases then."""
    assert coverage(fixed, "exponential times", 0.4) < binom.ppf(0.001, REPEATED, 0.95)

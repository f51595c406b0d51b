"""Inference from common seeds: bootstrap and simultaneous intervals, equivalence, and the set of the best.

Seeds are the unit of replication; variants share their random numbers at a seed, so that differences are paired. Intervals that
are read together, as those of many variants to one baseline, hold together with the confidence stated: each is of confidence
1 - (1 - c) / m for m of them (Bonferroni), which asks nothing of how they depend on each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.statistics.arrays import FloatArray
from analysis.statistics.intervals import Interval, mean_interval

RESAMPLES = 2000
"""Resamples of a bootstrap interval."""
FEWEST = 5
"""Smallest number of values for a bootstrap interval: fewer have too few different resamples."""
Verdict = Literal["equivalent", "different", "open"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Ends of an interval that need not be symmetric about the mean; NaN without an interval."""

    low: float
    high: float


def bootstrap_interval(values: ArrayLike, confidence: float = 0.95, *, resamples: int = RESAMPLES) -> Bounds:
    """Return the studentised bootstrap interval of the mean of the values (n,) that are numbers.

    The same values give the same interval. The quantiles of (mean* - mean) / se* over resamples take the place of Student's t,
    so that a skewed law has a skewed interval. Source: Efron and Tibshirani 1993, section 12.5. No interval of fewer than 5
    values, or where all are equal. ValueError: `confidence` outside of (0, 1).
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence = {confidence!r}: must be in (0, 1)")
    array = np.asarray(values, np.float64).ravel()
    array = array[np.isfinite(array)]
    if array.size < FEWEST or array.min() == array.max():
        return Bounds(math.nan, math.nan)
    drawn = array[np.random.default_rng(0).integers(0, array.size, (resamples, array.size))]
    errors = drawn.std(axis=1, ddof=1)
    # A resample of equal values has no spread to divide by, and no information on the tails.
    spread_out = errors > 0.0
    ratios = (drawn[spread_out].mean(axis=1) - array.mean()) / errors[spread_out]
    low, high = np.quantile(ratios, [(1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0])
    spread = float(array.std(ddof=1))
    return Bounds(float(array.mean() - high * spread), float(array.mean() - low * spread))


def simultaneous(confidence: float, intervals: int) -> float:
    """Return the confidence of each of `intervals` that hold together with `confidence` (Bonferroni)."""
    return 1.0 - (1.0 - confidence) / max(1, intervals)


def verdict(difference: Interval, margin: float) -> Verdict:
    """Judge if a difference is shown to lie within `margin` of zero, shown to lie outside, or neither.

    With a 95 % interval these are two one-sided tests at 2.5 % (Schuirmann 1987). An interval that merely contains zero shows
    nothing.
    """
    # Comparisons with NaN, where one seed has no interval, are false: it shows nothing.
    if -margin < difference.low and difference.high < margin:
        return "equivalent"
    return "different" if difference.low > margin or difference.high < -margin else "open"


@dataclass(frozen=True, slots=True)
class Best:
    """Which of several variants is best, and which may be."""

    index: int
    """Index of the variant with the best mean; -1 without values."""
    members: NDArray[np.bool_]
    """(variants,): True for variants that may be the best; the true best is among them with the stated confidence."""
    seeds: int
    """Number of seeds at which all variants have a value."""


def set_of_best(values: FloatArray, *, higher: bool, confidence: float = 0.95) -> Best:
    """Return the variants that may have the best mean, of `values` (seeds, variants) on common random numbers.

    A variant is left out if some other is shown to be better by its paired differences: one-sided t tests, each at (1 -
    confidence) / (variants - 1), so that the true best is left out with probability 1 - confidence at most, for any variances
    and any dependence between variants (differences normal). Source: multiple comparisons with the best (Hsu 1984), with paired
    variances and Bonferroni's inequality on common random numbers (Yang and Nelson 1991). Seeds at which a variant has no value
    are left out; variants without any value are no members. With fewer than two seeds all others are members.
    """
    count = values.shape[1]
    present = np.asarray(~np.isnan(values).all(axis=0), np.bool_)
    rows = values[~np.isnan(values[:, present]).any(axis=1)]
    if not present.any() or not len(rows):
        return Best(-1, present, 0)
    signed = rows if higher else -rows
    means = np.where(present, signed.mean(axis=0), -math.inf)
    best, members = int(means.argmax()), present.copy()
    if len(rows) < 2 or present.sum() < 2:
        return Best(best, members, len(rows))
    from scipy.special import stdtrit

    # A quantile of Student's t, at the level that Bonferroni's inequality gives each comparison.
    critical = float(stdtrit(len(rows) - 1, 1.0 - (1.0 - confidence) / (int(present.sum()) - 1)))
    for variant in range(count):
        # Of infinite values, such as leaks without protection, differences are compared by sign alone.
        with np.errstate(invalid="ignore"):
            ahead = signed[:, present] - signed[:, [variant]]
            error = ahead.std(axis=0, ddof=1) / math.sqrt(len(rows))
            members[variant] &= not bool((ahead.mean(axis=0) > critical * np.nan_to_num(error)).any())
    return Best(best, members, len(rows))


def simultaneous_interval(values: ArrayLike, intervals: int, confidence: float = 0.95) -> Interval:
    """Return the Student-t interval of the mean of paired differences (n,), one of `intervals` that hold together."""
    return mean_interval(values, simultaneous(confidence, intervals))

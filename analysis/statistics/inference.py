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
    """Return the studentised bootstrap interval of the mean of `values` (n,); NaN and infinite ones are left out.

    Quantiles of (mean* - mean) / se* over resamples take the place of those of Student's t, so that skewed values get a skewed
    interval (Efron and Tibshirani 1993, section 12.5). There is no interval for fewer than `FEWEST` values, or if all are equal.
    The same values always give the same interval. ValueError: `confidence` outside of (0, 1).
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence = {confidence!r}: must be in (0, 1)")
    array = np.asarray(values, np.float64).ravel()
    array = array[np.isfinite(array)]
    if array.size < FEWEST or array.min() == array.max():
        return Bounds(math.nan, math.nan)
    # A fixed seed: a report of the same runs has the same numbers.
    drawn = array[np.random.default_rng(0).integers(0, array.size, (resamples, array.size))]
    errors = drawn.std(axis=1, ddof=1)
    # A resample of equal values has no spread to divide by, and no information on the tails.
    spread_out = errors > 0.0
    ratios = (drawn[spread_out].mean(axis=1) - array.mean()) / errors[spread_out]
    low, high = np.quantile(ratios, [(1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0])
    # se = spread / sqrt(n), and the factor sqrt(n) was left out of the ratios as well. The ends change places: a high ratio
    # means that the mean of the sample lies above the true mean.
    spread = float(array.std(ddof=1))
    return Bounds(float(array.mean() - high * spread), float(array.mean() - low * spread))


def simultaneous_confidence(confidence: float, intervals: int) -> float:
    """Return the confidence that each of `intervals` needs, so that all of them hold at once with `confidence` (Bonferroni)."""
    return 1.0 - (1.0 - confidence) / max(1, intervals)


def verdict(difference: Interval, margin: float) -> Verdict:
    """Return the verdict on a difference: "equivalent", "different" or "open".

    It is equivalent if the whole interval lies within `margin` of zero, different if all of it lies outside, and otherwise open.
    With a 95 % interval these are two one-sided tests at 2.5 % (Schuirmann 1987). An interval that contains zero but is wider
    than the margin shows nothing.
    """
    # Without an interval its ends are NaN: all comparisons are false, and the verdict is "open".
    if -margin < difference.low and difference.high < margin:
        return "equivalent"
    return "different" if difference.low > margin or difference.high < -margin else "open"


@dataclass(frozen=True, slots=True)
class Best:
    """The best of several variants, and those that may be the true best."""

    index: int
    """Index of the variant with the best mean over seeds; -1 if there are no values."""
    members: NDArray[np.bool_]
    """(variants,): True for variants that may be the best; the true best is among them with the stated confidence."""
    seeds: int
    """Number of seeds at which all variants have a value."""


def set_of_best(values: FloatArray, *, higher: bool, confidence: float = 0.95) -> Best:
    """Return the variants that may have the best mean, from `values` (seeds, variants) on common random numbers.

    A variant is excluded if another is shown to be better: by a one-sided t test of their paired differences, at the level
    (1 - confidence) / (variants - 1). So the true best is excluded with probability 1 - confidence at most, for any variances
    and any dependence between variants, if differences are normal. Source: multiple comparisons with the best (Hsu 1984), with
    paired variances and Bonferroni's inequality (Yang and Nelson 1991).

    `higher`: True if a higher value is better. Variants without any value are excluded, and seeds at which one of the others has
    none are left out. With fewer than two seeds nothing can be shown, and no variant with values is excluded.
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
            lead = signed[:, present] - signed[:, [variant]]
            error = lead.std(axis=0, ddof=1) / math.sqrt(len(rows))
            members[variant] &= not bool((lead.mean(axis=0) > critical * np.nan_to_num(error)).any())
    return Best(best, members, len(rows))


def simultaneous_interval(values: ArrayLike, intervals: int, confidence: float = 0.95) -> Interval:
    """Return the Student-t interval of the mean of `values` (n,), wide enough that `intervals` such intervals hold at once."""
    return mean_interval(values, simultaneous_confidence(confidence, intervals))

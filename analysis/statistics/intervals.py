"""Means over seeds with Student-t intervals, and differences that are paired by seed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from analysis.statistics.arrays import FloatArray

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Interval:
    """Mean of `count` values and the half-width of its confidence interval; NaN where there are too few values."""

    mean: float
    half_width: float
    count: int

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.half_width


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Metric of `variant` minus that of the baseline at the same seed: mean and interval over the seeds where both exist."""

    variant: str
    metric: str
    difference: Interval
    seeds: int
    """Number of seeds at which both were run."""
    reached: int
    """Of these, seeds at which the variant has a value; for a cost of the target, seeds that reached it by the horizon."""
    baseline_reached: int
    """As `reached`, for the baseline."""


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the mean of `values` with its Student-t interval; NaNs are left out.

    The half-width is NaN for a single value, and where a value is infinite; the mean is then infinite, too.
    """
    array = np.asarray(values, dtype=np.float64).ravel()
    array = array[~np.isnan(array)]
    if array.size == 0:
        return Interval(math.nan, math.nan, 0)
    if not np.isfinite(array).all():
        # The mean of infinities of both signs would be NaN, with a warning; leaks and times have positive ones only.
        return Interval(math.inf if array.max() == math.inf else -math.inf, math.nan, array.size)
    half = float(half_widths(array[:, np.newaxis], confidence)[0])
    return Interval(float(array.mean()), half, array.size)


def restricted_mean(times_s: ArrayLike, horizon_s: float, confidence: float = 0.95) -> Interval:
    """Return the mean of min(time, `horizon_s`) over runs that all last until the horizon, with its Student-t interval.

    `times_s`: the time at which each run reached the target; inf if it did not; NaNs are left out. Bytes or joules may take the
    place of times, with a horizon that all runs spend.

    If no run reached the target, the mean is the horizon, without an interval: that all runs agree says little of the next one.
    The 95 % interval has its coverage with 20 seeds if most runs reach the target; with 5 seeds it covers in 92 of 100 cases
    (exponential times, a third of them beyond the horizon: `tests/analysis/metrics/test_targets.py`). It covers less often if
    nearly all runs, or nearly none, reach the target, because few seeds then show no exception.
    """
    times = np.asarray(times_s, np.float64)
    interval = mean_interval(np.minimum(times, horizon_s), confidence)
    return interval if (times <= horizon_s).any() else Interval(interval.mean, math.nan, interval.count)


def paired_differences(
    table: pd.DataFrame, baseline: str, metric: str, *, horizon: float | None = None, confidence: float = 0.95
) -> list[PairedDifference]:
    """Return the difference of `metric` to `baseline` at the same seed, for each other variant in the order of the table.

    `table` has columns variant, seed and `metric`, a row for each run. Runs share their random numbers at a seed, so differences
    scatter less than values. Seeds at which one of the two has no value give no difference.
    With a `horizon`, which all runs reach, the metric is a cost of the target, and differences are of min(cost, horizon). If
    neither variant reached the target at any seed, the difference is 0 without an interval, as in `restricted_mean`.
    ValueError: unknown baseline or metric.
    """
    if metric not in table.columns:
        raise ValueError(f"metric = {metric!r}: must be a column of the table ({', '.join(map(str, table.columns))})")
    variants = list(dict.fromkeys(str(name) for name in table["variant"]))
    if baseline not in variants:
        raise ValueError(f"baseline = {baseline!r}: must be one of the variants {', '.join(variants)}")
    limit = math.inf if horizon is None else horizon
    seeds: dict[object, int] = {}
    rows = np.array([seeds.setdefault(seed, len(seeds)) for seed in table["seed"].tolist()], dtype=np.intp)
    places = {name: index for index, name in enumerate(variants)}
    columns = np.array([places[str(name)] for name in table["variant"].tolist()], dtype=np.intp)
    # One row for each seed and one column for each variant; NaN without a value.
    matrix: FloatArray = np.full((len(seeds), len(variants)), math.nan)
    was_run = np.zeros(matrix.shape, bool)
    matrix[rows, columns] = table[metric].to_numpy(dtype=np.float64)
    was_run[rows, columns] = True
    reached = np.isfinite(matrix) & (matrix <= limit)
    values = np.minimum(matrix, limit)
    # Infinite values, such as leaks without protection, have no difference.
    values[np.isinf(values)] = math.nan
    base = variants.index(baseline)
    both = was_run & was_run[:, [base]]

    def to_baseline(variant: int) -> PairedDifference:
        """Return the difference of the variant in column `variant` of `values` to the baseline."""
        common = both[:, variant]
        interval = mean_interval(values[common, variant] - values[common, base], confidence)
        count, base_count = int(reached[common, variant].sum()), int(reached[common, base].sum())
        if horizon is not None and count == base_count == 0:
            interval = Interval(interval.mean, math.nan, interval.count)
        return PairedDifference(variants[variant], metric, interval, int(common.sum()), count, base_count)

    return [to_baseline(variant) for variant in range(len(variants)) if variant != base]


def half_widths(values: FloatArray, confidence: float) -> FloatArray:
    """Return the half-widths of the Student-t intervals of the columns of `values` (n, points); NaN for n = 1."""
    # scipy.special, not scipy.stats: a tenth of the import time, and the report of a run should come up at once.
    from scipy.special import stdtrit

    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence = {confidence!r}: must be in (0, 1)")
    count = values.shape[0]
    if count < 2:
        return np.full(values.shape[1], math.nan)
    quantile = float(stdtrit(count - 1, 0.5 + confidence / 2))
    return np.asarray(quantile * values.std(axis=0, ddof=1) / math.sqrt(count), dtype=np.float64)

"""Means over seeds with Student-t intervals, and differences that are paired by seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
    values, was_run = _values_by_seed(table, variants, metric)
    reached = np.isfinite(values) & (values <= limit)
    capped = np.minimum(values, limit)
    # Infinite values, such as leaks without protection, have no difference.
    capped[np.isinf(capped)] = math.nan
    base = variants.index(baseline)
    differences = []
    for column, variant in enumerate(variants):
        if column == base:
            continue
        in_both = was_run[:, column] & was_run[:, base]
        interval = mean_interval(capped[in_both, column] - capped[in_both, base], confidence)
        count, base_count = int(reached[in_both, column].sum()), int(reached[in_both, base].sum())
        if horizon is not None and count == base_count == 0:
            interval = Interval(interval.mean, math.nan, interval.count)
        differences.append(PairedDifference(variant, metric, interval, int(in_both.sum()), count, base_count))
    return differences


def _values_by_seed(table: pd.DataFrame, variants: Sequence[str], metric: str) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the values of a metric (seeds, variants), NaN without a value; and True for those that `table` has a row for."""
    row_of = {seed: row for row, seed in enumerate(dict.fromkeys(table["seed"].tolist()))}
    column_of = {variant: column for column, variant in enumerate(variants)}
    rows = [row_of[seed] for seed in table["seed"].tolist()]
    columns = [column_of[str(variant)] for variant in table["variant"].tolist()]
    values: FloatArray = np.full((len(row_of), len(column_of)), math.nan)
    values[rows, columns] = table[metric].to_numpy(dtype=np.float64)
    was_run: NDArray[np.bool_] = np.zeros(values.shape, np.bool_)
    was_run[rows, columns] = True
    return values, was_run


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

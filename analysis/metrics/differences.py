"""Differences between a variant and the baseline at equal seeds, with intervals that hold together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from analysis.metrics.comparison import Comparison, DifferenceRow, values_of
from analysis.metrics.registry import metric
from analysis.statistics.arrays import FloatArray
from analysis.statistics.inference import simultaneous_interval
from analysis.statistics.intervals import Interval


def margins_of(texts: Sequence[str]) -> dict[str, float]:
    """Parse texts METRIC=VALUE, in the unit that tables show, into margins in the metric's own unit.

    ValueError: not of this form, no such metric, or a margin that is not above 0.
    """
    margins = {}
    for text in texts:
        name, sign, value = text.partition("=")
        try:
            amount = float(value)
        except ValueError:
            amount = math.nan
        if not sign or not amount > 0.0 or math.isinf(amount):
            raise ValueError(f"equivalent {text!r}: must be METRIC=VALUE with a value above 0, such as final_accuracy=0.5")
        margins[metric(name).name] = amount / metric(name).scale
    return margins


def paired_values(comparison: Comparison, variant: str, name: str) -> FloatArray:
    """Return the differences of a variant to the baseline at equal seeds, (n,); costs of a target up to their horizon."""
    values = values_of(comparison, [variant, comparison.baseline], name)
    values[np.isinf(values)] = math.nan
    differences = values[:, 0] - values[:, 1]
    return np.asarray(differences[~np.isnan(differences)], np.float64)


def simultaneous_difference(comparison: Comparison, row: DifferenceRow, name: str, *, together: int | None = None) -> Interval:
    """Return the interval of a difference that holds together with those of all other variants by this metric.

    `together`: number of intervals that hold together; None: one for each variant. Where the difference by itself has no
    interval, neither has the result.
    """
    alone = row[name].difference
    if math.isnan(alone.half_width):
        return alone
    count = len(comparison.differences) if together is None else together
    return simultaneous_interval(paired_values(comparison, row.variant, name), count, comparison.confidence)


def comparable(row: DifferenceRow, name: str) -> bool:
    """Return True if a difference is meaningful: regrets to different oracles do not compare."""
    return name != "aoi_regret" or row.same_oracle

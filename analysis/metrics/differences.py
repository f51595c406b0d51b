"""Differences between a variant and the baseline at equal seeds, with intervals that hold together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from analysis.metrics.comparison import Comparison, DifferenceRow, metric_by_seed
from analysis.metrics.registry import metric
from analysis.statistics.arrays import FloatArray
from analysis.statistics.inference import simultaneous_interval
from analysis.statistics.intervals import Interval


def margins_of(texts: Sequence[str]) -> dict[str, float]:
    """Parse texts METRIC=VALUE into margins by metric, from the unit that tables show to the metric's own unit.

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
    """Return the differences of metric `name` between a variant and the baseline, (n,), one for each seed where both have it.

    Costs of the target are cut at their horizon; infinite values have no difference.
    """
    values = metric_by_seed(comparison, [variant, comparison.baseline], name)
    values[np.isinf(values)] = math.nan
    differences = values[:, 0] - values[:, 1]
    return np.asarray(differences[~np.isnan(differences)], np.float64)


def simultaneous_difference(comparison: Comparison, row: DifferenceRow, name: str, *, together: int | None = None) -> Interval:
    """Return the interval of a difference to the baseline, made wide enough that several intervals hold at once.

    `together`: number of intervals that hold at once; None: as many as there are variants. A difference without an interval of
    its own has none here either.
    """
    alone = row[name].difference
    if math.isnan(alone.half_width):
        return alone
    count = len(comparison.differences) if together is None else together
    return simultaneous_interval(paired_values(comparison, row.variant, name), count, comparison.confidence)


def is_comparable(row: DifferenceRow, name: str) -> bool:
    """Return True if the difference of metric `name` is meaningful: AoI regrets against different oracles do not compare."""
    return name != "aoi_regret" or row.same_oracle

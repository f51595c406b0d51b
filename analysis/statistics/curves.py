"""Curves (abscissae and values): moving means, last values, and the mean of several with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from analysis.statistics.arrays import Curve, FloatArray
from analysis.statistics.intervals import half_widths


def moving_mean(values: ArrayLike, window: int) -> FloatArray:
    """Return the moving mean (n,) of `values` (n,): of each value and the `window` - 1 before it, or as many as there are."""
    if window < 1:
        raise ValueError(f"window = {window!r}: must be >= 1")
    array = np.asarray(values, dtype=np.float64)
    if not array.size:
        return array
    # Each window is summed by itself: with differences of one running sum an infinite value would spoil all later means.
    padded = np.concatenate([np.zeros(window - 1), array])
    sums = np.lib.stride_tricks.sliding_window_view(padded, window).sum(axis=1)
    counts = np.minimum(np.arange(1, array.size + 1), window)
    return np.asarray(sums / counts, dtype=np.float64)


def last_value(curve: Curve, until: float = math.inf) -> float:
    """Return the last value of a curve at or before the abscissa `until`; NaN if there is none."""
    x, y = curve
    values = y[x <= until]
    return float(values[-1]) if values.size else math.nan


class MeanCurve(NamedTuple):
    """Mean of several curves, each (n,)."""

    grid: FloatArray
    """Common abscissae."""
    mean: FloatArray
    half_width: FloatArray
    """Half-width of the 95 % interval of the mean."""


def mean_curve(curves: Sequence[Curve], *, grid: FloatArray | None = None, points: int = 400) -> MeanCurve:
    """Return the mean over seeds of curves that are sampled at different abscissae, with its 95 % interval.

    Curves are interpolated linearly at `grid` (default: `points` equal steps), and only where all of them have data: no curve is
    continued beyond its end. The result is empty if the curves have no stretch in common; half-widths are NaN for a single curve.
    """
    curves = [curve for curve in curves if curve[0].size]
    no_points = MeanCurve(np.empty(0), np.empty(0), np.empty(0))
    if not curves:
        return no_points
    low, high = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    if low > high:
        return no_points
    if grid is None:
        # A lone curve needs no common grid: its own abscissae keep every value.
        grid = curves[0][0] if len(curves) == 1 else np.linspace(low, high, points)
    else:
        inside = grid[(grid >= low) & (grid <= high)]
        # A short curve may lie between two points of the grid.
        grid = inside if inside.size else np.unique([low, high])
    values = np.stack([np.interp(grid, x, y) for x, y in curves])
    return MeanCurve(grid, values.mean(axis=0), half_widths(values, 0.95))

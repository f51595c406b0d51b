"""Maximum cycle mean of a digraph: the mean time of a round in which each node waits for its in-neighbours (Karp 1978)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
_NONE = -np.inf


def matrix_of(count: int, arcs: Sequence[tuple[int, int, float]]) -> FloatArray:
    """Return (n, n) weights by source and target; -inf where there is no arc.

    `arcs` are (source, target, weight); of parallel arcs the greatest weight counts.
    """
    weights = np.full((count, count), _NONE)
    for source, target, weight in arcs:
        weights[source, target] = max(weights[source, target], weight)
    return weights


def maximum_cycle_mean(weights: FloatArray) -> float:
    """Return the largest mean weight of a cycle of `weights` (n, n); -inf without a cycle.

    Karp's theorem: with F_k(v) the greatest weight of a walk of k arcs to v, the mean is
    max over v of min over k < n of (F_n(v) - F_k(v)) / (n - k).

    >>> maximum_cycle_mean(matrix_of(2, [(0, 1, 3.0), (1, 0, 5.0), (0, 0, 1.0)]))
    4.0
    """
    count = len(weights)
    # Row k: F_k(v), from any start; -inf if no walk of k arcs ends in v.
    walks = np.zeros((count + 1, count))
    for k in range(1, count + 1):
        walks[k] = (walks[k - 1][:, None] + weights).max(axis=0)
    is_reached = np.isfinite(walks[count])
    if not is_reached.any():
        return _NONE
    longest, shorter = walks[count, is_reached], walks[:count, is_reached]
    # n - k
    missing_arcs = np.arange(count, 0, -1)[:, None]
    with np.errstate(invalid="ignore"):
        means = np.where(np.isfinite(shorter), (longest - shorter) / missing_arcs, np.inf)
    return float(means.min(axis=0).max())


def product(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return the greatest weights (n, n) of walks over an arc of `first` (n, n) and then an arc of `second` (n, n)."""
    return np.asarray((first[:, :, None] + second[None, :, :]).max(axis=1))

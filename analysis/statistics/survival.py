"""Kaplan-Meier estimate of the share of runs that have reached a target by each time, where some runs end before they do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from analysis.statistics.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class ReachedShare:
    """Kaplan-Meier estimate of the share of runs that have reached a target, over time."""

    times_s: FloatArray
    """(n,), ascending: 0, then the times at which a run reached the target or ended."""
    share: FloatArray
    """(n,): the share from each time on."""
    censored_s: FloatArray
    """Ends of the runs that did not reach the target."""


def share_reached(times_s: Sequence[float], ends_s: Sequence[float]) -> ReachedShare:
    """Return the estimated share of runs that have reached a target, over time.

    `times_s`: time at which each run reached it, inf if it did not; `ends_s`: end of each run, in the same order.

    ValueError: no runs, or times and ends of different numbers.
    """
    from scipy import stats

    times, ends = np.asarray(times_s, np.float64), np.asarray(ends_s, np.float64)
    if times.shape != ends.shape or not times.size:
        raise ValueError(f"times_s, ends_s: must be as many, and at least one; are {times.size} and {ends.size}")
    censored = np.isinf(times)
    steps = stats.ecdf(stats.CensoredData(uncensored=times[~censored], right=ends[censored])).cdf
    step_times = np.asarray(steps.quantiles, np.float64)
    last = max(float(ends.max()), float(step_times.max()))
    share = np.asarray(steps.probabilities, np.float64)
    times = np.concatenate([[0.0], step_times, [last]])
    return ReachedShare(times, np.concatenate([[0.0], share, share[-1:]]), np.sort(ends[censored]))

"""Times and costs at which runs first reach a target accuracy, also for runs that ended before they did.

A run that ended without reaching the target is censored: its time is longer than the run. To leave it out would flatter its
variant. Compared runs are therefore followed up to a common horizon, a time that all of them reach, and the figure
is the restricted mean, the mean of min(time, horizon). No run is censored up to the horizon, so that it is a plain mean over
seeds, and its differences are paired by seed. (Table I of Tong et al. 2024 evidently averages min(slot, 500): it has "500.00" for
what was never reached, and a mean of 391.24 for what some runs did not reach. That is the restricted mean with horizon 500.) The
log-rank test is not offered: it takes groups to be independent, and runs of one seed share their random numbers.

The accuracy of a run is one curve for tables and figures: its evaluations at the simulated time at which their rounds closed, or
their mean over the last `smoothing_s` simulated seconds, the same number of seconds for fast and for slow rounds. The abscissa
may also be what was spent by then, bytes sent or joules drawn; the horizon is then what every run spent.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

from analysis.results.run import Rounds, Run

if TYPE_CHECKING:
    from analysis.statistics.arrays import Curve, FloatArray


Cost = Literal["seconds", "bytes", "joules"]
"""Unit in which the cost of an accuracy is counted."""
COST_COLUMNS: dict[Cost, tuple[str, ...]] = {
    "seconds": ("end_s",),
    "bytes": ("bytes_down", "bytes_up", "backhaul_bytes", "message_bytes"),
    "joules": ("compute_j", "send_j", "receive_j", "idle_j"),
}
"""Columns of the rounds table whose sum is a cost; all but `end_s`, a time since the start, are of one round."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Length of a run in time, rounds, bytes and joules; of several runs, the length that each of them has at least."""

    time_s: float
    """Simulated seconds of a run: to its time limit if that ended it, otherwise to the close of its last round."""
    rounds: int
    """Rounds that closed."""
    sent_bytes: float
    """Bytes sent to and by clients; inf if none are sent, so that bytes limit nothing."""
    drawn_j: float = math.inf
    """Joules that all clients drew, idle ones included; inf where energy is not counted, so that it limits nothing."""

    def amount(self, cost: Cost) -> float:
        """Return the extent in the unit of `cost`: seconds, bytes or joules."""
        return {"seconds": self.time_s, "bytes": self.sent_bytes, "joules": self.drawn_j}[cost]


UNLIMITED = Extent(math.inf, 2**62, math.inf)


def run_extent(run: Run) -> Extent:
    """Return the extent of one run.

    A run that a time limit ended lasts past the close of its last round, up to `simulated_s` of the summary.
    """
    simulated_s = float(run.summary.get("simulated_s") or 0.0)
    columns = run.columns([*itertools.chain(*COST_COLUMNS.values())])
    if not columns["end_s"].size:
        return Extent(time_s=simulated_s, rounds=0, sent_bytes=0.0)
    totals: dict[Cost, float] = {}
    for cost, names in COST_COLUMNS.items():
        totals[cost] = float(running_cost(cost, [columns[name] for name in names])[-1])
    return Extent(
        time_s=max(totals["seconds"], simulated_s),
        rounds=columns["end_s"].size,
        # A cost that the run does not count is NaN, and limits nothing.
        sent_bytes=math.inf if math.isnan(totals["bytes"]) else totals["bytes"],
        drawn_j=math.inf if math.isnan(totals["joules"]) else totals["joules"],
    )


def running_cost(cost: Cost, columns: Sequence[FloatArray]) -> FloatArray:
    """Return the total cost up to the close of each round, (n,); all NaN if the run does not count that cost.

    `columns`: those of `COST_COLUMNS[cost]`, each (n,). Bytes are those sent to clients, by clients, and between edges and the
    nodes above, lost ones included. Joules are those of all clients, idle ones included. A run whose total is 0 does not count
    the cost.
    """
    if cost == "seconds":
        return columns[0]
    if cost == "bytes":
        # Without edges there is no backhaul, and without messages between clients there are none of these.
        columns = [np.nan_to_num(column) for column in columns]
    total: FloatArray = np.sum(columns, axis=0).cumsum()
    return np.full(total.size, math.nan) if total.size and total[-1] == 0.0 else total


def common_extent(runs: Iterable[Run]) -> Extent:
    """Return the extent that every one of `runs` reaches. Runs without a closed round are ignored: nothing was measured."""
    return least_extent(map(run_extent, runs))


def least_extent(extents: Iterable[Extent]) -> Extent:
    """Return the least value of each field over the extents with a closed round; `UNLIMITED` if there are none."""
    extents = [extent for extent in extents if extent.rounds]
    if not extents:
        return UNLIMITED
    return Extent(
        time_s=min(extent.time_s for extent in extents),
        rounds=min(extent.rounds for extent in extents),
        sent_bytes=min(extent.sent_bytes for extent in extents),
        drawn_j=min(extent.drawn_j for extent in extents),
    )


def trailing_mean(times_s: ArrayLike, values: ArrayLike, smoothing_s: float) -> FloatArray:
    """Return a moving average over time (n,): for each time t, the mean of the values at times in (t - `smoothing_s`, t].

    `times_s` (n,), ascending; `values` (n,). With `smoothing_s` 0 the values are returned unchanged.
    ValueError: `smoothing_s` below 0.
    """
    if not smoothing_s >= 0.0:
        raise ValueError(f"smoothing_s = {smoothing_s!r}: must be >= 0 s")
    times, array = np.asarray(times_s, np.float64), np.asarray(values, np.float64)
    if smoothing_s == 0.0 or not array.size:
        return array
    # Index of the first value of each window. The window of value i holds at least value i, also where times are so large that
    # t - smoothing_s rounds to t.
    starts = np.minimum(np.searchsorted(times, times - smoothing_s, side="right"), np.arange(times.size))
    # Each window is summed by itself: differences of one running sum have rounding errors, and could miss a target by them.
    return np.array([array[start : i + 1].mean() for i, start in enumerate(starts.tolist())])


def smooth_accuracy(costs: FloatArray, times_s: FloatArray, accuracy: FloatArray, smoothing_s: float) -> Curve:
    """Return the accuracy curve of a run: costs of its evaluations, and accuracies averaged over `smoothing_s` seconds.

    All arguments are (n,), one value for each round: the cost up to its close, the time of its close, and the accuracy. Rounds
    with NaN (no evaluation, or a cost that is not counted) are left out.
    """
    evaluated = ~np.isnan(accuracy + costs)
    return costs[evaluated], trailing_mean(times_s[evaluated], accuracy[evaluated], smoothing_s)


def accuracy_curve(rounds: Rounds, *, smoothing_s: float = 0.0, cost: Cost = "seconds") -> Curve:
    """Return the accuracy curve of the run with these rounds against `cost`; see `smooth_accuracy`."""
    end_s, accuracy = (np.asarray(rounds[name], np.float64) for name in ("end_s", "accuracy"))
    return smooth_accuracy(_running_cost_of(rounds, cost), end_s, accuracy, smoothing_s)


def _running_cost_of(rounds: Rounds, cost: Cost) -> FloatArray:
    """Return `running_cost` of the columns of a rounds table."""
    return running_cost(cost, [np.asarray(rounds[name], np.float64) for name in COST_COLUMNS[cost]])


def final_accuracy(rounds: Rounds, *, last: int = 1, until: Extent = UNLIMITED) -> float:
    """Return the mean of the last `last` evaluations within `until`, or of all if there are fewer; NaN if there are none.

    A round is within `until` if it closed by that time, and if no more bytes were sent up to its close.
    """
    end_s, accuracy = (np.asarray(rounds[name], np.float64) for name in ("end_s", "accuracy"))
    within = (end_s <= until.time_s) & (np.nan_to_num(_running_cost_of(rounds, "bytes")) <= until.sent_bytes)
    evaluations = accuracy[within & ~np.isnan(accuracy + end_s)]
    return float(evaluations[-last:].mean()) if evaluations.size else math.nan


def first_reached(curve: Curve, target: float) -> float:
    """Return the first abscissa at which a curve is at least `target`; inf if it never is."""
    abscissae, values = curve
    reached = np.flatnonzero(values >= target)
    return float(abscissae[reached[0]]) if reached.size else math.inf


def cost_to_accuracy(rounds: Rounds, target: float, cost: Cost, *, smoothing_s: float = 0.0) -> float:
    """Return the cost up to the close of the first round in which the smoothed accuracy is at least `target`.

    inf: not reached in the run; NaN: no rounds, or the run does not count the cost.
    """
    costs = _running_cost_of(rounds, cost)
    if not costs.size or math.isnan(costs[-1]):
        return math.nan
    return first_reached(accuracy_curve(rounds, smoothing_s=smoothing_s, cost=cost), target)

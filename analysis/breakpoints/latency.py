"""Mean latency of rounds on both sides of change points."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from analysis.metrics.run_metrics import round_latencies_s
from analysis.statistics.intervals import Interval, mean_interval

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """Mean latency of a round on both sides of one change point."""

    at: float
    """The change point: the first round, or the time in seconds, at which the new law holds."""
    before: Interval
    after: Interval

    @property
    def change_s(self) -> float:
        """Mean after minus mean before."""
        return self.after.mean - self.before.mean


def breakpoint_study(
    rounds: pd.DataFrame,
    change_points: Sequence[float],
    *,
    unit: Literal["rounds", "seconds"] = "rounds",
    span_rounds: int | None = None,
    confidence: float = 0.95,
) -> list[Breakpoint]:
    """Return the mean latency on both sides of each change point, up to the next one or over at most `span_rounds` rounds.

    A round belongs to the stretch in which it starts. Intervals treat the rounds of a stretch as independent draws: right for a
    fixed choice of clients, too narrow while a policy still learns. ValueError: change points not ascending, or `span_rounds`
    below 1.
    """
    if unit not in ("rounds", "seconds"):
        raise ValueError(f"unit = {unit!r}: must be 'rounds' or 'seconds'")
    if span_rounds is not None and span_rounds < 1:
        raise ValueError(f"span_rounds = {span_rounds!r}: must be >= 1")
    points = [float(point) for point in change_points]
    if any(later <= earlier for earlier, later in itertools.pairwise(points)):
        raise ValueError(f"change_points = {points!r}: must be ascending")
    position = rounds["round" if unit == "rounds" else "start_s"].to_numpy(dtype=np.float64)
    latency = round_latencies_s(rounds)
    edges = [-math.inf, *points, math.inf]
    stretches = [latency[(position >= low) & (position < high)] for low, high in itertools.pairwise(edges)]
    width = len(rounds) + 1 if span_rounds is None else span_rounds
    return [
        Breakpoint(point, mean_interval(left[-width:], confidence), mean_interval(right[:width], confidence))
        for point, (left, right) in zip(points, itertools.pairwise(stretches), strict=True)
    ]


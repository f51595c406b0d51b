"""Durations of large sweeps on many workers, simulated from measured costs, and the number of workers at saturation.

A free worker asks the scheduler for a run. The scheduler (with the process that started the sweep) serves one request after the
other, each in `task_s`, which includes taking the result of the run before. The run then takes `run_s` on average, from a
log-normal law with the coefficient of variation `cv`. Workers begin after `start_s`. `python -m tests.benchmarks.sweep_costs`
measures these costs. Up to `SIMULATED` runs are simulated one by one; more go on at the rate of the last half of these.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from analysis.documents.blocks import Cells

SIMULATED = 100_000
RUNS = (10**3, 10**5, 10**7)
"""Numbers of runs in the table of a plan."""
WORKERS = (1, 10, 100, 1000)
"""Numbers of workers in it."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of a sweep, in seconds and bytes."""

    run_s: float
    """Seconds of a run on a worker, on average."""
    task_s: float
    """Seconds that the scheduler and the main process need for a run; they handle one at a time."""
    start_s: float = 0.0
    """Seconds until the workers have started."""
    run_bytes: float = 0.0
    """Bytes that a run writes."""
    cv: float = 0.3
    """Coefficient of variation of the time of a run."""

    @property
    def saturates_at(self) -> float:
        """Number of workers that keep the scheduler busy all the time; more are of no use."""
        return (self.run_s + self.task_s) / self.task_s


def makespan_s(costs: Costs, runs: int, workers: int) -> float:
    """Simulate a sweep as the module's header describes, and return the seconds from its start to its last result.

    Equal arguments give equal seconds: the generator has a fixed seed.
    """
    # Four runs for each worker, at least: then the last half is served at the rate that later runs keep.
    simulated = min(runs, max(SIMULATED, 4 * workers))
    generator = np.random.default_rng(0)
    # Deviation of the logarithm of a log-normal law with this coefficient of variation.
    sigma = math.sqrt(math.log1p(costs.cv**2))
    times_s = costs.run_s * np.exp(generator.normal(-0.5 * sigma**2, sigma, simulated))
    free_at_s = [costs.start_s] * min(workers, simulated)  # a heap, an entry for each worker
    served_s, served_times_s = costs.start_s, []
    for run_s in times_s.tolist():
        # The worker that is free first gets the run, as soon as the scheduler has served the one before it.
        served_s = max(served_s, heapq.heappop(free_at_s)) + costs.task_s
        heapq.heappush(free_at_s, served_s + run_s)
        served_times_s.append(served_s)
    last_s = max(free_at_s)
    if simulated == runs:
        return last_s
    half = simulated // 2
    seconds_a_run = (served_times_s[-1] - served_times_s[half - 1]) / (simulated - half)
    return last_s + (runs - simulated) * seconds_a_run


class PlanRow(NamedTuple):
    """Duration of a sweep of `runs` on `workers`."""

    runs: int
    workers: int
    seconds: float
    share: float
    """Share of the workers' time that is spent on runs."""


def plan_rows(costs: Costs, runs: Sequence[int] = RUNS, workers: Sequence[int] = WORKERS) -> list[PlanRow]:
    """Return the durations of sweeps of each number of `runs` on each number of `workers`."""
    rows = []
    for number in runs:
        for count in workers:
            seconds = makespan_s(costs, number, count)
            rows.append(PlanRow(number, count, seconds, number * costs.run_s / (count * seconds)))
    return rows


def format_duration(seconds: float) -> str:
    """Return a duration as text, in a unit that suits its size."""
    for unit, length in (("years", 31_557_600.0), ("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def plan_cells(costs: Costs) -> Cells:
    """Return the table of a plan: a row for each number of `WORKERS`, a column for each of `RUNS`.

    A cell has the duration, and in brackets the share of the workers' time that runs take. The last row has the bytes on disk.
    """
    texts = {(row.runs, row.workers): f"{format_duration(row.seconds)} ({row.share:.0%})" for row in plan_rows(costs)}
    cells = [[f"{count:,}", *(texts[runs, count] for runs in RUNS)] for count in WORKERS]
    disk = ["on disk", *(f"{runs * costs.run_bytes / 1e9:,.3g} GB" for runs in RUNS)]
    return ["workers", *(f"{runs:,} runs" for runs in RUNS)], [*cells, disk]

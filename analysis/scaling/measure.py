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

import numpy as np

from analysis.documents.blocks import Cells

SIMULATED = 100_000
RUNS = (10**3, 10**5, 10**7)
WORKERS = (1, 10, 100, 1000)


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
    """Simulate the seconds from the start of a sweep to its last result."""
    simulated = min(runs, max(SIMULATED, 4 * workers))
    generator = np.random.default_rng(0)
    sigma = math.sqrt(math.log1p(costs.cv**2))
    times = costs.run_s * np.exp(generator.normal(-0.5 * sigma**2, sigma, simulated))
    free = [costs.start_s] * min(workers, simulated)
    served, ends = costs.start_s, []
    for run_s in times.tolist():
        served = max(served, heapq.heappop(free)) + costs.task_s
        heapq.heappush(free, served + run_s)
        ends.append(served)
    last = max(free)
    if simulated == runs:
        return last
    half = simulated // 2
    return last + (runs - simulated) * (ends[-1] - ends[half - 1]) / (simulated - half)


def plan_rows(costs: Costs, runs: Sequence[int] = RUNS, workers: Sequence[int] = WORKERS) -> list[tuple[int, int, float, float]]:
    """Return rows of runs, workers, seconds, and the share of the workers' time that is spent on runs."""
    rows = []
    for number in runs:
        for count in workers:
            seconds = makespan_s(costs, number, count)
            rows.append((number, count, seconds, number * costs.run_s / (count * seconds)))
    return rows


def format_duration(seconds: float) -> str:
    """Return a duration as text, in a unit that suits its size."""
    for unit, length in (("years", 31_557_600.0), ("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def plan_cells(costs: Costs) -> Cells:
    """Return a row for each number of workers: duration and efficiency for each number of runs; then the bytes on disk."""
    rows = plan_rows(costs)
    texts = {(runs, count): f"{format_duration(seconds)} ({share:.0%})" for runs, count, seconds, share in rows}
    cells = [[f"{count:,}", *(texts[runs, count] for runs in RUNS)] for count in WORKERS]
    disk = ["on disk", *(f"{runs * costs.run_bytes / 1e9:,.3g} GB" for runs in RUNS)]
    return ["workers", *(f"{runs:,} runs" for runs in RUNS)], [*cells, disk]

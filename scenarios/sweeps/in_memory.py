"""Sweeps whose results stay in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from analysis.api import Sweep, SweepEntry
from analysis.results.sources import RunInMemory
from netsim.core.protocols import Notes
from netsim.core.user_warnings import warn_user
from netsim.simulation import Simulation
from scenarios.registry.in_process import add_objects, kept_objects
from scenarios.runs.in_memory import run_in_memory
from scenarios.runs.progress import rounds_done
from scenarios.schema.errors import UserError
from scenarios.sweeps.attempts import attempt_all, relay_progress
from scenarios.sweeps.cluster import open_workers
from scenarios.sweeps.failure_list import Failures
from scenarios.sweeps.options import NO_LIMITS, THIS_MACHINE, Limits, Machines
from scenarios.sweeps.plan import Plan, PlannedRun, unpack
from scenarios.sweeps.workers import Board, SweepProgress
from scenarios.wiring.simulation import build
from scenarios.workers.interrupts import StopRequest
from scenarios.workers.processes import Killed


def sweep_in_memory(
    planned: Plan,
    *,
    machines: Machines = THIS_MACHINE,
    progress: Callable[[SweepProgress], None] | None = None,
    limits: Limits = NO_LIMITS,
) -> Sweep:
    """Run all runs of a plan and keep their results in memory.

    `progress` is called several times a second with the state of the runs. A run is listed in `missing`, with a warning, if it
    fails by a mistake of the user's, reaches its limit of wall time, or loses its worker too often. Raises UserError if all
    runs are missing.
    """
    if planned.until is not None:
        raise UserError("sweep.until: adds seeds to a sweep in a folder; give it as out")
    classes = kept_objects()
    failures = Failures(None)
    results: dict[int, RunInMemory] = {}
    runs = dict(enumerate(planned.runs))
    stop = StopRequest()

    def work(index: int) -> _MemoryRun:
        return _MemoryRun(runs[index], classes, limits)

    def on_loss(index: int, killed: Killed, again: bool) -> None:
        failures.on_loss(runs[index], killed.reason, again)

    # Results travel back in any case, so that the workers of a cluster need no shared folder.
    machines = replace(machines, send_back=machines.cluster is not None)
    opened = open_workers(machines, runs=len(runs), modules=planned.modules("scenarios.sweeps.in_memory"))
    with opened as workers, relay_progress(workers, progress, stop):
        for index, result in attempt_all(workers, runs, work, stop, retries=machines.retries, on_loss=on_loss):
            if isinstance(result, str):
                failures.add(runs[index], result)
            elif not isinstance(result, Killed):
                results[index] = RunInMemory(summary=result.summary, scenario_text=result.scenario_text, tables=result.tables)
                workers.mark_complete(index, runs[index].scenario.rounds)
    if not results:
        failures.raise_if_any("there was no other")
    for text in failures.texts():
        warn_user(f"{text} (this run failed, and is missing)")
    entries = []
    for index, result in sorted(results.items()):
        run = runs[index]
        entries.append(SweepEntry(run.variant, run.label, run.seed, Path(run.path), result))
    baseline = planned.baseline
    if baseline not in [entry.variant for entry in entries]:
        baseline = entries[0].variant  # without a finished run of the baseline, the other variants are still usable
    return Sweep(
        path=Path(),
        name=planned.name,
        entries=entries,
        baseline=baseline,
        target_accuracy=planned.target_accuracy,
        smoothing_s=planned.smoothing_s,
        missing=[(run.label, run.seed) for index, run in runs.items() if index not in results],
    )


class _Results(NamedTuple):
    """Results of a run, sent back by a worker."""

    summary: Notes
    scenario_text: str
    tables: Any


@dataclass(frozen=True)
class _MemoryRun:
    """Work of a worker: a run whose results are sent back."""

    planned: PlannedRun
    classes: Notes
    """Classes that cannot be imported, of the process that submits the work (`in_process.kept_objects`)."""
    limits: Limits

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpack_work, (self.classes, self.limits, self.planned.pack())

    def __call__(self, board: Board) -> _Results | str:
        """Return the results of the run, or the message of a mistake of the user's, or of the limit of wall time that it reached.

        Another interrupt is raised, as it ends the sweep.
        """
        planned, wall = self.planned, self.limits.wall(may_end_process=board.own_process)
        where = f"variant {planned.variant}, seed {planned.seed}"

        def report(simulation: Simulation) -> None:
            board.report_rounds(rounds_done(simulation, planned.scenario))

        try:
            built = build(planned.scenario)
            built.simulation.limit_events(self.limits.event_limit)
            result = run_in_memory(built, planned.scenario, after_round=report, wall=wall)
        except UserError as error:
            return f"{where}: {error}"
        except KeyboardInterrupt:
            if not wall.reached:
                raise
            return f"{where}: {wall.reason}; give it more time"
        return _Results(result.summary(), result.scenario_text(), result.tables)


def _unpack_work(classes: Notes, limits: Limits, planned: tuple[str, str, int, Notes]) -> _MemoryRun:
    """Return the work, in the process that receives it, which must know `classes` before it reads a scenario that names them."""
    add_objects(classes)
    return _MemoryRun(unpack(*planned), classes, limits)

"""Sweeps whose results stay in memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.api import Sweep, SweepEntry
from analysis.results.sources import RunInMemory
from netsim.core.protocols import Notes
from netsim.simulation import Simulation
from scenarios.registry.in_process import adopt, objects
from scenarios.runs.in_memory import run_in_memory
from scenarios.runs.progress import rounds_done
from scenarios.schema.errors import UserError
from scenarios.sweeps.attempts import attempt_all, watching
from scenarios.sweeps.cluster import open_workers
from scenarios.sweeps.failure_list import Failures
from scenarios.sweeps.options import NO_LIMITS, THIS_MACHINE, Limits, Machines
from scenarios.sweeps.plan import Plan, Planned, unpack
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

    `progress` is called several times a second with the progress. A run that goes wrong by a mistake of the user's, or whose
    worker is killed time and again, is `missing`, with a warning. Every run ends at its `limits`, of which one that reaches
    that of wall time is missing, too. Raises UserError where all are missing.
    """
    if planned.until is not None:
        raise UserError("sweep.until: adds seeds to a sweep in a folder; give it as out")
    registered = objects()
    failures = Failures(None)
    left: dict[int, RunInMemory] = {}
    runs = dict(enumerate(planned.runs))
    stop = StopRequest()

    def work(index: int) -> _InWorker:
        return _InWorker(runs[index], registered, limits)

    def on_loss(index: int, killed: Killed, again: bool) -> None:
        failures.on_loss(runs[index], killed.reason, again)

    # What the runs leave travels back in any case.
    modules = planned.modules("scenarios.sweeps.in_memory")
    machines = replace(machines, send_back=machines.cluster is not None)
    elsewhere = open_workers(machines, runs=len(runs), modules=modules)
    with elsewhere as workers, watching(workers, progress, stop):
        done = attempt_all(workers, runs, work, stop, retries=machines.retries, on_loss=on_loss)
        for index, result in done:
            if isinstance(result, str):
                failures.add(runs[index], result)
            elif not isinstance(result, Killed):
                content, text, tables = result
                left[index] = RunInMemory(summary=content, scenario_text=text, tables=tables)
                workers.complete(index, runs[index].scenario.rounds)
    if not left:
        failures.refuse("there was no other")
    for text in failures.texts():
        warnings.warn(f"{text} (this run failed, and is missing)", stacklevel=3)
    entries = [SweepEntry(p.variant, p.label, p.seed, Path(p.path), left[index]) for index, p in runs.items() if index in left]
    return Sweep(
        path=Path(),
        name=planned.name,
        entries=entries,
        # Without a finished run of the baseline, the other variants are still usable.
        baseline=planned.baseline if planned.baseline in [entry.variant for entry in entries] else entries[0].variant,
        target_accuracy=planned.target_accuracy,
        smoothing_s=planned.smoothing_s,
        missing=[(p.label, p.seed) for index, p in runs.items() if index not in left],
    )


@dataclass(frozen=True)
class _InWorker:
    """Work of a worker: a run whose tables are sent back."""

    planned: Planned
    given: Notes
    """The classes that only the process knows that asks for it."""
    limits: Limits

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpack, (self.given, self.limits, self.planned.pack())

    def __call__(self, board: Board) -> tuple[Notes, str, Any] | str:
        """Return the run's summary, scenario and tables, or the message of a mistake of the user's."""
        planned, wall = self.planned, self.limits.wall(may_end_process=board.own_process)
        where = f"variant {planned.variant}, seed {planned.seed}"

        def report(simulation: Simulation) -> None:
            board.tell(rounds_done(simulation, planned.scenario))

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
        return result.summary(), result.scenario_text(), result.tables


def _unpack(given: Notes, limits: Limits, planned: tuple[str, str, int, Notes]) -> _InWorker:
    """Rebuild the work in another process, which must know the classes before it reads a scenario that names them."""
    adopt(given)
    return _InWorker(unpack(*planned), given, limits)

"""One run of a sweep in a worker. All its errors are returned, so that other runs go on."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from netsim.core.collector import free_at_the_end
from netsim.core.protocols import Notes
from netsim.simulation import Simulation
from scenarios.runs.folders.own_code import Fingerprint, own_code, refuse_changed
from scenarios.runs.folders.replacement import check_run
from scenarios.runs.progress import rounds_done
from scenarios.runs.run import go_on, simulate
from scenarios.runs.unfinished import INTERRUPTED
from scenarios.runs.waiting import Watch, watch_run
from scenarios.runs.wall_limit import WallLimit
from scenarios.schema.errors import BooksError, UserError, name_source
from scenarios.sweeps.options import NO_LIMITS, Limits
from scenarios.sweeps.plan import PlannedRun
from scenarios.sweeps.relocation import read_run_files, write_run_files
from scenarios.sweeps.workers import Board
from scenarios.wiring.simulation import build
from scenarios.workers.scratch import temporary_folder


@dataclass(frozen=True)
class RunResult:
    """Result of a run in a worker."""

    error: str = ""
    """Message of an error; empty without one."""
    trace: str = ""
    """Traceback of a defect of netsim."""
    defect: bool = False
    """True if the error is not a mistake of the user's."""
    stopped: bool = False
    """True if the run was stopped before its end."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Contents of the run's files by name, if the worker cannot reach the sweep's folder; otherwise empty."""

    def write_files(self, folder: Path) -> None:
        """Write the files that were sent back, if any, into the folder of the run; raises UserError."""
        if self.files:
            write_run_files(folder, self.files)


@dataclass(frozen=True)
class WorkerRun:
    """Work of a worker: a run into a folder."""

    planned: PlannedRun
    code: Fingerprint
    """Fingerprint of the user's own components in the process that submits the run."""
    out: Path | None
    """Folder of the run. None: a temporary folder of the worker, and the files are sent back."""
    resume: bool
    """True to resume from the checkpoint in `out`."""
    limits: Limits = NO_LIMITS

    def __call__(self, board: Board) -> RunResult:
        """Simulate the run. Every error becomes part of the result, so that other runs go on."""
        if board.is_stopped():
            return RunResult(stopped=True)
        where = f"variant {self.planned.variant}, seed {self.planned.seed}"
        wall = self.limits.wall(may_end_process=board.own_process)
        try:
            # Each process imports the code at its own time and keeps it, so that a file changed meanwhile would mix two versions.
            with name_source(where):
                refuse_changed("while the sweep was under way", self.code, own_code(self.planned.scenario))
            if self.out is not None:
                return self._simulate(self.out, board, wall)
            with temporary_folder(board.scratch()) as scratch:
                folder = scratch / "run"
                result = self._simulate(folder, board, wall)
                if result.stopped or result.error:
                    return result
                return RunResult(files=read_run_files(folder))
        except KeyboardInterrupt:
            return _limit_reached(where, wall, "") if wall.reached else RunResult(stopped=True)
        except UserError as error:
            text = str(error)
            return RunResult(error=text if text.startswith(f"{where}:") else f"{where}: {text}")
        except BooksError as error:
            return RunResult(error=f"{where}: {error}", defect=True)
        except Exception as error:
            text = f"{where}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            return RunResult(error=text, trace=traceback.format_exc(), defect=True)

    def _simulate(self, out: Path, board: Board, wall: WallLimit) -> RunResult:
        """Simulate the run into `out` to its end, a stop, or its limit, and return the result."""
        report_wait = board.wait_reporter()
        watch = Watch(report_wait, clear=lambda: report_wait(""))

        def after_round(simulation: Simulation) -> None:
            """Callback at the close of a round: report progress, and stop if the sweep is to end."""
            watch.on_close()
            board.report_rounds(rounds_done(simulation, self.planned.scenario))
            if board.is_stopped():
                raise KeyboardInterrupt

        with free_at_the_end(), watch_run(watch):
            if self.resume:
                # Code that differs from the earlier attempt's was allowed or refused before any run began.
                summary = go_on(out, after_round=after_round, allow_changed_code=True, begin=watch.begin, wall=wall)
            else:
                summary = self._simulate_from_start(out, after_round, watch, wall)
        if summary["ended"] == INTERRUPTED and wall.reached:
            where = f"variant {self.planned.variant}, seed {self.planned.seed}"
            return _limit_reached(where, wall, f" after {summary['rounds']} rounds")
        return RunResult(stopped=summary["ended"] == INTERRUPTED)

    def _simulate_from_start(self, out: Path, after_round: Callable[[Simulation], None], watch: Watch, wall: WallLimit) -> Notes:
        """Simulate the run from its start and return the summary.

        It is a function of its own, so that no reference to the simulation is left, and `free_at_the_end` frees its memory.
        """
        check_run(out, True)
        built = build(self.planned.scenario)
        built.simulation.limit_events(self.limits.event_limit)
        watch.begin(built.simulation)
        return simulate(built, self.planned.scenario, out, overwrite=True, after_round=after_round, wall=wall)


def _limit_reached(where: str, wall: WallLimit, after: str) -> RunResult:
    """Return the result of a run that reached its limit of wall time. `after`: text on the rounds done."""
    return RunResult(error=f"{where}: {wall.reason}{after}; give it more time, and go on with --resume")


@dataclass(frozen=True)
class LearnerTrial:
    """Work of a worker: build the learner of a scenario, to find mistakes before any run begins."""

    planned: PlannedRun

    def __call__(self, board: Board) -> RunResult:
        """Build the simulation with its learner, and return the error, if any."""
        try:
            with name_source(f"variant {self.planned.variant}"):
                build(self.planned.scenario)
        except UserError as error:
            return RunResult(error=str(error))
        return RunResult()

"""One run of a sweep in a worker. All its errors are returned, so that other runs go on."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from netsim.core.collector import freed_at_the_end
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
from scenarios.sweeps.plan import Planned
from scenarios.sweeps.relocation import receive, sent_back
from scenarios.sweeps.workers import Board
from scenarios.wiring.simulation import build
from scenarios.workers.scratch import temporary_folder


@dataclass(frozen=True)
class Done:
    """Result of a run in a worker."""

    error: str = ""
    """Message of an error; empty without one."""
    trace: str = ""
    """Traceback of a defect of netsim."""
    defect: bool = False
    """True if the error is none of the user's mistakes."""
    stopped: bool = False
    """True if the run was stopped before its end."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Files of the run, by name, if the worker cannot reach the sweep's folder."""

    def keep(self, folder: Path) -> None:
        """Write the files that came back into the folder of the run; raises UserError."""
        if self.files:
            receive(folder, self.files)


@dataclass(frozen=True)
class OneRun:
    """Work of a worker: a run into the folder `out`; None: into a folder of the worker, whose files are sent back."""

    planned: Planned
    code: Fingerprint
    """The fingerprint of the user's own components in the process that asks for it."""
    out: Path | None
    resume: bool
    """True: resume from the checkpoint in its folder."""
    limits: Limits = NO_LIMITS

    def __call__(self, board: Board) -> Done:
        """Simulate it."""
        if board.is_stopped():
            return Done(stopped=True)
        where = f"variant {self.planned.variant}, seed {self.planned.seed}"
        wall = self.limits.wall(may_end_process=board.own_process)
        try:
            # Processes import the code one after the other, and keep imported modules.
            with name_source(where):
                refuse_changed("while the sweep was under way", self.code, own_code(self.planned.scenario))
            if self.out is not None:
                return self._simulate(self.out, board, wall)
            with temporary_folder(board.scratch()) as scratch:
                folder = scratch / "run"
                done = self._simulate(folder, board, wall)
                return done if done.stopped or done.error else Done(files=sent_back(folder))
        except KeyboardInterrupt:
            return _limit_reached(where, wall, "") if wall.reached else Done(stopped=True)
        except UserError as error:
            return Done(error=str(error) if str(error).startswith(f"{where}:") else f"{where}: {error}")
        except BooksError as error:
            return Done(error=f"{where}: {error}", defect=True)
        except Exception as error:
            text = f"{where}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            return Done(error=text, trace=traceback.format_exc(), defect=True)

    def _simulate(self, out: Path, board: Board, wall: WallLimit) -> Done:
        """Simulate the run to its end, a stop, or the limit, and return the result."""
        say = board.speaker()
        watch = Watch(say, clear=lambda: say(""))

        def count(simulation: Simulation) -> None:
            watch.on_close()
            board.tell(rounds_done(simulation, self.planned.scenario))
            if board.is_stopped():
                raise KeyboardInterrupt

        with freed_at_the_end(), watch_run(watch):
            if self.resume:
                # Whether the code of the attempt before may be another was asked before any run began.
                summary = go_on(out, after_round=count, allow_changed_code=True, begin=watch.begin, wall=wall)
            else:
                summary = self._from_the_start(out, count, watch, wall)
        if summary["ended"] == INTERRUPTED and wall.reached:
            where = f"variant {self.planned.variant}, seed {self.planned.seed}"
            return _limit_reached(where, wall, f" after {summary['rounds']} rounds")
        return Done(stopped=summary["ended"] == INTERRUPTED)

    def _from_the_start(self, out: Path, after_round: Callable[[Simulation], None], watch: Watch, wall: WallLimit) -> Notes:
        """Run from the start and return the summary. No reference to the run is kept here, so that its memory is freed."""
        check_run(out, True)
        built = build(self.planned.scenario)
        built.simulation.limit_events(self.limits.event_limit)
        watch.begin(built.simulation)
        return simulate(built, self.planned.scenario, out, overwrite=True, after_round=after_round, wall=wall)


def _limit_reached(where: str, wall: WallLimit, after: str) -> Done:
    return Done(error=f"{where}: {wall.reason}{after}; give it more time, and go on with --resume")


@dataclass(frozen=True)
class Trial:
    """Trial that builds the learner of a scenario once before any run begins."""

    planned: Planned

    def __call__(self, board: Board) -> Done:
        """Build it."""
        try:
            with name_source(f"variant {self.planned.variant}"):
                build(self.planned.scenario)
        except UserError as error:
            return Done(error=str(error))
        return Done()

"""Workers that simulate the runs of a sweep: this process, or processes of this machine, each of which may be killed.

Runs report their progress, and learn that they are to stop, over a `Board`. `scenarios.sweeps.cluster` has workers on other
machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from netsim.core.protocols import IntArray
from netsim.records import atomic
from scenarios.workers.processes import (
    Killed,
    Place,
    end,
    give_back,
    reason_of,
    share_of_cores,
    start,
    submit,
    take_all,
    take_executor,
)
from scenarios.workers.scratch import scratch_folder

_STOP = -1
"""Index of the request to stop in the array of rounds: 1 after a request, otherwise 0."""
_WAITS = "waits-"
"""Prefix of the files in which runs report what they wait for; the number of the run follows."""


class Board(Protocol):
    """Connection between a sweep and a run in progress; it is sent to the worker with the run."""

    own_process: bool
    """True if a process serves only this run."""

    def report_rounds(self, rounds: int) -> None:
        """Report the number of rounds done."""

    def wait_reporter(self) -> Callable[[str], None]:
        """Return a function that reports what the run waits for, as text; an empty text ends the wait. Any thread may call it."""

    def is_stopped(self) -> bool:
        """Return True if the sweep is to end."""

    def scratch(self) -> str | None:
        """Return a folder for temporary files of the run; None: the system's. Its creator removes it."""


Work = Callable[[Board], Any]
"""Function that simulates a run in a worker. Its result is sent back."""


class SweepProgress(NamedTuple):
    """Progress of the runs of a sweep."""

    rounds: list[int]
    """The rounds done of every run."""
    waits: dict[int, str]
    """Descriptions of what runs with a long round wait for, by number of the run."""


class Workers(Protocol):
    """Workers of a sweep. Each run is submitted to a worker, and its result comes back once, in any order."""

    count: int
    """Number of runs that can be simulated at a time."""

    def free_places(self) -> int:
        """Return the number of runs that can be submitted now."""

    def submit(self, index: int, work: Work) -> None:
        """Give the run with the number `index` to a worker."""

    def collect(self, wait_s: float) -> list[tuple[int, Any]]:
        """Return the runs that ended since the last call, each number with its result, or with `Killed`.

        It waits for the first one, at most `wait_s` seconds. An exception that the work of a run raises is raised here.
        """

    def progress(self) -> SweepProgress:
        """Return the progress of the runs."""

    def mark_complete(self, index: int, rounds: int) -> None:
        """Show a run as complete, with all its `rounds` done."""

    def stop(self) -> None:
        """Ask the runs in progress to stop."""

    def check_reach(self, folder: Path) -> None:
        """Raise UserError unless the workers can reach the existing `folder`."""


class _MemoryBoard:
    """Board of a run in this process."""

    own_process = False

    def __init__(self, rounds: IntArray, waits: dict[int, str], index: int) -> None:
        self._rounds, self._waits, self._index = rounds, waits, index

    def report_rounds(self, rounds: int) -> None:
        self._rounds[self._index] = rounds

    def wait_reporter(self) -> Callable[[str], None]:
        return lambda text: self._waits.__setitem__(self._index, text)

    def is_stopped(self) -> bool:
        return bool(self._rounds[_STOP])

    def scratch(self) -> str | None:
        return None


class InThisProcess:
    """Workers of a sweep without other processes: runs are simulated one after the other, in this process."""

    count = 1

    def __init__(self, runs: int) -> None:
        self._rounds = np.zeros(runs + 1, np.int64)
        self._waits: dict[int, str] = {}
        self._done: list[tuple[int, Any]] = []

    def free_places(self) -> int:
        return 1 - len(self._done)

    def submit(self, index: int, work: Work) -> None:
        """Simulate the run now; `collect` returns its result."""
        self._done.append((index, work(_MemoryBoard(self._rounds, self._waits, index))))

    def collect(self, wait_s: float) -> list[tuple[int, Any]]:
        done, self._done = self._done, []
        return done

    def progress(self) -> SweepProgress:
        return SweepProgress(self._rounds[:_STOP].tolist(), {index: text for index, text in list(self._waits.items()) if text})

    def mark_complete(self, index: int, rounds: int) -> None:
        self._rounds[index] = rounds

    def stop(self) -> None:
        self._rounds[_STOP] = 1

    def check_reach(self, folder: Path) -> None:
        """Do nothing: this process can reach the folder."""


@cache
def _shared_rounds(file: str) -> Any:
    """Return the array of rounds in a shared file: one entry a run, and a last one for `_STOP`. Opened once a process."""
    return np.memmap(file, np.int64, "r+")


@dataclass(frozen=True)
class _FileBoard:
    """Board of a run in a process of this machine. All processes share a file with the rounds of each run."""

    file: str
    index: int
    own_process: ClassVar[bool] = True

    def report_rounds(self, rounds: int) -> None:
        _shared_rounds(self.file)[self.index] = rounds

    def wait_reporter(self) -> Callable[[str], None]:
        """Return a function that reports through a file of this run: processes share no memory for texts."""
        file = Path(self.file).with_name(f"{_WAITS}{self.index}")

        def report(text: str) -> None:
            """Write what the run waits for into its file, which `Processes.progress` reads; an empty text removes the file."""
            # The watching thread calls this, and an error would end that thread silently. A full disk must not end the run.
            with suppress(OSError):
                if text:
                    atomic.write(file, text.encode())
                else:
                    file.unlink(missing_ok=True)

        return report

    def is_stopped(self) -> bool:
        return bool(_shared_rounds(self.file)[_STOP])

    def scratch(self) -> str | None:
        return str(Path(self.file).parent)


class Processes:
    """Processes of this machine, one for each run in progress, so that a killed process ends only one run."""

    def __init__(self, count: int, runs: int, scratch: str, modules: tuple[str, ...]) -> None:
        self.count = count
        self._scratch, self._modules = scratch, modules
        self._file = str(Path(scratch) / "rounds")
        self._rounds = np.memmap(self._file, np.int64, "w+", shape=(runs + 1,))
        self._threads = share_of_cores(count)
        self._free = [take_executor(self._threads, modules) for _ in range(count)]
        self._busy: dict[int, Any] = {}
        self._done: SimpleQueue[tuple[int, Any]] = SimpleQueue()

    def free_places(self) -> int:
        return len(self._free)

    def submit(self, index: int, work: Work) -> None:
        """Give the run to a free process, which it has for itself; replace the process if it was killed while idle."""
        from joblib.externals.loky.process_executor import BrokenProcessPool, ShutdownExecutorError

        executor = self._free.pop()
        arguments = (_do_work, Place.here(), work, _FileBoard(self._file, index))
        try:
            future = submit(executor, *arguments)
        except (BrokenProcessPool, ShutdownExecutorError):  # the process was killed while it was idle
            executor = start(self._threads, self._modules)
            future = submit(executor, *arguments)
        self._busy[index] = executor
        future.add_done_callback(lambda done: self._done.put((index, done)))

    def collect(self, wait_s: float) -> list[tuple[int, Any]]:
        """Return the runs that ended, each with its result or `Killed`; a killed process is replaced by a new one."""
        from joblib.externals.loky.process_executor import BrokenProcessPool

        results = []
        for index, future in take_all(self._done, wait_s):
            executor = self._busy.pop(index)
            try:
                results.append((index, future.result()))
            except BrokenProcessPool as error:  # the process was killed during the run
                end(executor)
                executor = start(self._threads, self._modules)
                results.append((index, Killed(reason_of(error))))
            self._free.append(executor)
        return results

    def progress(self) -> SweepProgress:
        waits = {}
        for file in Path(self._scratch).glob(f"{_WAITS}*"):
            with suppress(OSError):  # the round has closed meanwhile, and its file is gone
                waits[int(file.name.removeprefix(_WAITS))] = file.read_text(encoding="utf-8")
        return SweepProgress(self._rounds[:_STOP].tolist(), waits)

    def mark_complete(self, index: int, rounds: int) -> None:
        self._rounds[index] = rounds

    def stop(self) -> None:
        self._rounds[_STOP] = 1

    def check_reach(self, folder: Path) -> None:
        """Do nothing: processes of this machine can reach the folder."""

    def close(self) -> None:
        """Release the processes: busy ones end at once, idle ones wait for the next sweep."""
        for executor in self._busy.values():
            end(executor)
        give_back(self._threads, self._free)
        self._busy, self._free = {}, []


@contextmanager
def open_processes(count: int, runs: int, *, modules: Iterable[str] = ()) -> Iterator[Workers]:
    """Open `count` workers for a number of `runs`: processes of this machine, or this process if `count` is 1.

    `modules`: modules that the runs need. All processes import them in parallel as they start, not at their first run.
    """
    if count == 1:
        yield InThisProcess(runs)
        return
    with scratch_folder() as scratch:
        workers = Processes(count, runs, scratch, tuple(modules))
        try:
            yield workers
        finally:
            workers.close()


def _do_work(place: Place, work: Work, board: Board) -> Any:
    """Return the result of `work`, done in the working folder and with the import paths of the process that submitted it."""
    place.enter()
    return work(board)

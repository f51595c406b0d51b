"""Workers that simulate the runs of a sweep: this process, or others of this machine, any of which may be killed.

Runs tell how far they are, and are told to stop, over a `Board`. Workers on other machines: `scenarios.sweeps.cluster`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from netsim.core.collector import resting
from netsim.records import atomic
from scenarios.runs.interrupts import ignore_interrupts, out_of_reach
from scenarios.runs.safe_path import SAFE_PATH, safe_path
from scenarios.runs.scratch import scratch_folder

_STOP = -1
"""Place of the request to stop among the counts."""
_WAITS = "waits-"
"""Prefix of the files in which runs tell what they wait for; the number of the run follows."""
_LOOK_S = 0.25
"""Seconds between two checks of a worker that its parent process is still there."""
_IDLE_S = 300
"""Seconds that a worker waits for the next sweep of the same process."""
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class Board(Protocol):
    """Line between a sweep and a run under way; it travels to the worker with the run."""

    own_process: bool
    """True if a process is there for this run alone while it lasts."""

    def tell(self, rounds: int) -> None:
        """Report the number of rounds done."""

    def speaker(self) -> Callable[[str], None]:
        """Return a function that reports, from any thread, what the run waits for; an empty text ends the wait."""

    def is_stopped(self) -> bool:
        """Return True if the sweep is to end."""

    def scratch(self) -> str | None:
        """A folder for what is needed only as long as the run lasts; None: the system's own. Its maker removes it."""


Work = Callable[[Board], Any]
"""A run to simulate; what it returns goes back."""


@dataclass(frozen=True)
class Killed:
    """In place of what a run returns: its worker came to an end in the midst of it."""

    reason: str


class Standing(NamedTuple):
    """Progress of the runs of a sweep."""

    rounds: list[int]
    """The rounds done of every run."""
    waits: dict[int, str]
    """Reasons of runs whose present round takes long, by number of the run."""


class Workers(Protocol):
    """Workers of a sweep. Each run is given to one of them and comes back once, in any order."""

    count: int
    """Number of runs that can be under way at a time."""

    def room(self) -> int:
        """Return the number of runs that can be submitted now."""

    def submit(self, index: int, work: Work) -> None:
        """Give the run number `index` to a worker."""

    def collect(self, wait_s: float) -> list[tuple[int, Any]]:
        """The runs that came back since the last call, after at most `wait_s` seconds, each with what it returned, or `Killed`.

        Raises whatever a run raised: what is expected of a run it returns.
        """

    def standing(self) -> Standing:
        """Return the progress of the runs."""

    def complete(self, index: int, rounds: int) -> None:
        """Count a run as done that need not be simulated."""

    def stop(self) -> None:
        """Tell the runs that are under way to end."""

    def require(self, folder: Path) -> None:
        """Raise UserError unless the workers reach `folder`, which is there."""


class _InMemory:
    own_process = False

    def __init__(self, counts: Any, waits: dict[int, str], index: int) -> None:
        self._counts, self._waits, self._index = counts, waits, index

    def tell(self, rounds: int) -> None:
        self._counts[self._index] = rounds

    def speaker(self) -> Callable[[str], None]:
        return lambda text: self._waits.__setitem__(self._index, text)

    def is_stopped(self) -> bool:
        return bool(self._counts[_STOP])

    def scratch(self) -> str | None:
        return None


class InThisProcess:
    """One run after the other, in this process."""

    count = 1

    def __init__(self, runs: int) -> None:
        self._counts = np.zeros(runs + 1, np.int64)
        self._waits: dict[int, str] = {}
        self._done: list[tuple[int, Any]] = []

    def room(self) -> int:
        return 1 - len(self._done)

    def submit(self, index: int, work: Work) -> None:
        self._done.append((index, work(_InMemory(self._counts, self._waits, index))))

    def collect(self, wait_s: float) -> list[tuple[int, Any]]:
        done, self._done = self._done, []
        return done

    def standing(self) -> Standing:
        return Standing(self._counts[:_STOP].tolist(), {index: text for index, text in list(self._waits.items()) if text})

    def complete(self, index: int, rounds: int) -> None:
        self._counts[index] = rounds

    def stop(self) -> None:
        self._counts[_STOP] = 1

    def require(self, folder: Path) -> None:
        """It is this process that reaches it."""


@cache
def _counts(file: str) -> Any:
    return np.memmap(file, np.int64, "r+")


@dataclass(frozen=True)
class _InFile:
    """A board of processes that share a file of counts."""

    file: str
    index: int
    own_process: ClassVar[bool] = True

    def tell(self, rounds: int) -> None:
        _counts(self.file)[self.index] = rounds

    def speaker(self) -> Callable[[str], None]:
        place = Path(self.file).with_name(f"{_WAITS}{self.index}")

        def say(text: str) -> None:
            # In a thread of its own, which an error would end unheard; a full disk keeps no run from its end.
            with suppress(OSError):
                if text:
                    atomic.write(place, text.encode())
                else:
                    place.unlink(missing_ok=True)

        return say

    def is_stopped(self) -> bool:
        return bool(_counts(self.file)[_STOP])

    def scratch(self) -> str | None:
        return str(Path(self.file).parent)


class Processes:
    """Processes of this machine, one for each run under way, so that one which is killed takes no other run with it."""

    def __init__(self, count: int, runs: int, scratch: str, modules: tuple[str, ...]) -> None:
        self.count = count
        self._scratch, self._modules = scratch, modules
        self._file = str(Path(scratch) / "rounds")
        self._shown = np.memmap(self._file, np.int64, "w+", shape=(runs + 1,))
        self._free = [_waiting(count) or _start(count, modules) for _ in range(count)]
        self._busy: dict[int, Any] = {}
        self._done: SimpleQueue[tuple[int, Any]] = SimpleQueue()

    def room(self) -> int:
        return len(self._free)

    def submit(self, index: int, work: Work) -> None:
        from joblib.externals.loky.process_executor import BrokenProcessPool, ShutdownExecutorError

        executor = self._free.pop()
        at_work = (_work_at, Place.here(), work, _InFile(self._file, index))
        try:
            future = _submit(executor, *at_work)
        except (BrokenProcessPool, ShutdownExecutorError):  # killed while it waited
            executor = _start(self.count, self._modules)
            future = _submit(executor, *at_work)
        self._busy[index] = executor
        future.add_done_callback(lambda future: self._done.put((index, future)))

    def collect(self, wait_s: float) -> list[tuple[int, Any]]:
        from joblib.externals.loky.process_executor import BrokenProcessPool

        found = []
        for index, future in take_all(self._done, wait_s):
            executor = self._busy.pop(index)
            try:
                found.append((index, future.result()))
            except BrokenProcessPool as error:
                executor.shutdown(wait=False, kill_workers=True)
                executor = _start(self.count, self._modules)
                found.append((index, Killed(_why(error))))
            self._free.append(executor)
        return found

    def standing(self) -> Standing:
        waits = {}
        for place in Path(self._scratch).glob(f"{_WAITS}*"):
            with suppress(OSError):  # its round has closed meanwhile
                waits[int(place.name.removeprefix(_WAITS))] = place.read_text(encoding="utf-8")
        return Standing(self._shown[:_STOP].tolist(), waits)

    def complete(self, index: int, rounds: int) -> None:
        self._shown[index] = rounds

    def stop(self) -> None:
        self._shown[_STOP] = 1

    def require(self, folder: Path) -> None:
        """They are on this machine."""

    def close(self) -> None:
        """Let go of the processes: those at work end at once, the others wait for the next sweep."""
        for executor in self._busy.values():
            executor.shutdown(wait=False, kill_workers=True)
        _WAITING.setdefault(_settings(self.count), []).extend(self._free)
        self._busy, self._free = {}, []


def take_all(queue: SimpleQueue[tuple[int, Any]], wait_s: float) -> Iterator[tuple[int, Any]]:
    """Yield the content of a queue, after at most `wait_s` seconds."""
    try:
        yield queue.get(timeout=wait_s)
        while True:
            yield queue.get_nowait()
    except Empty:
        return


def _why(error: BaseException) -> str:
    """Return the reason of the end of a process, in words."""
    text = str(error)
    signals = text.partition("{")[2].partition("}")[0]
    return f"its process was killed ({signals or 'by the system, for instance for want of memory'})"


@contextmanager
def processes(count: int, runs: int, *, modules: Iterable[str] = ()) -> Iterator[Workers]:
    """`count` workers for so many `runs`: processes of this machine, or for one worker this process.

    `modules`: what the runs need, which all processes import at once, as they start, and not each as its first run begins.
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


_WAITING: dict[tuple[object, ...], list[Any]] = {}
"""Executors of one process each that wait for the next sweep, by what they were started with."""


def _settings(count: int) -> tuple[object, ...]:
    return (os.getpid(), count, tuple(sorted(os.environ.items())))


def _waiting(count: int) -> Any | None:
    """An executor that an earlier sweep let go of, None where there is none."""
    waiting = _WAITING.get(_settings(count))
    return waiting.pop() if waiting else None


def _start(count: int, modules: tuple[str, ...]) -> Any:
    """An executor with one process, which starts now, and imports `modules` first."""
    # A worker's libraries take its share of the cores, no more.
    threads = str(max((os.cpu_count() or 1) // count, 1))
    env = {name: os.environ.get(name, threads) for name in _THREADS} | SAFE_PATH
    with safe_path():  # for the helper processes, too, which `env` does not reach: the import of joblib starts the first
        from joblib.externals.loky.process_executor import ProcessPoolExecutor

        executor = ProcessPoolExecutor(1, timeout=_IDLE_S, initializer=_attend, initargs=(os.getpid(),), env=env)
        _submit(executor, _import, modules)
    return executor


def _submit(executor: Any, *work: Any) -> Any:
    """The future of what an executor is given to do; its process starts with the first, and again where it was idle for long."""
    with safe_path(), out_of_reach():
        return executor.submit(*work)


def _import(modules: tuple[str, ...]) -> None:
    with resting():
        for name in modules:
            import_module(name)


@dataclass(frozen=True)
class Place:
    """Folder and `sys.path` of a process, by which it finds relative paths and modules of the user's own."""

    folder: str
    path: tuple[str, ...]

    @classmethod
    def here(cls) -> Place:
        """That of this process."""
        return cls(os.getcwd(), tuple(sys.path))

    def enter(self) -> None:
        """Let this process work there; raises OSError where there is no such folder."""
        if os.getcwd() != self.folder:
            os.chdir(self.folder)
        sys.path += [entry for entry in self.path if entry not in sys.path]


def _work_at(place: Place, work: Work, board: Board) -> Any:
    """Do `work` as if in the process that asks for it."""
    place.enter()
    return work(board)


def _attend(parent: int) -> None:
    """Watch, in a worker, whether the process that it works for is still there, and leave Ctrl-C to it."""
    ignore_interrupts()
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    # A process whose parent has ended is given another one.
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(1)

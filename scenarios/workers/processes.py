"""Processes of this machine, each an executor by itself, so that one which is killed takes no other work with it.

The runs of a sweep (`scenarios.sweeps.workers`) and the training of one run (`scenarios.workers.training`) use them.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any, ClassVar

from netsim.core.collector import pause_collector
from scenarios.workers.interrupts import ignore_interrupts, out_of_reach
from scenarios.workers.safe_path import SAFE_PATH, safe_path

_LOOK_S = 0.25
"""Seconds between two checks by which a worker sees that its parent process still exists."""
_IDLE_S = 300
"""Seconds that a worker waits for the next work of the same process."""
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


@dataclass(frozen=True)
class Killed:
    """Result in place of a work's own: its worker died."""

    reason: str
    seconds: ClassVar[float] = 0.0
    """0: nothing was computed."""


def take_all(queue: SimpleQueue[tuple[int, Any]], wait_s: float) -> Iterator[tuple[int, Any]]:
    """Yield the content of a queue, after at most `wait_s` seconds."""
    try:
        yield queue.get(timeout=wait_s)
        while True:
            yield queue.get_nowait()
    except Empty:
        return


def reason_of(error: BaseException) -> str:
    """Return the reason of the end of a process, in words."""
    text = str(error)
    signals = text.partition("{")[2].partition("}")[0]
    return f"its process was killed ({signals or 'by the system, for instance for want of memory'})"


def ends_of_process() -> tuple[type[BaseException], ...]:
    """Return the classes of errors that an executor raises because its process has come to an end."""
    from joblib.externals.loky.process_executor import BrokenProcessPool, ShutdownExecutorError

    return BrokenProcessPool, ShutdownExecutorError


_IDLE: dict[tuple[object, ...], list[Any]] = {}
"""Idle executors of one process each, by the parameters of their start."""


def _settings(threads: int) -> tuple[object, ...]:
    return (os.getpid(), threads, tuple(sorted(os.environ.items())))


def share_of_cores(count: int) -> int:
    """Return the threads of each of `count` processes, so that together they use all cores once."""
    return max((os.cpu_count() or 1) // count, 1)


def take_executor(threads: int, modules: tuple[str, ...]) -> object:
    """Return an executor of one process: an idle one (see `give_back`), or a new one from `start`.

    Idle executors whose process was killed are dropped on the way.
    """
    idle = _IDLE.get(_settings(threads), [])
    while idle:
        executor = idle.pop()
        if _answers(executor):
            return executor
    return start(threads, modules)


def _answers(executor: Any) -> bool:
    """Return True if the process of an idle executor lives. Its executor may not have seen yet that it was killed."""
    with suppress(*ends_of_process()):
        submit(executor, os.getpid).result()
        return True
    return False


def give_back(threads: int, executors: list[Any]) -> None:
    """Keep idle executors, which were started with `threads` threads, for the next work."""
    _IDLE.setdefault(_settings(threads), []).extend(executors)


def start(threads: int, modules: tuple[str, ...]) -> Any:
    """Return an executor with one process, which starts now, and imports `modules` first; its libraries use `threads`."""
    env = {name: os.environ.get(name, str(threads)) for name in _THREADS} | SAFE_PATH
    with safe_path():  # for the helper processes, too, which `env` does not reach: the import of joblib starts the first
        from joblib.externals.loky.process_executor import ProcessPoolExecutor

        executor = ProcessPoolExecutor(1, timeout=_IDLE_S, initializer=_attend, initargs=(os.getpid(),), env=env)
        submit(executor, _import, modules)
    return executor


def submit(executor: Any, *work: Any) -> Any:
    """Submit work to an executor; return its future. The process starts with the first work, and again after a long idle time."""
    with safe_path(), out_of_reach():
        return executor.submit(*work)


def end(executor: Any) -> None:
    """Kill the process of an executor."""
    executor.shutdown(wait=False, kill_workers=True)


def _import(modules: tuple[str, ...]) -> None:
    with pause_collector():
        for name in modules:
            import_module(name)


@dataclass(frozen=True)
class Place:
    """Folder and `sys.path` of a process, by which it finds relative paths and modules of the user's own."""

    folder: str
    path: tuple[str, ...]

    @classmethod
    def here(cls) -> Place:
        """Return the folder and path of this process."""
        return cls(os.getcwd(), tuple(sys.path))

    def enter(self) -> None:
        """Make this process use the folder and path; raises OSError if there is no such folder."""
        if os.getcwd() != self.folder:
            os.chdir(self.folder)
        sys.path += [entry for entry in self.path if entry not in sys.path]


def _attend(parent: int) -> None:
    """Watch, in a worker, whether the process that it works for is still there, leave Ctrl-C to it, and let the worker grow."""
    from joblib.externals.loky import process_executor

    ignore_interrupts()
    # loky takes 300 MB more than at the start for a leak, warns, and replaces the process. Here they are the run's data.
    process_executor._MAX_MEMORY_LEAK_SIZE = sys.maxsize
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    # A process whose parent has ended gets another parent.
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(1)

"""Tasks in a process of their own, each with a time limit: one that hangs, or ends its process, is told from one that fails."""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

HUNG, DIED = "hung", "died"


def outcomes(
    task: Callable[[int], Any], numbers: Iterable[int], *, limit_s: float, memory_gib: float = 8.0, each: int = 1000
) -> Iterator[tuple[int, Any]]:
    """(number, what `task` returned for it) of all `numbers`, one after the other in one process at a time.

    HUNG in place of an answer that does not come within `limit_s` of the process's CPU time, or twenty times as long by the wall
    clock; (DIED, exit code) where the process ended. The process is a new one after each of these, and after `each` tasks.
    """
    context = multiprocessing.get_context("spawn")
    worker: Any = None
    done = 0
    for number in numbers:
        if worker is None:
            here, there = context.Pipe()
            worker = context.Process(target=_work, args=(task, there, memory_gib), daemon=True)
            worker.start()
            there.close()
            assert here.recv() == "ready"
            done = 0
        here.send(number)
        try:
            answer = here.recv() if _answers(here, worker.pid, limit_s) else HUNG
        except (EOFError, ConnectionResetError):
            worker.join()
            answer = (DIED, worker.exitcode)
        yield number, answer
        done += 1
        if answer == HUNG or (isinstance(answer, tuple) and answer[0] == DIED) or done >= each:
            worker.kill()
            worker.join()
            worker = None
    if worker is not None:
        worker.kill()
        worker.join()


def answered(
    task: Callable[[int], dict[str, str]], numbers: Iterable[int], *, limit_s: float
) -> Iterator[tuple[int, dict[str, str]]]:
    """What `task` says of each of `numbers`; of one that hung or whose process ended, that, as an answer of the same form."""
    for number, answer in outcomes(task, numbers, limit_s=limit_s):
        if answer == HUNG:
            yield number, {"kind": "hung", "about": f"{limit_s:.0f} s"}
        elif isinstance(answer, tuple) and answer[0] == DIED:
            yield number, {"kind": "died", "about": f"exit code {answer[1]}"}
        else:
            yield number, answer


def _answers(connection: Connection, process: int, limit_s: float) -> bool:
    """Whether an answer comes before the limit; other processes may keep ours from the processor."""
    started, before_s = time.monotonic(), cpu_s(process)
    while time.monotonic() - started < 20 * limit_s and cpu_s(process) - before_s < limit_s:
        if connection.poll(0.5):
            return True
    return False


def cpu_s(process: int) -> float:
    """Seconds of a processor that a process has taken by now."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0  # it has ended, which its connection tells
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def errand(number: int) -> int:
    """A task that hangs, ends its process, or answers, to see how that is told."""
    while number == 1:
        pass
    if number == 2:
        os._exit(5)
    return number**2


def _work(task: Callable[[int], Any], connection: Connection, memory_gib: float) -> None:
    most = int(memory_gib * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection.send("ready")
    while True:
        try:
            number = connection.recv()
        except EOFError:
            return
        connection.send(task(number))

"""Attempts of a sweep's runs: each is simulated once, and again if its worker was killed; and their progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from scenarios.sweeps.workers import SweepProgress, Work, Workers
from scenarios.workers.calls import call_every
from scenarios.workers.interrupts import StopRequest
from scenarios.workers.processes import Killed

RETRIES = 2
"""Number of times that a run whose worker was killed is simulated again."""
_WAIT_S = 0.2


def attempt_all(
    workers: Workers,
    runs: Iterable[int],
    work: Callable[[int], Work],
    stop: StopRequest,
    *,
    retries: int,
    on_loss: Callable[[int, Killed, bool], None],
) -> Iterator[tuple[int, Any]]:
    """Submit all `runs` to the workers; yield each number with its result, in any order.

    `work(number)`: called for each attempt; returns the work of a run. `on_loss(number, killed, again)`: called when a worker
    is killed; the run is simulated again at most `retries` times, and then yields `Killed`. After `stop` no further run begins;
    runs under way still yield a result, the others none.
    """
    waiting = deque(runs)
    attempts = dict.fromkeys(waiting, 0)
    under_way: set[int] = set()
    while under_way or (waiting and not stop.asked):
        while waiting and workers.room() and not stop.asked:
            index = waiting.popleft()
            attempts[index] += 1
            under_way.add(index)
            workers.submit(index, work(index))
        if stop.asked:
            stop.settle()  # the workers stop their runs; the time depends on their present steps
        for index, result in workers.collect(_WAIT_S):
            under_way.remove(index)
            if isinstance(result, Killed):
                again = attempts[index] <= retries and not stop.asked
                on_loss(index, result, again)
                if again:
                    waiting.appendleft(index)
                    continue
            yield index, result


@contextmanager
def watching(workers: Workers, progress: Callable[[SweepProgress], None] | None, stop: StopRequest) -> Iterator[None]:
    """Report progress to `progress`, and requests to stop to the workers, several times a second within the block."""

    def watch() -> None:
        if stop.asked:
            workers.stop()
        if progress is not None:
            progress(workers.standing())

    try:
        with call_every(_WAIT_S, watch):
            yield
    finally:
        if progress is not None:
            progress(workers.standing())

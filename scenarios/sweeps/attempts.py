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
"""Seconds between two reports of progress, and longest wait for results."""


def attempt_all(
    workers: Workers,
    runs: Iterable[int],
    work: Callable[[int], Work],
    stop: StopRequest,
    *,
    retries: int,
    on_loss: Callable[[int, Killed, bool], None],
) -> Iterator[tuple[int, Any]]:
    """Submit all `runs`, given by their numbers, to the workers. Yield each number with its result, in any order.

    `work(number)`: function that returns the work of a run; called once for each attempt. `on_loss(number, killed, again)`:
    called when a worker is killed. The run is then simulated again, at most `retries` times, before it yields `Killed`. After
    a request to `stop` no further run begins: runs in progress still yield a result, the others yield none.
    """
    waiting = deque(runs)
    attempts = dict.fromkeys(waiting, 0)
    in_progress: set[int] = set()
    while in_progress or (waiting and not stop.asked):
        while waiting and workers.free_places() and not stop.asked:
            index = waiting.popleft()
            attempts[index] += 1
            in_progress.add(index)
            workers.submit(index, work(index))
        if stop.asked:
            stop.let_end()  # no interrupt here: the workers end their present steps first, however long these take
        for index, result in workers.collect(_WAIT_S):
            in_progress.remove(index)
            if isinstance(result, Killed):
                again = attempts[index] <= retries and not stop.asked
                on_loss(index, result, again)
                if again:
                    waiting.appendleft(index)
                    continue
            yield index, result


@contextmanager
def relay_progress(workers: Workers, progress: Callable[[SweepProgress], None] | None, stop: StopRequest) -> Iterator[None]:
    """Within the block, call `progress` with the state of the runs several times a second, and pass `stop` on to the workers."""

    def relay() -> None:
        """Callback several times a second: pass a stop on, and report the progress."""
        if stop.asked:
            workers.stop()
        if progress is not None:
            progress(workers.progress())

    try:
        with call_every(_WAIT_S, relay):
            yield
    finally:
        if progress is not None:
            progress(workers.progress())

"""The clock of a run: a SimPy environment with a light path for timed callbacks.

A message in flight is an event with one callback, not a process and not a Store: a process for each message costs several times
as much, a Store for each mailbox about ten times (see the benchmark of the message path).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import Any

from simpy import Environment
from simpy.events import Event

FIRST, NORMAL, LAST = 0, 1, 2
"""Priorities among events of one instant; within a priority they fire in scheduling order."""


class Call(Event):
    """A callback on its way: `fn(call)` at its time, with whatever it carries in `payload`."""

    def __init__(self, clock: Clock, time_s: float, fn: Callable[[Call], None], payload: Any, priority: int) -> None:
        # Event.__init__ is not called: it would only set these to "not yet triggered", and this path carries every message.
        self.env = clock
        self.callbacks = [fn]
        self._value = payload
        self._ok = True
        # SimPy schedules by delay alone; an absolute time must arrive exactly, since now + (t - now) need not equal t.
        entry: Any = (time_s, priority, next(clock._eid), self)
        heappush(clock._queue, entry)

    @property
    def payload(self) -> Any:
        """What was given to `call_at`."""
        return self._value


class Clock(Environment):
    """Simulated seconds, from `start_s` on."""

    def __init__(self, start_s: float = 0.0) -> None:
        super().__init__(initial_time=start_s)

    def start_at(self, time_s: float) -> None:
        """Set the clock of a run that goes on from a saved state; raises ValueError once anything is scheduled."""
        if self._queue:
            raise ValueError(f"time_s = {time_s!r}: the clock can be set only while nothing is scheduled")
        self._now = time_s

    def call_at(self, time_s: float, fn: Callable[[Call], None], payload: Any = None, priority: int = NORMAL) -> Call:
        """Call `fn` at `time_s`; raises ValueError for a time that has passed."""
        if not time_s >= self._now:
            raise ValueError(f"time_s = {time_s!r}: must be at or after the present time {self._now} s")
        return Call(self, time_s, fn, payload, priority)

    def call_in(self, delay_s: float, fn: Callable[[Call], None], payload: Any = None) -> Call:
        """Call `fn` after `delay_s` seconds; raises ValueError for a negative delay."""
        if not delay_s >= 0:
            raise ValueError(f"delay_s = {delay_s!r}: must be >= 0 seconds")
        return Call(self, self._now + delay_s, fn, payload, NORMAL)

"""The clock of a run: a SimPy environment with a light path for timed calls.

A message in flight is an entry of the event queue, (time, priority, number, function, payload), beside SimPy's own entries: no
event object, no process, no Store. A process for each message costs several times as much, a Store for each mailbox about ten
times (see the benchmark of the message path).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Sequence
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

from simpy import Environment
from simpy.events import Event as Event
from simpy.events import EventPriority

from netsim.core.errors import ParameterError

# The order of events at one instant, on which every tie in a run depends:
# 1. BEFORE_ALL: acts of a script, which hold for everything else of the instant.
# 2. FIRST: what ends or leaves: flows, bytes on carriers, clients that move. What ends now does not meet what begins now.
# 3. NORMAL: ends of steps, arrivals of messages, beginnings.
# 4. LAST: what must see the whole instant: deadlines (an update exactly at the deadline is in time), closes, new rates of flows.
BEFORE_ALL, FIRST, NORMAL, LAST = -1, 0, 1, 2
"""Priorities among events of one instant; within a priority they fire in scheduling order. BEFORE_ALL is a script's alone."""
ResultT = TypeVar("ResultT")
Process: TypeAlias = Generator[Event, Any, ResultT]
"""A process of the clock, or a part of one: it yields events to wait for, and returns a result."""
_CALL = 5
"""Length of the queue's entries of timed calls: (time, priority, number, function, payload). Entries of SimPy's events are
shorter.
"""


class NothingScheduledError(RuntimeError):
    """Error: no event is left on the clock that could end a wait."""


class EventLimitError(Exception):
    """Error: a simulation reached its limit of events."""


class Clock(Environment):
    """Clock of simulated seconds that starts at `start_s`."""

    # SimPy's own property is a call of a Python function, which costs twice as much, ten times in a round.
    now: float = property(attrgetter("_now"), doc="The present time, seconds.")  # type: ignore[assignment]

    def __init__(self, start_s: float = 0.0) -> None:
        super().__init__(initial_time=start_s)
        self.entries: Sequence[object] = self._queue
        """All calls and events that are scheduled, as a heap."""
        self.event_limit: float = float("inf")
        """Number of events since creation above which the next step raises EventLimitError."""
        self.calling = -1
        """Number of the call that runs now, or of the last one."""

    def limit_events(self, most: float) -> None:
        """Raise EventLimitError once `most` calls have been scheduled; inf: no limit."""
        self.event_limit = most

    def start_at(self, time_s: float) -> None:
        """Set the time of a run that is resumed from a saved state. Raises ValueError if anything is scheduled already."""
        if self._queue:
            raise ParameterError("time_s", time_s, "the clock can be set only while nothing is scheduled")
        self._now = time_s

    def call_at(self, time_s: float, fn: Callable[[Any], object], payload: object = None, priority: int = NORMAL) -> int:
        """Call `fn(payload)` at `time_s`; raises ValueError for a time that has passed.

        Returns the call's number: of two calls of one instant and priority, that of the smaller number comes first.
        """
        # SimPy schedules by delay alone; an absolute time must arrive exactly, since now + (t - now) need not equal t.
        if not time_s >= self._now:
            raise ParameterError("time_s", time_s, f"must be at or after the present time {self._now} s")
        number = next(self._eid)
        entry: Any = (time_s, priority, number, fn, payload)
        heappush(self._queue, entry)
        return number

    def next_number(self) -> int:
        """Return the number of the next call or event, which it leaves free."""
        return self.reserve(0)

    def call_in(self, delay_s: float, fn: Callable[[Any], object], payload: object = None) -> int:
        """Call `fn(payload)` after `delay_s` seconds; return the call's number. Raises ValueError for a negative delay."""
        if not delay_s >= 0:
            raise ParameterError("delay_s", delay_s, "must be >= 0 seconds")
        number = next(self._eid)
        entry: Any = (self._now + delay_s, NORMAL, number, fn, payload)
        heappush(self._queue, entry)
        return number

    def reserve(self, count: int) -> int:
        """Reserve the numbers of `count` calls that `call_numbered` makes later; return the first of them."""
        # `_eid` is SimPy's counter of events. Reading it uses up a number, so begin a new one there.
        first = next(self._eid)
        self._eid = itertools.count(first + count)
        return first

    def call_numbered(self, time_s: float, number: int, fn: Callable[[Any], object], payload: object = None) -> None:
        """Call `fn(payload)` at `time_s`, not before now, under a reserved number.

        The number decides its order among the calls of an instant, as if it had been scheduled when the number was reserved.
        """
        entry: Any = (time_s, NORMAL, number, fn, payload)
        heappush(self._queue, entry)

    def event_at(self, time_s: float, priority: int = NORMAL) -> Event:
        """Return an event at `time_s` that a process can wait for; raises ValueError for a time that has passed."""
        if not time_s >= self._now:
            raise ParameterError("time_s", time_s, f"must be at or after the present time {self._now} s")
        event = Event(self)
        event._ok, event._value = True, None
        heappush(self._queue, (time_s, EventPriority(priority), next(self._eid), event))
        return event

    def step(self) -> None:
        """Process the next call or event."""
        queue: Any = self._queue
        if queue and len(queue[0]) == _CALL:
            self._now, _, self.calling, fn, payload = heappop(queue)
            fn(payload)
        else:
            super().step()

    def run_until(self, event: Event, limit_s: float = float("inf")) -> bool:
        """Run until `event` has happened and return True; return False at `limit_s` if it has not happened by then.

        Raises the exception of `event` if it fails, EventLimitError, or NothingScheduledError if no event is left.
        """
        queue: Any = self._queue
        event_step = super().step
        event_limit = self.event_limit
        event.defused = True  # raise a failure here, before SimPy wraps it
        awaited: Any = event
        while awaited.callbacks is not None:
            if not queue:
                raise NothingScheduledError(f"nothing is scheduled any more, and {event} has not happened")
            # (time, priority, number, ...), read by index: unpacking entries of two lengths would cost more.
            entry = queue[0]
            if entry[0] > limit_s:
                self._now = limit_s
                return False
            # Events are numbered as they are scheduled, so that counting them costs no more than a comparison.
            if entry[2] >= event_limit:
                raise EventLimitError
            if len(entry) == _CALL:
                heappop(queue)
                self._now, self.calling = entry[0], entry[2]
                entry[3](entry[4])
            else:
                event_step()
        if not awaited.ok:
            raise awaited.value
        return True

    def run_process(self, process: Process[None], limit_s: float = float("inf")) -> bool:
        """Run `process`, a generator of the events that it waits for, to its end and return True; return False at `limit_s` if it
        has not ended by then. Raises what `run_until` raises.

        Fast path for a SimPy process that the caller waits for; keeps its order of events. It saves the events of the beginning
        and the end, which cost more than a round in which little happens.
        """
        # SimPy starts a process after the FIRST calls of this instant, and resumes the caller after all calls that were
        # scheduled for the instant of the end by then.
        self._run_before((self._now, FIRST, next(self._eid)))
        for event in process:
            if not self.run_until(event, limit_s):
                return False
        self._run_before((self._now, NORMAL, next(self._eid)))
        return True

    def _run_before(self, place: tuple[float, int, int]) -> None:
        """Process all entries that come before `place` (time, priority, number)."""
        # Tuples compare entry by entry, and numbers differ, so functions and payloads are never compared.
        queue: Any = self._queue
        while queue and queue[0] < place:
            if queue[0][2] >= self.event_limit:
                raise EventLimitError
            self.step()

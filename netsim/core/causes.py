"""Causes: what started an attempt, and what opened and closed a round.

The engine notes them as they come about; they are columns of the tables. A walk back over them from the last close is the
critical path of the run (`analysis.stragglers.critical_path`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from netsim.core.state import StateFields

if TYPE_CHECKING:
    from netsim.core.clock import Clock

START, OPEN, CLOSE, END, RETURN, EARLIER, SCHEDULE = "start", "open", "close", "end", "return", "earlier", "schedule"
MESSAGE, SENT, TERM = "message", "sent", "term"
"""Kinds of causes, and the number that goes with each: the start of the run (none); the opening of a round, and its close (the
round's); the end of an attempt (the attempt's); a client that came back, or had charge again (the client's); an earlier attempt
of the same update, which goes on (the attempt's); a time of the clock that does not depend on the round (none); a message of
another peer that left at the end of its attempt (MESSAGE) or at the beginning (SENT; the attempt's); a model from the node above
that has arrived at an edge (TERM; the number of the edge's attempt)."""


class Cause(NamedTuple):
    """Kind and number of the event that led to something. Time in between was set by a timer.

    >>> Cause(END, 7)
    Cause(kind='end', after=7)
    """

    kind: str
    after: int | None = None


_BY_CLOCK = Cause(SCHEDULE)


class Numbered(Protocol):
    """An attempt with a number."""

    number: int
    """Number of the attempt among those of the run, from 1."""


AttemptT = TypeVar("AttemptT", bound=Numbered)


class Causes(StateFields):
    """Latest events of a run, from which the causes of later events follow."""

    state_fields = ("opened", "opened_s", "ended", "ended_s")

    def __init__(self, clock: Clock, inexact: Iterable[str] = ()) -> None:
        self._clock = clock
        self.opened, self.opened_s = 0, -math.inf
        """Number of the round that opened last, and the time at which its first attempts could begin."""
        self._opening = Cause(OPEN, 0)
        """Cause of what the opening of this round starts."""
        self.ended, self.ended_s = 0, -math.inf
        """Number of the attempt that ended last, and the time."""
        self.returned: int | None = None
        """Client that a round waited for and that came back last, or had charge again."""
        self.closing: Cause | None = None
        """Cause of the close of the present round, once its close rule has stated it."""
        self.rule: str | None = None
        """Name of the rule that closes the present round, once known."""
        self.fixed_length = False
        """True if rounds close at times that are set before the run."""
        self.inexact = set(inexact)
        """Phases that may not end one second later if they begin one second later, such as an upload over a shared link."""
        self._attributed_cause: Cause | None = None
        """The cause of the attempts that begin within a block of `attribute_to`; None: it follows from rounds and attempts."""
        self._timers: dict[int, int] = {}
        """Number of the attempt whose end scheduled a call of the clock, by the call's number; calls of the present round only.
        """

    def on_load(self) -> None:
        """Set the cause that follows from the restored number of the round."""
        self._opening = Cause(OPEN, self.opened)

    def note_return(self, client: int | None) -> None:
        """Note the client that came back last, of those that a round waits for; None if it is not known."""
        self.returned = client

    def fix_length(self) -> None:
        """Note that rounds close at times that are set before the run."""
        self.fixed_length = True

    def open(self, number: int) -> None:
        """Note that round `number` opens now."""
        self.opened, self.opened_s, self._opening = number, self._clock.now, Cause(OPEN, number)
        self.closing = self.rule = None
        self._timers.clear()

    def end(self, attempt: AttemptT, listeners: Iterable[Callable[[AttemptT], object]]) -> None:
        """Note that `attempt` ends now, and call the `listeners` with it.

        Calls of the clock that listeners schedule count as caused by this end: their numbers are those that the clock has given
        meanwhile.
        """
        clock = self._clock
        self.ended, self.ended_s = attempt.number, clock.now
        # Compare the numbers of entries first: mostly listeners schedule no call, and asking for the next number takes longer. No
        # entry leaves the clock meanwhile.
        entries = clock.entries
        entries_before = len(entries)
        for listen in listeners:
            listen(attempt)
        added = len(entries) - entries_before
        if added:
            next_number = clock.next_number()
            self._timers |= dict.fromkeys(range(next_number - added, next_number), attempt.number)

    def close(self, cause: Cause, rule: str | None) -> None:
        """Note what closes the present round, unless a cause is noted already. Close rules call it.

        `rule`: name of the rule in a word or two, for reports; None: it has no name.
        """
        if self.closing is None:
            self.closing, self.rule = cause, rule

    def close_by_end(self, attempt: int, rule: str) -> None:
        """Note that the end of the attempt of this number closes the present round."""
        self.close(Cause(END, attempt), rule)

    def close_by_deadline(self) -> None:
        """Note that a deadline closes the present round; it was set when the round opened."""
        self.close(Cause(OPEN, self.opened), "deadline")

    def close_by_schedule(self, rule: str) -> None:
        """Note that a fixed time of the clock, independent of the round, closes the present round."""
        self.close(Cause(SCHEDULE), rule)

    def close_now(self, rule: str, otherwise: str | None = None) -> None:
        """Note that the event of this instant (`latest`) closes the present round.

        `otherwise`: name of the rule if there is no event and only the clock goes on.
        """
        cause = self.latest()
        self.close(cause, otherwise if otherwise is not None and cause.kind == SCHEDULE else rule)

    def latest(self) -> Cause:
        """Return the event of this instant: a round opens, or an attempt ends. Without one, the cause is the clock."""
        # If an end and an opening share this instant, the opening is the later one: the end has closed the round before.
        now = self._clock.now
        if self.opened_s == now:
            return self._opening
        return Cause(END, self.ended) if self.ended_s == now else _BY_CLOCK

    def timer_cause(self, set_by: Cause) -> Cause:
        """Return the cause of a close that its rule has not stated. `set_by`: value of `latest` when the rule began to wait.

        It is the opening or the end of this instant; else the end that scheduled the running call of the clock; else `set_by`,
        if that is an end.
        """
        cause = self.latest()
        if cause.kind != SCHEDULE:
            return cause
        if self._clock.calling in self._timers:
            return Cause(END, self._timers[self._clock.calling])
        return set_by if set_by.kind == END else cause

    @contextmanager
    def attribute_to(self, cause: Cause | None) -> Iterator[None]:
        """Attribute the attempts that begin within the block to `cause`; None: their cause follows from rounds and attempts."""
        self._attributed_cause = cause
        try:
            yield
        finally:
            self._attributed_cause = None

    def begin_cause(self, client: int) -> Cause:
        """Return the cause by which an attempt of `client` begins now: its round opens, an attempt made room, or the client
        came back.
        """
        return self.begin_causes((client,))[0]

    def begin_causes(self, clients: Sequence[int]) -> list[Cause]:
        """Return `begin_cause` of each of `clients` (n,), all of which begin at this instant."""
        if self._attributed_cause is not None:
            return [self._attributed_cause] * len(clients)
        cause = self.latest()
        if cause.kind == SCHEDULE:
            # Nothing has happened at this instant that made room: the clients themselves came back.
            return [Cause(RETURN, client) for client in clients]
        return [cause] * len(clients)

"""Causes: what started an attempt, and what opened and closed a round.

The engine notes them as they come about; they are columns of the tables. A walk back over them from the last close is the
critical path of the run (`analysis.stragglers.critical_path`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

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
    """Kind and number of the preceding event. Time that passes in between was set by a timer.

    >>> Cause(END, 7)
    Cause(kind='end', after=7)
    """

    kind: str
    after: int | None = None


class Numbered(Protocol):
    """An attempt."""

    number: int
    """Among the attempts of the run."""


AttemptT = TypeVar("AttemptT", bound=Numbered)


class Causes:
    """Last event of a run: the source of the causes of all that follows."""

    def __init__(self, clock: Clock, inexact: Iterable[str] = ()) -> None:
        self._clock = clock
        self.opened, self.opened_s = 0, -math.inf
        """The round that opened last, and when its first attempts could begin."""
        self.ended, self.ended_s = 0, -math.inf
        """The attempt that ended last."""
        self.returned: int | None = None
        """The client that a round waited for and that came back last, or had charge again."""
        self.closing: Cause | None = None
        """The cause of the close of the present round, once its close rule has stated it."""
        self.rule: str | None = None
        """The name of the rule that closes the present round, likewise."""
        self.fixed_length = False
        """True if rounds close at times that are set before the run."""
        self.inexact = set(inexact)
        """Phases whose end does not shift one to one with their start, such as an upload over a shared link."""
        self.released: Cause | None = None
        """The cause of attempts that begin now, where more than rounds and attempts can be one; None: it follows from these."""
        self._timers: dict[int, int] = {}
        """Calls of the clock that were scheduled as an attempt of this round ended: the attempt, by the call's number."""

    def note_return(self, client: int | None) -> None:
        """Note the client that came back last of those that a round waits for; None if several act at once and none is known."""
        self.returned = client

    def fix_length(self) -> None:
        """Note that rounds close at times that are set before the run."""
        self.fixed_length = True

    def open(self, number: int) -> None:
        """Note that round `number` opens now."""
        self.opened, self.opened_s = number, self._clock.now
        self.closing = self.rule = None
        self._timers.clear()

    def end(self, attempt: AttemptT, listeners: Iterable[Callable[[AttemptT], object]]) -> None:
        """Note that `attempt` ends now, and call the `listeners` with it; timers that they set are due to its end."""
        clock = self._clock
        self.ended, self.ended_s = attempt.number, clock.now
        scheduled = clock.pending()
        for listen in listeners:
            listen(attempt)
        added = clock.pending() - scheduled
        if added:
            following = clock.next_number()
            self._timers |= dict.fromkeys(range(following - added, following), attempt.number)

    def close(self, cause: Cause, rule: str | None) -> None:
        """Note what closes the present round, unless that is settled: close rules call it.

        `rule` names the rule in a word or two, for reports; None: it has no name.
        """
        if self.closing is None:
            self.closing, self.rule = cause, rule

    def close_by_end(self, attempt: int, rule: str) -> None:
        """Note that the end of the attempt of this number closes the present round."""
        self.close(Cause(END, attempt), rule)

    def close_by_deadline(self) -> None:
        """Note that a deadline closes the present round, which was set as it opened."""
        self.close(Cause(OPEN, self.opened), "deadline")

    def close_by_schedule(self, rule: str) -> None:
        """Note that a time of the clock closes the present round, which does not depend on the round."""
        self.close(Cause(SCHEDULE), rule)

    def close_now(self, rule: str, otherwise: str | None = None) -> None:
        """Note that what happens at this instant closes the present round.

        `otherwise` names the rule where nothing happens and only the clock goes on.
        """
        cause = self.latest()
        self.close(cause, otherwise if otherwise is not None and cause.kind == SCHEDULE else rule)

    def latest(self) -> Cause:
        """Return what happens at this instant: a round opens, or an attempt ends; otherwise only the clock goes on."""
        now = self._clock.now
        if self.opened_s == now:
            return Cause(OPEN, self.opened)
        if self.ended_s == now:
            return Cause(END, self.ended)
        return Cause(SCHEDULE)

    def timer_cause(self, set_by: Cause) -> Cause:
        """Return the cause of a close that its rule has not stated; `set_by`: `latest` as the rule began to wait.

        An end at this instant; else the end at which the call that is being made, or the wait, was scheduled.
        """
        cause = self.latest()
        if cause.kind == SCHEDULE and self._clock.calling in self._timers:
            return Cause(END, self._timers[self._clock.calling])
        return set_by if cause.kind == SCHEDULE and set_by.kind == END else cause

    def begin_cause(self, client: int, earlier: int | None = None) -> Cause:
        """Return what lets an attempt of `client` begin now: its round opens, an attempt made room, or the client came back.

        `earlier`: the attempt before, of an update that is still being made and goes on.
        """
        if earlier is not None:
            return Cause(EARLIER, earlier)
        if self.released is not None:
            return self.released
        cause = self.latest()
        return Cause(RETURN, client) if cause.kind == SCHEDULE else cause

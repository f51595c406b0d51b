"""Rules for the close of a round: all ended, the first n, a deadline; a fixed length; nothing on the air."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from netsim.clients.attempts import Ended
from netsim.clients.columns import DELIVERED, NUMBER, OUTCOME, ROUND
from netsim.core.causes import END, OPEN, Cause
from netsim.core.clock import LAST, Event, Process
from netsim.core.closing import RoundState, fold_ends, look_follows_end
from netsim.core.errors import ParameterError
from netsim.core.state import StateFields

if TYPE_CHECKING:
    from netsim.clients.attempts import Attempts
    from netsim.clients.columns import Columns
    from netsim.clients.pool import ClientPool
    from netsim.clients.update import Update
    from netsim.core.closing import Close, Closing, ClosingRule
    from netsim.core.protocols import BoolArray, Deliveries, FloatArray, State
    from netsim.servers.loop import Attempt

_EVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRule:
    """Close once all attempts have ended, `deadline_s` after the start, or at the `first`-th delivery.

    `at_least`: deliveries that a round waits for past its deadline, unless fewer can still arrive.
    """

    deadline_s: float | None = None
    first: int | None = None
    at_least: int | None = None

    def closes(self, state: RoundState) -> bool | BoolArray:
        """Return True if the round closes in this state. Ends at the very instant of the deadline are in time."""
        # Without attempts there is nothing to wait for, but a deadline.
        closes: bool | BoolArray = (state.ended == state.expected) & ((state.expected > 0) | (self.deadline_s is None))
        if self.first is not None:
            closes = closes | (state.delivered >= self.first)
        if self.deadline_s is None:
            return closes
        due_s = state.start_s + self.deadline_s
        over: bool | BoolArray = state.now_s >= due_s if state.looking else state.now_s > due_s
        if self.at_least is not None:
            can_arrive = state.delivered + (state.expected - state.ended)
            over = over & ((state.delivered >= self.at_least) | (can_arrive < self.at_least))
        return closes | over

    def name(self, state: RoundState) -> str:
        """Return the name of what closes a round in `state`."""
        if state.looking:
            return "deadline"
        enough = [count for count in (self.first, self.at_least) if count is not None]
        if enough and state.delivered >= min(enough):
            return "deliveries"
        return "all ended" if state.ended == state.expected else "too few left"

    def next_look_s(self, state: RoundState) -> float:
        """Return the time of the deadline."""
        return _EVER if self.deadline_s is None else state.start_s + self.deadline_s

    def __post_init__(self) -> None:
        if self.deadline_s is not None and not self.deadline_s > 0:
            raise ParameterError("deadline_s", self.deadline_s, "must be > 0 seconds")
        if self.first is not None and self.first < 1:
            raise ParameterError("first", self.first, "must be at least 1 delivery")
        if self.at_least is not None:
            if self.at_least < 1:
                raise ParameterError("at_least", self.at_least, "must be at least 1 delivery")
            if self.deadline_s is None:
                raise ParameterError("at_least", self.at_least, "is of rounds with a deadline; give deadline_s")
            if self.first is not None and self.first <= self.at_least:
                raise ParameterError("at_least", self.at_least, f"must be below first = {self.first}, which closes a round")


def _no_deadline(deadline_s: float) -> ParameterError:
    return ParameterError("deadline_s", deadline_s, "the rounds of this server close by no deadline")


class _OfOneRound(StateFields):
    """A round is about the attempts that were begun as it opened."""

    folds_none = False
    takes_all = False
    open_round: int | None = None
    closing: Closing | None = None

    def collect(self, attempts: Attempts) -> Attempts:
        """They themselves, in the order of selection."""
        return attempts

    def pending(self) -> Sequence[Attempt]:
        """None: what ends later is not counted for any round."""
        return ()

    def amend(self, deliveries: Deliveries) -> Deliveries:
        """All that was delivered."""
        return deliveries

    def limit(self, deadline_s: float) -> None:
        """It has no deadline."""
        raise _no_deadline(deadline_s)

    def abandon(self) -> None:
        self.open_round = None

    def open_state(self) -> State:
        return {}

    def load_open_state(self, state: State) -> None:
        return None


class WhenEnded(_OfOneRound):
    """Closes a round as `rule` says, which sees every end of an attempt that was begun in it."""

    def __init__(self, *, pool: ClientPool, rule: ClosingRule) -> None:
        self.pool = pool
        self.rule = rule
        self.closing: Closing | None = self
        self._event = pool.clock.event()
        self._state = self._foreseen = RoundState(0.0, 0, 0.0)
        """The round right after its last end, or as it opened; and so right before its close, where `fold` has found that."""
        self._last: int | None = None
        """Number of the attempt of the round that ended last; None: none has."""
        self._look_s: float | None = None
        """Time of the look that closes the round, where `fold` has found that; None: an end does."""
        self._alarm_s = _EVER
        pool.follow(self._on_end, self._on_ends)

    def open(self, number: int, start_s: float, expected: int) -> None:
        self.open_round = number
        self._state, self._last = RoundState(start_s, expected, start_s), None
        self._event = self.pool.clock.event()

    def limit(self, deadline_s: float) -> None:
        """From the next round on; raises ParameterError for a rule of a class that has no deadline."""
        if not isinstance(self.rule, WaitRule):
            raise _no_deadline(deadline_s)
        self.rule = replace(self.rule, deadline_s=deadline_s)

    def open_state(self) -> State:
        """Return what its rule has seen of the round."""
        return {"open_round": self.open_round, "state": asdict(self._state), "last": self._last}

    def load_open_state(self, state: State) -> None:
        self.open_round, self._last = state["open_round"], state["last"]
        self._state = RoundState(**state["state"])
        self._event = self.pool.clock.event()

    def fold(self, ends_s: FloatArray, delivered: BoolArray) -> Close | None:
        """Return the close of the open round as `netsim.core.closing.fold_ends` does."""
        state = self._state
        close = fold_ends(self.rule, state.start_s, ends_s, delivered)
        if close is not None:
            arrived = int(np.count_nonzero(delivered[: close.ended]))
            last_s = ends_s.item(close.ended - 1) if close.ended else state.start_s
            self._foreseen = RoundState(state.start_s, state.expected, last_s, close.ended, arrived)
            self._look_s = None if close.by_end else close.time_s
        return close

    def wait(self) -> Process[None]:
        """Wait for the close of the open round: a known time for a round that was foreseen whole, else the rule on each end."""
        whole = self.pool.whole_rounds
        if whole.closes_s is not None:
            # Last of its instant: another event of it may still turn the whole round into updates by events.
            yield self.pool.clock.event_at(whole.closes_s, LAST)
            self.open_round = None
            whole.on_close()
            self._note_close(self._foreseen, whole.last_end, self._look_s)
            return
        if not self._state.expected and self.rule.closes(self._state):
            self.pool.causes.close_now("all ended")
            self.open_round = None
            return
        self._set_alarm()
        yield self._event

    def _on_end(self, update: Update) -> None:
        if update.begun_round != self.open_round:
            return
        state = self._state
        state.now_s, state.ended, self._last = update.outcome_s, state.ended + 1, update.number
        state.delivered += update.outcome == "delivered"
        if self.rule.closes(state):
            self._close()
        else:
            self._set_alarm()

    def _on_ends(self, ended: Columns) -> None:
        mine, state = np.flatnonzero(ended.counts[ROUND] == self.open_round), self._state
        if len(mine):
            state.now_s, self._last = float(ended.column("outcome_s")[mine[-1]]), ended.counts.item(NUMBER, mine[-1])
            state.ended += len(mine)
            state.delivered += int(np.count_nonzero(ended.counts[OUTCOME, mine] == DELIVERED))

    def _set_alarm(self) -> None:
        # No alarm while an earlier one is to come: that of a round that closed early rings into a later one, and is set again.
        # Otherwise a long deadline over short rounds would fill the clock with alarms that nobody waits for.
        if self.open_round is None:
            return
        look_s = float(self.rule.next_look_s(self._state))
        if self.pool.clock.now < look_s < self._alarm_s:
            self._alarm_s = look_s
            # After everything else of that instant: who arrives exactly at the deadline is in time.
            self.pool.clock.call_at(look_s, self._ring, look_s, priority=LAST)

    def _ring(self, look_s: float) -> None:
        if look_s == self._alarm_s:
            self._alarm_s = _EVER
        state = self._state
        due = self.open_round is not None and look_s == self.rule.next_look_s(state)
        if due and self.rule.closes(replace(state, now_s=look_s, looking=True)):
            self._close(look_s)
        self._set_alarm()

    def _close(self, look_s: float | None = None) -> None:
        # At once, not when the server's process wakes: what arrives later in this very instant is late already.
        self._note_close(self._state, self._last, look_s)
        self.open_round = None
        self._event.succeed()

    def _note_close(self, state: RoundState, last: int | None, look_s: float | None) -> None:
        """Note the cause of the close: the end of attempt `last`, after which the round is in `state`; `look_s`: at a look."""
        causes, rule = self.pool.causes, self.rule
        if look_s is None:
            cause, seen = Cause(END, last), state
        else:
            # A look is a timer, which the last end has set only if it would move with that.
            by_end = last is not None and look_follows_end(rule, state)
            cause = Cause(END, last) if by_end else Cause(OPEN, causes.opened)
            seen = replace(state, now_s=look_s, looking=True)
        causes.close(cause, rule.name(seen))


class FixedLength(_OfOneRound):
    """Round t ends at t times `round_s`, counted from the run's start. `announce` is told when, as the round opens."""

    takes_all = True

    def __init__(self, *, pool: ClientPool, round_s: float, announce: Callable[[float], None]) -> None:
        self.pool = pool
        self.round_s = check_round_s(round_s)
        pool.causes.fix_length()
        self._announce = announce
        self._end_s = 0.0

    def open(self, number: int, start_s: float, expected: int) -> None:
        self._end_s = max(number * self.round_s, start_s)
        self._announce(self._end_s)

    def wait(self) -> Process[None]:
        # After everything else of that instant: who arrives exactly as the round ends is in time.
        yield self.pool.clock.event_at(self._end_s, LAST)
        self.pool.causes.close_by_schedule("fixed length")


def check_round_s(round_s: float) -> float:
    """A length of rounds, seconds; raises ValueError unless it is > 0 and finite."""
    if not 0 < round_s < _EVER:
        raise ParameterError("round_s", round_s, "must be > 0 seconds and finite")
    return round_s


class NothingOnTheAir(_OfOneRound):
    """A round is over when nothing is being sent and something was, or nobody has anything left to send.

    `wait_for_compute`: it also waits for everyone who still gets the model or computes.
    """

    takes_all = True
    _rule = "nothing on the air"

    def __init__(self, *, pool: ClientPool, wait_for_compute: bool = False) -> None:
        self.pool = pool
        self.wait_for_compute = wait_for_compute
        self._sent_before = 0
        self._closing: Event | None = None
        self._called = False
        pool.follow(self._on_end)

    def open(self, number: int, start_s: float, expected: int) -> None:
        self._sent_before = self.pool.life.uploads

    def wait(self) -> Iterable[Event]:
        if self._over():
            self.pool.causes.close_now(self._rule)
            return ()
        self._closing = self.pool.clock.event()
        return (self._closing,)

    def _over(self) -> bool:
        pool = self.pool
        if pool.life.sending:
            return False
        return (not self.wait_for_compute and pool.life.uploads > self._sent_before) or not pool.in_flight

    def _on_end(self, update: Update) -> None:
        # Not at once: who becomes ready in this very instant still belongs to the round.
        if self._closing is not None and not self._called:
            self._called = True
            self.pool.clock.call_at(self.pool.clock.now, self._close, priority=LAST)

    def _close(self, payload: None) -> None:
        self._called = False
        if self._closing is not None and self._over():
            self.pool.causes.close_now(self._rule)
            closing, self._closing = self._closing, None
            closing.succeed()

class End(NamedTuple):
    """Outcome of one attempt that has not entered a model yet."""

    client: int
    begun_round: int
    version: int
    drawn_steps: int
    budget: float
    selected_s: float
    outcome_s: float
    censored: bool
    download_start_s: float
    download_end_s: float
    compute_start_s: float
    compute_end_s: float
    upload_start_s: float
    upload_end_s: float
    samples: int | None
    steps: int | None
    bytes_down: int
    bytes_up: int


class EndsOfRound(StateFields):
    """A round is about the attempts that ended in it, whenever they began."""

    folds_none = False
    takes_all = True
    open_round: int | None = None
    closing: Closing | None = None

    def __init__(self) -> None:
        self.ends: list[Attempt] = []
        """Attempts that have ended; of a run that goes on from a saved state, as `End`."""

    def collect(self, attempts: Attempts) -> Attempts:
        """In the order in which they ended."""
        ends, self.ends = self.ends, []
        return Ended(ends)

    def pending(self) -> Sequence[Attempt]:
        """Attempts that count for a later round."""
        return self.ends

    def amend(self, deliveries: Deliveries) -> Deliveries:
        """All that was delivered."""
        return deliveries

    def limit(self, deadline_s: float) -> None:
        """It has no deadline."""
        raise _no_deadline(deadline_s)

    def abandon(self) -> None:
        self.ends.clear()

    def open_state(self) -> State:
        return {}

    def load_open_state(self, state: State) -> None:
        return None

    def state_dict(self) -> State:
        return super().state_dict() | {"ends": [{name: getattr(end, name) for name in End._fields} for end in self.ends]}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.ends = [End(**end) for end in state["ends"]]


class FixedLengthCarryOver(EndsOfRound):
    """Round t ends at t times `round_s`; an attempt that misses a close counts for the round in which it ends."""

    def __init__(self, *, pool: ClientPool, round_s: float) -> None:
        super().__init__()
        self._length = FixedLength(pool=pool, round_s=round_s, announce=lambda end_s: None)
        pool.follow(self._on_end)

    def open(self, number: int, start_s: float, expected: int) -> None:
        self._length.open(number, start_s, expected)

    def wait(self) -> Process[None]:
        return self._length.wait()

    def _on_end(self, update: Update) -> None:
        self.ends.append(update)

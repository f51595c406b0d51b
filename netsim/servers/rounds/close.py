"""Rules for the close of a round: all attempts ended, the first n delivered, a deadline; a fixed length; nothing on the air."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from netsim.clients.attempts import EndedAttempts, ObjectAttempts
from netsim.clients.saved import attempts_state, restored_attempts
from netsim.clients.vectorised.columns import DELIVERED, NUMBER, OUTCOME, ROUND
from netsim.core.alarm import Alarm
from netsim.core.causes import END, OPEN, Cause
from netsim.core.clock import LAST, Event, Process
from netsim.core.closing import RoundState, ask, fold_ends, look_follows_end, no_deadline
from netsim.core.errors import ParameterError
from netsim.core.state import StateFields

if TYPE_CHECKING:
    from netsim.clients.attempts import Attempts
    from netsim.clients.pool import ClientPool
    from netsim.clients.served import ServedClients
    from netsim.clients.update import Update
    from netsim.clients.vectorised.columns import Columns
    from netsim.core.closing import Close, Closing, ClosingRule
    from netsim.core.protocols import BoolArray, Deliveries, FloatArray, State
    from netsim.servers.rounds.loop import Attempt

_EVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRule:
    """Closing rule: close once all attempts have ended, `deadline_s` after the start, or at the `first`-th delivery.

    `at_least`: deliveries for which a round waits past its deadline, unless fewer can still arrive.
    """

    deadline_s: float | None = None
    first: int | None = None
    at_least: int | None = None

    def closes(self, state: RoundState) -> bool | BoolArray:
        """Return True if the round closes in `state`: after an end, or at a look, which is a check at a time without an end.

        Ends at the instant of the deadline are in time, so only a look closes the round at this instant. `state` may hold arrays
        (n,), one entry for each of n states of the round; the result is then (n,).
        """
        # A round without attempts closes at once, unless it has a deadline.
        closes: bool | BoolArray = (state.ended == state.expected) & ((state.expected > 0) | (self.deadline_s is None))
        if self.first is not None:
            closes = closes | (state.delivered >= self.first)
        if self.deadline_s is None:
            return closes
        due_s = state.start_s + self.deadline_s
        past_deadline: bool | BoolArray = state.now_s >= due_s if state.looking else state.now_s > due_s
        if self.at_least is not None:
            in_flight = state.expected - state.ended
            too_few_left = state.delivered + in_flight < self.at_least
            past_deadline = past_deadline & ((state.delivered >= self.at_least) | too_few_left)
        return closes | past_deadline

    def name(self, state: RoundState) -> str:
        """Return the name of the rule that closes a round in `state`."""
        if state.looking:
            return "deadline"
        counts_that_close = [count for count in (self.first, self.at_least) if count is not None]
        if counts_that_close and state.delivered >= min(counts_that_close):
            return "deliveries"
        return "all ended" if state.ended == state.expected else "too few left"

    def next_look_s(self, state: RoundState) -> float:
        """Return the time of the deadline."""
        return _EVER if self.deadline_s is None else state.start_s + self.deadline_s

    def with_deadline(self, deadline_s: float) -> WaitRule:
        """Return this rule with another deadline."""
        return replace(self, deadline_s=deadline_s)

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


class _RoundOfBeginnings(StateFields):
    """Base of rules whose rounds consist of the attempts begun when the round opened."""

    folds_none = False
    takes_all = False
    open_round: int | None = None
    closing: Closing | None = None

    def collect(self, attempts: Attempts) -> Attempts:
        """Return `attempts`, in the order of selection."""
        return attempts

    def pending(self) -> Sequence[Attempt]:
        """Return no attempts: later ends do not count for any round."""
        return ()

    def amend(self, deliveries: Deliveries) -> Deliveries:
        """Return `deliveries` unchanged."""
        return deliveries

    def limit(self, deadline_s: float) -> None:
        """Raise ParameterError: the rule has no deadline."""
        raise no_deadline(deadline_s)

    def abandon(self) -> None:
        """Take no more updates for the round."""
        self.open_round = None

    def open_state(self) -> State:
        """Return an empty state: an open round has no further state."""
        return {}

    def load_open_state(self, state: State) -> None:
        """Do nothing: an open round has no further state."""


class WhenEnded(_RoundOfBeginnings):
    """Closes a round as `rule` says. The rule sees every end of the round's attempts.

    Where attempts are simulated by events, it is asked at each end and at its next look. Where a whole round is simulated as
    arrays, `fold` applies it to all ends at once; both give the same close.
    """

    def __init__(self, *, pool: ServedClients, rule: ClosingRule) -> None:
        self.pool = pool
        self.rule = rule
        self.closing: Closing | None = self
        self._event = pool.clock.event()
        """Event that wakes the server at the close of the open round."""
        self._state = self._foreseen = RoundState(0.0, 0, 0.0)
        """State of the round right after its last end, or at its opening; right before its close if `fold` has computed the
        close.
        """
        self._last: int | None = None
        """Number of the round's attempt that ended last, or None."""
        self._look_s: float | None = None
        """Time of the look that closes the round, if `fold` has computed that; None: an end closes it."""
        # Rings after everything else of its instant: an update exactly at the deadline is in time.
        self._alarm = Alarm(pool.clock, self._look)
        self._handed_over = ObjectAttempts()
        """Delivered updates that another edge began, because their clients moved here. The round does not wait for them, but
        takes those that have arrived.
        """
        pool.follow(self._on_end, self._on_ends)

    def open(self, number: int, start_s: float, expected: int) -> None:
        """Open round `number` with `expected` attempts."""
        self.open_round = number
        self._state, self._last = RoundState(start_s, expected, now_s=start_s), None
        self._event = self.pool.clock.event()

    def collect(self, attempts: Attempts) -> Attempts:
        """Return the attempts of the round, and updates that another edge began and that arrived since the last close."""
        if not self._handed_over:
            return attempts
        taken_over, self._handed_over = self._handed_over, ObjectAttempts()
        return ObjectAttempts([*attempts.updates, *taken_over])

    def pending(self) -> Sequence[Attempt]:
        """Return the updates that another edge began and that wait for the next close."""
        return self._handed_over

    def abandon(self) -> None:
        """Take no more updates, and forget those that another edge began."""
        super().abandon()
        self._handed_over.clear()

    def state_dict(self) -> State:
        """Return the state at a round boundary."""
        return super().state_dict() | {"handed_over": attempts_state(self._handed_over, {})}

    def load_state_dict(self, state: State) -> None:
        """Restore the state at a round boundary."""
        super().load_state_dict(state)
        self._handed_over = restored_attempts(state["handed_over"], {})

    def limit(self, deadline_s: float) -> None:
        """Set the deadline from the next round on; raises ParameterError if the rule's class has no deadline."""
        self.rule = self.rule.with_deadline(deadline_s)

    def open_state(self) -> State:
        """Return the state of the open round, as its rule has seen it."""
        return {"open_round": self.open_round, "state": asdict(self._state), "last": self._last}

    def load_open_state(self, state: State) -> None:
        """Restore the state of the open round."""
        self.open_round, self._last = state["open_round"], state["last"]
        self._state = RoundState(**state["state"])
        self._event = self.pool.clock.event()

    def fold(self, ends_s: FloatArray, delivered: BoolArray) -> Close | None:
        """Return the close of the open round, whose attempts end at `ends_s` (n,), ascending; None if it never closes.

        `delivered` (n,): True where the update arrives. Remembers the state at the close for `wait`.
        """
        state = self._state
        close = fold_ends(self.rule, state.start_s, ends_s, delivered)
        if close is not None:
            arrived = int(np.count_nonzero(delivered[: close.ended]))
            last_s = ends_s.item(close.ended - 1) if close.ended else state.start_s
            self._foreseen = RoundState(state.start_s, state.expected, now_s=last_s, ended=close.ended, delivered=arrived)
            self._look_s = None if close.by_end else close.time_s
        return close

    def wait(self) -> Process[None]:
        """Wait for the close of the open round: until a known time if `fold` has computed it, otherwise until the rule closes it
        at an end or a look.
        """
        # Two forms with the same close. If the attempts of the round were simulated as arrays, `fold` has asked the rule already,
        # and one event at the known time is left. Otherwise `_on_end` and `_look` ask it as time goes on.
        whole_rounds = self.pool.whole_rounds
        if whole_rounds.closes_s is not None:
            # Last of its instant, because another event of the instant may still convert the round to updates by events.
            yield self.pool.clock.event_at(whole_rounds.closes_s, LAST)
            self.open_round = None
            whole_rounds.on_close()
            self._note_close(self._foreseen, whole_rounds.last_end, self._look_s)
            return
        if not self._state.expected and ask(self.rule, self._state):
            self.pool.causes.close_now("all ended")
            self.open_round = None
            return
        self._set_alarm()
        yield self._event

    def _on_end(self, update: Update) -> None:
        """Count the end of an attempt of the open round, and close the round if its rule says so."""
        if update.handed_over:
            if not update.censored:
                self._handed_over.append(update)
            return
        if update.begun_round != self.open_round:
            return
        # Change the state in place: a new object for each end would cost more than the rule.
        state = self._state
        state.now_s, state.ended, self._last = update.outcome_s, state.ended + 1, update.number
        state.delivered += update.outcome == "delivered"
        if ask(self.rule, state):
            self._close()
        else:
            self._set_alarm()

    def _on_ends(self, ended: Columns) -> None:
        """Count the ends of attempts of the open round that were simulated as arrays. Their close is known already."""
        of_round, state = np.flatnonzero(ended.counts[ROUND] == self.open_round), self._state
        if len(of_round):
            last = of_round[-1]  # the table is in the order of ends
            state.now_s, self._last = float(ended.column("outcome_s")[last]), ended.counts.item(NUMBER, last)
            state.ended += len(of_round)
            state.delivered += int(np.count_nonzero(ended.counts[OUTCOME, of_round] == DELIVERED))

    def _set_alarm(self) -> None:
        """Set the alarm to the next look of the rule; stop it if no round is open, or if that time has passed."""
        now = self.pool.clock.now
        look_s = float(self.rule.next_look_s(self._state)) if self.open_round is not None else _EVER
        # At `now` the alarm of this instant has yet to ring, or has just rung: leave it alone.
        if look_s != now:
            self._alarm.set(look_s if look_s > now else _EVER)

    def _look(self) -> None:
        """Close the open round if its rule says so at this time, not at an end; otherwise wait for the next look."""
        state, now = self._state, self.pool.clock.now
        due = self.open_round is not None and now == self.rule.next_look_s(state)
        if due and ask(self.rule, replace(state, now_s=now, looking=True)):
            self._close(now)
        else:
            self._set_alarm()

    def _close(self, look_s: float | None = None) -> None:
        """Close the open round: by its last end, or by a look at `look_s`."""
        # Close at once, not when the server's process wakes: updates that arrive later at this instant are late already.
        self._note_close(self._state, self._last, look_s)
        self.open_round = None
        self._alarm.set(_EVER)
        self._event.succeed()

    def _note_close(self, state: RoundState, last: int | None, look_s: float | None) -> None:
        """Note the cause of the close: the end of attempt `last`, after which the round is in `state`; `look_s`: at a look."""
        causes, rule = self.pool.causes, self.rule
        if look_s is None:
            cause, closing_state = Cause(END, last), state
        else:
            # The last end is the cause of a look only if the look moves with that end.
            by_end = last is not None and look_follows_end(rule, state)
            cause = Cause(END, last) if by_end else Cause(OPEN, causes.opened)
            closing_state = replace(state, now_s=look_s, looking=True)
        causes.close(cause, rule.name(closing_state))


class FixedLength(_RoundOfBeginnings):
    """Closes round t at t times `round_s` seconds after the run's start or, with `from_opening`, `round_s` after its opening.

    `announce`: called with the time of the close when the round opens.
    """

    takes_all = True

    def __init__(
        self, *, pool: ServedClients, round_s: float, announce: Callable[[float], None], from_opening: bool = False
    ) -> None:
        self.pool = pool
        self.round_s = check_round_s(round_s)
        self._from_opening = from_opening
        if not from_opening:
            pool.causes.fix_length()
        self._announce = announce
        self._end_s = 0.0
        """Time at which the round under way closes."""

    def open(self, number: int, start_s: float, expected: int) -> None:
        """Set the time of the close, and announce it."""
        self._end_s = start_s + self.round_s if self._from_opening else max(number * self.round_s, start_s)
        self._announce(self._end_s)

    def wait(self) -> Process[None]:
        """Wait until the time of the close."""
        # After everything else of that instant: an update exactly at the end of the round is in time.
        yield self.pool.clock.event_at(self._end_s, LAST)
        causes = self.pool.causes
        if self._from_opening:
            causes.close(Cause(OPEN, causes.opened), "fixed length")
        else:
            causes.close_by_schedule("fixed length")

    def open_state(self) -> State:
        """Return the end of the round under way."""
        return {"end_s": self._end_s}

    def load_open_state(self, state: State) -> None:
        """Restore the end of the round under way."""
        self._end_s = state["end_s"]


def check_round_s(round_s: float) -> float:
    """Return `round_s`, a length of rounds in seconds; raises ValueError unless it is > 0 and finite."""
    if not 0 < round_s < _EVER:
        raise ParameterError("round_s", round_s, "must be > 0 seconds and finite")
    return round_s


class NothingOnTheAir(_RoundOfBeginnings):
    """Closes a round when no transmission is in flight after at least one was, or when no client has anything to send.

    `wait_for_compute`: the round also waits for clients that receive the model or compute.
    """

    takes_all = True
    _rule = "nothing on the air"

    def __init__(self, *, pool: ClientPool, wait_for_compute: bool = False) -> None:
        self.pool = pool
        self.wait_for_compute = wait_for_compute
        self._sent_before = 0
        """Number of uploads begun before the round."""
        self._closing: Event | None = None
        """Event that wakes the waiting server; None if none waits."""
        self._called = False
        """True while a call of `_close` is on the clock."""
        pool.follow(self._on_end)

    def open(self, number: int, start_s: float, expected: int) -> None:
        """Note the number of uploads begun before the round."""
        self._sent_before = self.pool.life.uploads

    def wait(self) -> Iterable[Event]:
        """Return no event if the round may close now, otherwise the event of its close."""
        if self._is_over():
            self.pool.causes.close_now(self._rule)
            return ()
        self._closing = self.pool.clock.event()
        return (self._closing,)

    def _is_over(self) -> bool:
        """Return True if the round may close now."""
        pool = self.pool
        if pool.life.sending:
            return False
        if not pool.in_flight:
            return True
        has_sent = pool.life.uploads > self._sent_before
        return has_sent and not self.wait_for_compute

    def _on_end(self, update: Update) -> None:
        """Look at the end of this instant if the round may close: clients that become ready now still belong to it."""
        # One call for all ends of the instant.
        if self._closing is not None and not self._called:
            self._called = True
            self.pool.clock.call_at(self.pool.clock.now, self._close, priority=LAST)

    def _close(self, payload: None) -> None:
        """Callback at the end of an instant in which an attempt ended: close the round if it may close."""
        self._called = False
        if self._closing is not None and self._is_over():
            self.pool.causes.close_now(self._rule)
            closing, self._closing = self._closing, None
            closing.succeed()


class End(NamedTuple):
    """Attributes of an ended attempt whose update has not entered a model yet, in the form that a saved state holds."""

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
    """Base of rules whose rounds consist of the attempts that ended in the round, of any beginning."""

    folds_none = False
    takes_all = True
    open_round: int | None = None
    closing: Closing | None = None

    def __init__(self) -> None:
        self.ends: list[Attempt] = []
        """Attempts that have ended since the last close. After a restart, earlier ones are `End` objects."""

    def collect(self, attempts: Attempts) -> Attempts:
        """Return the attempts in the order of ends."""
        ends, self.ends = self.ends, []
        return EndedAttempts(ends)

    def pending(self) -> Sequence[Attempt]:
        """Return the attempts that have ended and count for a later round."""
        return self.ends

    def amend(self, deliveries: Deliveries) -> Deliveries:
        """Return `deliveries` unchanged."""
        return deliveries

    def limit(self, deadline_s: float) -> None:
        """Raise ParameterError: the rule has no deadline."""
        raise no_deadline(deadline_s)

    def abandon(self) -> None:
        """Forget the attempts that have ended."""
        self.ends.clear()

    def open_state(self) -> State:
        """Return an empty state: an open round has no further state."""
        return {}

    def load_open_state(self, state: State) -> None:
        """Do nothing: an open round has no further state."""

    def state_dict(self) -> State:
        """Return the attempts that have ended and count for a later round."""
        ends = [{name: getattr(end, name) for name in End._fields} for end in self.ends]
        return super().state_dict() | {"ends": ends}

    def load_state_dict(self, state: State) -> None:
        """Restore the attempts that have ended, as `End` objects."""
        super().load_state_dict(state)
        self.ends = [End(**end) for end in state["ends"]]


class FixedLengthCarryOver(EndsOfRound):
    """Closes rounds at the times of `FixedLength`. An attempt that misses a close counts for the round in which it ends."""

    def __init__(self, *, pool: ServedClients, round_s: float, from_opening: bool = False) -> None:
        super().__init__()
        self._length = FixedLength(pool=pool, round_s=round_s, announce=lambda end_s: None, from_opening=from_opening)
        pool.follow(self._on_end)

    def open(self, number: int, start_s: float, expected: int) -> None:
        """Set the time of the close."""
        self._length.open(number, start_s, expected)

    def wait(self) -> Process[None]:
        """Wait until the time of the close."""
        return self._length.wait()

    def open_state(self) -> State:
        """Return the end of the round under way."""
        return self._length.open_state()

    def load_open_state(self, state: State) -> None:
        """Restore the end of the round under way."""
        self._length.load_open_state(state)

    def _on_end(self, update: Update) -> None:
        """Count an ended attempt for this round."""
        self.ends.append(update)

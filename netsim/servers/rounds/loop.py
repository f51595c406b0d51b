"""The round loop that all servers share: wait for clients, open, dispatch, wait for the close, aggregate, report, measure.

Two rules make it a server: a `Dispatch` (which clients get the model, and when) and a `CloseRule` (when a round is over, and
which attempts belong to it). `Instrument`s add columns to the records without changing anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from netsim.clients.saved import attempts_state, restored_attempts
from netsim.core.causes import CLOSE, END, RETURN, START, Cause
from netsim.core.jamming import add_jamming
from netsim.core.protocols import Content, Deliveries, IntArray, Learner, Selection, State, Stateful
from netsim.core.state import StateFields
from netsim.servers.sub_channels.assignment import Assignment, NoAssignment

if TYPE_CHECKING:
    from netsim.clients.attempts import Attempts
    from netsim.clients.served import ServedClients
    from netsim.clients.update import Update
    from netsim.core.clock import Event, Process
    from netsim.core.closing import Closing
    from netsim.core.rows import ColumnValues


class NobodyLeftError(Exception):
    """Error: no client is selectable, and none ever will be."""


class Attempt(Protocol):
    """Attempt, in the form that the close of a round reads; `netsim.clients.update.Update` explains each attribute."""

    @property
    def client(self) -> int: ...
    @property
    def begun_round(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def drawn_steps(self) -> int: ...
    @property
    def budget(self) -> float: ...
    @property
    def selected_s(self) -> float: ...
    @property
    def outcome_s(self) -> float: ...
    @property
    def censored(self) -> bool: ...
    @property
    def download_start_s(self) -> float: ...
    @property
    def download_end_s(self) -> float: ...
    @property
    def compute_start_s(self) -> float: ...
    @property
    def compute_end_s(self) -> float: ...
    @property
    def upload_start_s(self) -> float: ...
    @property
    def upload_end_s(self) -> float: ...
    @property
    def samples(self) -> int | None: ...
    @property
    def steps(self) -> int | None: ...
    @property
    def bytes_down(self) -> int: ...
    @property
    def bytes_up(self) -> int: ...


class EndedAttempt(NamedTuple):
    """Attributes of an ended attempt that instruments read, in the form that a saved state holds; `netsim.clients.update.Update`
    explains them.
    """

    channel: int | None
    jammed: bool | None
    collided: bool | None


@dataclass(slots=True)
class ClosedRound:
    """A round that has closed."""

    number: int
    start_s: float
    end_s: float
    attempts: Attempts
    """Attempts that belong to the round, as its close rule says."""
    content: Content | None
    """Requested content of the delivered updates, in the order of `attempts`."""
    version: int | None
    """Version of the model before these updates were aggregated; None without training."""
    opened_by: Cause
    """Cause of the opening."""
    closed_by: Cause
    """Cause of the close."""
    close_rule: str | None
    """Name of the rule that closed the round, as the rule states it."""
    ended: Sequence[Update | EndedAttempt]
    """All attempts, of any round, that ended since the last close; empty unless an instrument reads them.

    Attempts that ended before a restored state was saved are `EndedAttempt` objects.
    """

    @property
    def clients(self) -> IntArray:
        """Clients (n,) of the attempts."""
        return np.asarray(self.attempts.column("client"), np.int64)


class Dispatch(Stateful, Protocol):
    """Dispatch: chooses the clients of a round, sends them the model, and passes the outcome to its policy."""

    needs_updates: bool
    """True if it reads the content of updates."""
    needs_losses: bool
    """True if it reads the losses that came with updates."""
    attempts: Attempts
    """Attempts begun when the present round opened."""

    @property
    def restarts(self) -> Sequence[tuple[int, int]]:
        """Changes that the policy or scheduler has declared so far, as (round, client)."""

    @property
    def selection(self) -> IntArray | Selection:
        """Clients that take part in the present round from the beginning, as decided."""

    def wait(self, number: int) -> Iterable[Event]:
        """Yield events to wait for until round `number` may open, by default none; raises NobodyLeftError if it never can."""
        return ()

    def prepare(self, number: int) -> Iterable[Event]:
        """Yield events to wait for, after the opening, until clients can be chosen, by default none.

        Raises NobodyLeftError if they never can.
        """
        return ()

    def choose(self, number: int, start_s: float) -> IntArray:
        """Return the clients (n,) that take part from the beginning. `start_s`: the present time."""

    def send(self, number: int) -> None:
        """Begin the attempts of the clients that `choose` returned."""

    def leave_out(self, client: int) -> None:
        """Remove `client` from the round for which clients were just chosen, without a replacement."""

    def tell(self, closed: ClosedRound) -> None:
        """Report the outcome of the round to the policy or scheduler; by default it learns nothing."""
        return

    def repeat(self, selection: IntArray | Selection) -> None:
        """Repeat `selection` from the next round on. This default does nothing: nothing is selected round by round."""
        return

    def held_versions(self, number: int) -> Iterable[int]:
        """Return versions of the model that clients hold and may begin from in round `number`, in addition to those of updates in
        flight: the learner must keep them.
        """
        return ()


class CloseRule(Stateful, Protocol):
    """Rule for the close of a round, and for the attempts that belong to it."""

    folds_none: bool = False
    """True if the learner also aggregates a round without deliveries."""
    takes_all: bool = False
    """True if the server takes updates of every round."""
    open_round: int | None = None
    """Round whose updates the server takes, if it does not take all; None: it takes none."""
    closing: Closing | None = None
    """Closing rule of the open round, if the close depends only on ends of the round's attempts; otherwise None."""

    def open(self, number: int, start_s: float, expected: int) -> None:
        """Open round `number` with `expected` attempts."""

    def limit(self, deadline_s: float) -> None:
        """Set the deadline of rounds from the next one on; raises ParameterError if the rule has no deadline."""

    def wait(self) -> Iterable[Event]:
        """Yield events to wait for until the close; raises NobodyLeftError if it can never come."""

    def collect(self, attempts: Attempts) -> Attempts:
        """Return the attempts that belong to the closing round, in which `attempts` were begun."""

    def pending(self) -> Sequence[Attempt]:
        """Return the attempts that have ended and count for a later round."""

    def amend(self, deliveries: Deliveries) -> Deliveries:
        """Return the round's `deliveries` in the form for the learner."""

    def abandon(self) -> None:
        """Handle the end of a round without a close."""

    def open_state(self) -> State:
        """Return the part of the state that exists only within a round; `state_dict` returns the rest."""
        return {}

    def load_open_state(self, state: State) -> None:
        """Load a state of `open_state`, after `load_state_dict`."""


class DeclaredChanges(Protocol):
    """Interface to the changes of sub-channels that a scheduler declares."""

    def detects(self) -> bool:
        """Return True if the scheduler watches for changes."""

    def listen(self, on_declared: Callable[[int, list[int]], None]) -> None:
        """Call `on_declared` with a round after which changes were declared, and the sub-channels on which they were seen."""


class Instrument(StateFields):
    """Base of instruments: they measure without changing anything, and add columns to the records of rounds and attempts.

    This one measures nothing; subclasses override methods.
    """

    round_columns: Sequence[str] = ()
    """Columns of rounds that `columns` fills."""
    reads_ends = False
    """True if the instrument reads `ClosedRound.ended`."""

    @property
    def detections(self) -> DeclaredChanges | None:
        """Return the instrument itself if it records the changes that a scheduler declares; None otherwise."""
        return None

    def open(self, number: int) -> None:
        """Handle the opening of a round, before anything is sent."""

    def columns(self, closed: ClosedRound) -> ColumnValues:
        """Return the instrument's columns of the round's record."""
        return {}

    def counts(self) -> dict[str, int]:
        """Return columns that are running sums since the start of the run."""
        return {}


class Alteration:
    """Base of alterations of an open round before anything is sent, for what-if studies.

    This one changes nothing.
    """

    def change_selection(self, loop: RoundLoop, number: int, chosen: IntArray) -> IntArray:
        """Return the clients that take part in round `number`, out of `chosen` (n,), in the same order."""
        return chosen

    def channels(self, loop: RoundLoop, clients: IntArray) -> list[int] | None:
        """Assign sub-channels to attempts that `clients` (n,) begin now, and return them (n,); None if none are assigned."""
        return loop.assignment.channels(clients)

    def on_close(self, closed: ClosedRound) -> None:
        """Handle the close of a round, before its updates are aggregated."""


class _ContentAt:
    """Entries of `content` (losses and updates, one for each delivery) at `places` (n,), in this order."""

    def __init__(self, content: Content, places: IntArray) -> None:
        self.updates = None if content.updates is None else content.updates[places]
        self.loss = None if content.loss is None else content.loss[places]
        self.loss_rms = None if content.loss_rms is None else content.loss_rms[places]


class RoundLoop:
    """Runs rounds one after the other, by a dispatch rule and a close rule.

    `assignment`: assigns sub-channels to clients. `straggle`: attempts in flight at the close go on; otherwise they end as
    late. `outlast`: updates may enter models of later rounds, so the learner must keep the versions that they start from.
    """

    tiered = False

    def __init__(
        self,
        *,
        pool: ServedClients,
        dispatch: Dispatch,
        close: CloseRule,
        learner: Learner,
        instruments: Sequence[Instrument] = (),
        assignment: Assignment | None = None,
        straggle: bool = True,
        outlast: bool = False,
    ) -> None:
        self.clock = pool.clock
        self.pool = pool
        self.dispatch = dispatch
        self.close = close
        self.learner = learner
        self.instruments = instruments
        self._counts_jamming_twice = False
        """True if two instruments count jamming: of cables, and of something else."""
        self.straggle = straggle
        self._outlast = outlast
        self._on_open: list[Callable[[int], None]] = []
        """Listeners called with the number of each round before anything else of it."""
        self._alteration = Alteration()
        self.round = 0
        """Number of rounds closed."""
        self.is_open = False
        """True while a round is under way."""
        self._opener: Cause | None = None
        """Cause of the next opening, if the round opens at once; None: the close of the round before, or the run's start."""
        self._asked_s: float | None = None
        """Time since which the next round waits for clients, or None."""
        self._start_s, self._opened_by = 0.0, Cause(START)
        """Start of the present round, and the cause of its opening."""
        self.assignment: Assignment = assignment or NoAssignment()
        self._ends: list[Update | EndedAttempt] = []
        """Attempts that ended since the last close, for instruments that read them."""
        pool.serve(self)
        if any(instrument.reads_ends for instrument in instruments):
            pool.follow(self._ends.append)

    @property
    def detections(self) -> DeclaredChanges | None:
        """Return the instrument of the changes that a scheduler declares, or None without a scheduler."""
        for instrument in self.instruments:
            if instrument.detections is not None:
                return instrument.detections
        return None

    @property
    def takes_all(self) -> bool:
        """True if updates of every round are taken (`CloseRule.takes_all`)."""
        return self.close.takes_all

    @property
    def closing(self) -> Closing | None:
        """Closing rule of the open round, or None (`CloseRule.closing`)."""
        return self.close.closing

    def takes(self, update: Update) -> bool:
        """Return True if an arriving update still counts: it began in the open round, or the rule takes all."""
        return self.close.takes_all or update.begun_round == self.close.open_round

    def channels(self, clients: IntArray) -> list[int] | None:
        """Assign sub-channels to attempts that `clients` (n,) begin now, and return them (n,); None if none are assigned."""
        return self._alteration.channels(self, clients)

    @property
    def outlast(self) -> bool:
        """True if the learner gets, after every round, the versions from which attempts in flight started."""
        return self._outlast

    def let_outlast(self) -> None:
        """Let updates enter models of later rounds from now on: the learner keeps the versions that they start from."""
        self._outlast = True

    def begin_term(self, round: int, opener: Cause) -> None:
        """Make the next round number `round` + 1, unless more rounds have closed already: an edge numbers its rounds by the round
        of the node above.

        `opener`: cause of the opening, if the round opens at once.
        """
        self.round, self._opener = max(self.round, round), opener

    def follow_openings(self, on_open: Callable[[int], None]) -> None:
        """Call `on_open` with the number of every round before anything else of it. Earlier listeners are called first."""
        self._on_open.append(on_open)

    def alter(self, alteration: Alteration) -> None:
        """Let `alteration` act on every round from now on, in place of an earlier one."""
        self._alteration = alteration

    def add_instrument(self, instrument: Instrument) -> None:
        """Add an instrument from the next round on. It must not read `ClosedRound.ended`."""
        filled_columns = {name for other in self.instruments for name in other.round_columns}
        # Two instruments may fill the same columns only if both count jamming; `columns` then adds the counts.
        self._counts_jamming_twice |= not filled_columns.isdisjoint(instrument.round_columns)
        self.instruments = [*self.instruments, instrument]

    def run_round(self) -> Process[ClosedRound]:
        """Run one round as a process of the clock, or the rest of a round whose state was loaded.

        Raises NobodyLeftError if there can never be another.
        """
        if not self.is_open:
            yield from self._open_round()
        closed_by = yield from self._wait_for_close()
        return self._close_round(closed_by)

    def abandon(self) -> None:
        """Abandon the round under way; updates in flight go on."""
        self.is_open, self._asked_s = False, None
        self.close.abandon()
        self._ends.clear()

    def _open_round(self) -> Process[None]:
        """Wait until the next round may open, and open it: medium, instruments, dispatch, assignment, close rule, in this
        order.
        """
        number, pool = self.round + 1, self.pool
        if self._asked_s is None:
            for on_open in self._on_open:
                on_open(number)
        self._opened_by = yield from self._wait_for_open(number)
        start_s = self._start_s = self.clock.now
        # The order: channels and jammers move to the round first, since instruments, probes and the scheduler see their states.
        # Attempts can begin only after the choice, which may take time for probes: so the cause of attempts is noted after it.
        # The close rule opens before anything is sent, because an attempt without durations ends within `send`.
        pool.medium.open_round(number, start_s)
        for instrument in self.instruments:
            instrument.open(number)
        yield from self.dispatch.prepare(number)
        chosen = self.dispatch.choose(number, self.clock.now)
        self.assignment.open(number, chosen)
        chosen = self._alteration.change_selection(self, number, chosen)
        pool.causes.open(number)
        self.close.open(number, self.clock.now, len(chosen))
        self.is_open = True
        self.dispatch.send(number)

    def _close_round(self, closed_by: Cause) -> ClosedRound:
        """Close the open round: collect its attempts, aggregate their updates, and report to the policy."""
        number, start_s, opened_by, pool = self.round + 1, self._start_s, self._opened_by, self.pool
        # The order: attempts that the close cuts off still count for the round; the policy learns of a round when its updates are
        # aggregated, since it may read their content; versions are dropped last, when nothing of the round needs them any more.
        if not self.straggle and pool.under_way:
            pool.cut()
        self.is_open = False
        attempts = self.close.collect(self.dispatch.attempts)
        ends = self._ends.copy()
        self._ends.clear()
        version = self.learner.version if self.learner.aggregates else None
        closed = ClosedRound(
            number=number,
            start_s=start_s,
            end_s=self.clock.now,
            attempts=attempts,
            content=None,
            version=version,
            opened_by=opened_by,
            closed_by=closed_by,
            close_rule=pool.causes.rule,
            ended=ends,
        )
        self._alteration.on_close(closed)
        closed.content = self._aggregate(number, attempts)
        self.dispatch.tell(closed)
        self.assignment.close()
        self.round = number
        self.retain_versions()
        return closed

    def retain_versions(self) -> None:
        """Let the learner keep the versions of the model that updates started from, or clients may begin from, and drop the
        others. Do nothing if no update outlasts its round.
        """
        if self._outlast and self.learner.aggregates:
            not_aggregated = (end for end in self.close.pending() if not end.censored)
            in_use = [attempt.version for attempt in (*self.pool.alive.values(), *not_aggregated)]
            self.learner.retain([*in_use, *self.dispatch.held_versions(self.round + 1)])

    def _wait_for_open(self, number: int) -> Process[Cause]:
        """Wait until round `number` may open, and return the cause of its opening: the last close or the start if it did not
        wait, otherwise an end or the return of a client.
        """
        causes = self.pool.causes
        # A restored round may have begun to wait before its state was saved.
        if self._asked_s is None:
            self._asked_s = self.clock.now
        asked_s = self._asked_s
        yield from self.dispatch.wait(number)
        opens_s, self._asked_s = self.clock.now, None
        opener, self._opener = self._opener, None
        if opens_s > asked_s:
            return Cause(END, causes.ended) if causes.ended_s == opens_s else Cause(RETURN, causes.returned)
        if opener is not None:
            return opener
        return Cause(CLOSE, number - 1) if number > 1 else Cause(START)

    def _wait_for_close(self) -> Process[Cause]:
        """Wait for the close of the present round, and return its cause."""
        # Note what has just happened before each wait: if a timer ends the wait, that is what set the timer.
        causes = self.pool.causes
        set_by = causes.latest()
        for event in self.close.wait():
            set_by = causes.latest()
            yield event
        return causes.closing or causes.timer_cause(set_by)

    def _aggregate(self, number: int, attempts: Attempts) -> Content | None:
        """Aggregate the delivered updates into the next model. Return their content (losses, updates) in the order of selection,
        if the dispatch rule or records need it; otherwise None.
        """
        if not self.learner.aggregates:
            return None
        delivered = ~np.asarray(attempts.column("censored"), np.bool_)
        if not delivered.any() and not self.close.folds_none:
            return None

        # An aggregation may depend on the order of updates, so every server passes them in the order of delivery.
        by_end = attempts.order_of_end()
        places = by_end[delivered[by_end]]

        def delivered_column(name: str) -> Any:
            return np.asarray(attempts.column(name))[places]

        deliveries = Deliveries(
            round=number,
            clients=delivered_column("client"),
            rounds=delivered_column("begun_round"),
            versions=delivered_column("version"),
            epsilon=delivered_column("budget"),
            steps=delivered_column("drawn_steps"),
        )
        content = self.learner.aggregate(
            self.close.amend(deliveries),
            self.dispatch.needs_updates,
            self.dispatch.needs_losses or self.learner.records_losses,
        )
        if content is None:
            return None
        # Readers expect the content in the order of selection, not of delivery.
        is_in_order_of_selection = (places[1:] > places[:-1]).all()
        return content if is_in_order_of_selection else _ContentAt(content, places.argsort())

    @property
    def round_columns(self) -> list[str]:
        """Columns of rounds that the learner and the instruments fill."""
        return [*self.learner.round_columns, *(name for instrument in self.instruments for name in instrument.round_columns)]

    def columns(self, closed: ClosedRound) -> ColumnValues:
        """Return the columns of all instruments."""
        values: ColumnValues = {}
        for instrument in self.instruments:
            measured = instrument.columns(closed)
            values |= add_jamming(values, measured) if self._counts_jamming_twice else measured
        return values

    def state_dict(self) -> State:
        """Return the state at a round boundary."""
        # Attempts of other rounds may also end between two records.
        ends = [{name: getattr(end, name) for name in EndedAttempt._fields} for end in self._ends]
        return {
            "round": self.round,
            "pool": self.pool.state_dict(),
            "medium": self.pool.medium.state_dict(),
            "dispatch": self.dispatch.state_dict(),
            "assignment": self.assignment.state_dict(),
            "close": self.close.state_dict(),
            "learner": self.learner.state_dict(),
            "instruments": [instrument.state_dict() for instrument in self.instruments],
            "ends": ends,
        }

    def open_state(self) -> State:
        """Return the state of a round that is under way or waits for its opening; attempts are objects."""
        if not self.is_open:
            return {"asked_s": self._asked_s, "opener": self._opener}
        attempts = attempts_state(self.dispatch.attempts, self.pool.alive)
        return {"start_s": self._start_s, "opened_by": self._opened_by, "attempts": attempts, "close": self.close.open_state()}

    def load_open_state(self, state: State) -> None:
        """Load the state of a round under way, after `load_state_dict`; `run_round` then runs the rest of the round."""
        self.is_open = "attempts" in state
        if not self.is_open:
            self._asked_s = state["asked_s"]
            self._opener = None if state["opener"] is None else Cause(*state["opener"])
            return
        self._start_s, self._opened_by = state["start_s"], Cause(*state["opened_by"])
        self.dispatch.attempts = restored_attempts(state["attempts"], self.pool.alive)
        self.close.load_open_state(state["close"])

    def load_state_dict(self, state: State) -> None:
        """Load a state of a round boundary; the clock must be at the time of the state."""
        self.round = state["round"]
        # Restore in this order: access, then updates, which join the access, then the next dwell of jammers.
        self.pool.medium.load_state_dict(state["medium"], self.round, self.clock.now)
        self.pool.load_state_dict(state["pool"])
        self.dispatch.load_state_dict(state["dispatch"])
        self.assignment.load_state_dict(state["assignment"])
        self.close.load_state_dict(state["close"])
        self.learner.load_state_dict(state["learner"])
        for instrument, saved in zip(self.instruments, state["instruments"], strict=True):
            instrument.load_state_dict(saved)
        self._ends[:] = [EndedAttempt(**end) for end in state["ends"]]

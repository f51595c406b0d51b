"""A server with a record for each round: the loop, evaluation of the model, and rows of rounds and attempts."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from netsim.core.jamming import add_jamming
from netsim.core.rows import ALWAYS, LATER, ROUND_CAUSES, ColumnValues, EvaluationRow, RoundRow, UpdateRow
from netsim.core.state import StateFields
from netsim.records.sinks import NoRecorder
from netsim.servers.rounds.reports import losses_by_update

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from netsim.clients.pool import ClientPool
    from netsim.clients.served import ServedClients
    from netsim.clients.update import Update
    from netsim.core.clock import Process
    from netsim.core.protocols import Evaluation, Learner, Notes, State
    from netsim.network.transport.transport import Transport
    from netsim.peers.consensus import ConsensusPhase
    from netsim.records.sinks import Recorder
    from netsim.servers.rounds.loop import ClosedRound, RoundLoop
    from netsim.servers.rounds.probing import Probing

_NAN = float("nan")
_BLANK: ColumnValues = dict.fromkeys(RoundRow._fields, _NAN) | RoundRow._field_defaults
"""A row without values: all columns in order, each NaN or its default."""


class Book(StateFields):
    """Counts of attempts and messages that began and ended between two records of rounds."""

    state_fields = ("_before",)

    def __init__(self, pool: ServedClients) -> None:
        self._pool = pool
        self._before = self._counts_now()
        """Counts at the last record."""
        self._columns = frozenset(_BLANK)
        """Columns of rounds that this run has."""

    def choose(self, columns: Iterable[str]) -> list[str]:
        """Set the columns of this run, and return them in the order of `RoundRow`: `columns`, which other parts fill, and those
        of every run.
        """
        energy_columns = () if self._pool.energy is None else self._pool.energy.round_columns
        self._columns = frozenset((*ALWAYS["rounds"], *energy_columns, *columns))
        return [name for name in _BLANK if name in self._columns]

    def _counts_now(self) -> ColumnValues:
        """Return the counts since the start of the run."""
        pool, life = self._pool, self._pool.life
        down, up = life.bytes_down, life.bytes_up
        if pool.probes is not None:
            down, up = down + pool.probes.bytes_down, up + pool.probes.bytes_up
        return {"selected": pool.started, **pool.ended, "bytes_down": down, "bytes_up": up}

    def counts(self) -> dict[str, int]:
        """Return the counts since the start of the run, and the number of attempts in flight."""
        return {**self._counts_now(), "in_flight": self._pool.under_way}

    def row(
        self, *, round: int, start_s: float, end_s: float, version: int, evaluation: Evaluation | None, columns: ColumnValues
    ) -> RoundRow:
        """Return the record of the round or slot that closes now.

        `version`: version of the model. `evaluation`: test of the model; None: none was made. `columns`: values of further
        columns, by name. Counts are those since the last call. Raises TypeError for a column that the table does not have.
        """
        pool, now, before = self._pool, self._counts_now(), self._before
        if evaluation is not None:
            columns = {**columns, **evaluation.columns}
        # A column that is not chosen has no place in the table: its values would be lost without a word.
        if not columns.keys() <= self._columns:
            unknown = ", ".join(sorted(columns.keys() - self._columns))
            raise TypeError(f"{unknown}: no part of the server names such a column of rounds; add it to round_columns")
        values = _BLANK | columns
        values["round"], values["start_s"], values["end_s"], values["version"] = round, start_s, end_s, version
        values["in_flight"], values["max_leak"] = pool.under_way, pool.accountant.max_leak()
        if evaluation is not None:
            values["accuracy"], values["loss"] = evaluation.accuracy, evaluation.loss
            if not math.isnan(evaluation.training_loss):
                values["training_loss"] = evaluation.training_loss
        if pool.energy is not None:
            pool.advance()
            now |= pool.energy.totals(end_s)
            values |= pool.energy.now()
        # Energy is missing in `before` at the first record: it counts from 0.
        for name, count in now.items():
            values[name] = count - before.get(name, 0)
        self._before = now
        # In the order of the fields of `RoundRow`: `_BLANK` has all of them, and a key that is there keeps its place.
        return tuple.__new__(RoundRow, values.values())


class Recording(Protocol):
    """A part that writes records."""

    def record_to(self, recorder: Recorder) -> None:
        """Send all records to `recorder` from now on."""


class AttemptRows:
    """The client table: a row for each attempt, written at its end.

    `at_close`: rows are written at the close of the round, in the order of clients, because they contain values known only then.
    If losses are recorded, which are known only at the close of the round whose model takes the update, rows wait until then in
    the order of ends.
    """

    def __init__(self, *, loop: RoundLoop, recorder: Recorder, at_close: bool = False) -> None:
        self.loop = loop
        self.at_close = at_close
        self._with_losses = loop.learner.records_losses
        """True if rows contain losses of training."""
        unused = {*loop.pool.unused_columns(), *loop.assignment.unused_columns}
        if not at_close:
            unused |= {"age_after_rounds", "age_after_s"}
        if not self._with_losses:
            unused |= {*LATER}
        if loop.pool.pool.medium.jamming.links:
            unused.discard("jammed")
        self.columns = tuple(name for name in UpdateRow._fields if name not in unused)
        """Columns that are not null throughout this run."""
        self._values: Callable[[Update | UpdateRow], tuple[Any, ...]] = attrgetter(*self.columns)
        self._table = recorder.attempts(self.columns)
        self._held: list[tuple[int, UpdateRow]] = []
        """Rows that wait for losses, each with the round in which its update was begun."""
        if at_close:
            loop.pool.follow_singly()
        elif self._with_losses:
            loop.pool.follow(self._hold, lambda ended: self._held.extend((row.round, row) for row in ended.rows()))
        else:
            loop.pool.follow(self._on_end, lambda ended: self._table.extend(ended))

    def record_to(self, recorder: Recorder) -> None:
        """Send all rows to `recorder` from now on."""
        self._table = recorder.attempts(self.columns)

    def _on_end(self, update: Update) -> None:
        """Record an attempt at its end."""
        self._table.append(self._values(update))

    def _hold(self, update: Update) -> None:
        """Keep the row of an ended attempt until its losses are known."""
        self._held.append((update.begun_round, update.row()))

    def record_round(self, closed: ClosedRound) -> None:
        """Record the attempts of a closed round, after its instruments have been read."""
        if self.at_close:
            losses = losses_by_update(closed) if self._with_losses else {}
            for update in self.loop.dispatch.attempts.updates:
                if losses:
                    self._record(update.row(), losses.get((update.client, update.begun_round)))
                else:
                    self._table.append(self._values(update))
        elif self._held:
            # Hold attempts back that count for a later round: they have no losses yet.
            of_later_round = {(attempt.client, attempt.begun_round) for attempt in self.loop.close.pending()}
            losses, held = losses_by_update(closed), self._held
            self._held = []
            for begun_round, row in held:
                key = row.client, begun_round
                if key in of_later_round:
                    self._held.append((begun_round, row))
                else:
                    self._record(row, losses.get(key))

    def _record(self, row: UpdateRow, losses: tuple[float, float] | None) -> None:
        """Record an attempt with its (mean loss, root mean square), or without losses."""
        if losses is not None:
            loss, loss_rms = losses
            row = row._replace(loss=loss, loss_rms=loss_rms)
        self._table.append(self._values(row))

    def record_unfinished(self) -> None:
        """Record, at the end of a run, the attempts that were held back, then those in flight, as unfinished.

        With `at_close` these are the attempts of the open round; a round that has closed has its rows already.
        """
        now = self.loop.clock.now
        if self.at_close and not self.loop.is_open:
            return
        self.loop.pool.go_by_events()
        for _, row in self._held:
            self._table.append(self._values(row))
        pool = self.loop.pool
        updates = self.loop.dispatch.attempts.updates if self.at_close else pool.updates_in_flight()
        for update in updates:
            if update.outcome:
                # The attempt has ended, and its row waited for the close (`at_close`).
                self._table.append(self._values(update))
                continue
            if pool.energy is not None:
                pool.energy.account(update, now)
            self._table.append(self._values(update.unfinished_row(now)))

    def state_dict(self) -> State:
        """Return the rows held back."""
        return {"held": [(begun, row._asdict()) for begun, row in self._held]}

    def load_state_dict(self, state: State) -> None:
        """Restore the rows held back."""
        self._held = [(begun, UpdateRow(**row)) for begun, row in state["held"]]


def record_metrics(recorder: Recorder, round: int, time_s: float, version: int, evaluation: Evaluation | None) -> None:
    """Record the values of the user's own metrics of the model at the end of `round`."""
    if evaluation is not None:
        for name, value in evaluation.metrics.items():
            row = EvaluationRow(round=round, time_s=time_s, version=version, metric=name, value=value)
            recorder.evaluation(row)


class LoopServer(StateFields):
    """Common base of servers: the rounds of one loop, and messages and decisions of clients among themselves.

    `AttemptRows` and `Book` write the records.
    """

    loop: RoundLoop
    """Loop of the rounds; with slots, of the communication rounds."""
    _book: Book
    waited_for_lost_s = 0.0
    """Longest timeout with which an app waited for a message that was lost, seconds; inf: it waited without a timeout."""

    @property
    def standstill(self) -> str:
        """Text that says which peers wait for which, if the run ended because no peer can go on; empty otherwise."""
        return ""

    @property
    def clients(self) -> ClientPool:
        """The pool of the clients."""
        return self.loop.pool.pool

    @property
    def in_flight(self) -> int:
        """Number of attempts in flight."""
        return self.loop.pool.under_way

    @property
    def transport(self) -> Transport | None:
        """The transport of messages between clients, or of opinions, or None if there are neither."""
        return None

    def renew_messages(self) -> None:
        """Draw messages between clients from now on under the new law: a script has replaced a law of the links."""

    @property
    def consensus(self) -> ConsensusPhase | None:
        """The phase in which clients decide among themselves, or None if the server decides."""
        return None

    def counts(self) -> dict[str, int]:
        """Return the counts since the start of the run, the round or slot under way included."""
        counts = self._book.counts()
        for instrument in self.loop.instruments:
            counts = add_jamming(counts, instrument.counts())
        return counts

    def listen_to_slots(self, on_open: Callable[[int], None]) -> None:
        """Call `on_open` with the number of every slot before its first event. Without slots, do nothing."""


class RoundServer(LoopServer):
    """Server with a record for each round. `recording`: other parts that write records; `probing`: probes before selections."""

    state_fields = ("loop", "rows", "_book")

    def __init__(
        self,
        *,
        loop: RoundLoop,
        rows_at_close: bool = False,
        recording: Sequence[Recording] = (),
        probing: Probing | None = None,
    ) -> None:
        self.loop = loop
        self.recorder: Recorder = NoRecorder()
        self.last_round = 0
        """Last round of the run, whose model is evaluated."""
        self.rows = AttemptRows(loop=loop, recorder=self.recorder, at_close=rows_at_close)
        self._book = Book(loop.pool)
        self.probing = probing
        """Probes of clients before a selection, or None."""
        self._recording = [*recording]
        if probing is not None:
            self._recording.append(probing)

    @property
    def round(self) -> int:
        """Number of rounds closed."""
        return self.loop.round

    @property
    def learner(self) -> Learner:
        """Learner that trains the model."""
        return self.loop.learner

    def end_after(self, rounds: int) -> None:
        """Make `rounds` the last round of the run: its model is evaluated."""
        self.last_round = rounds

    def run_round(self) -> Process[None]:
        """Run one round, as a process of the clock. Raises NobodyLeftError if no further round is possible."""
        yield from self.run_recorded()

    def run_recorded(self) -> Process[ClosedRound]:
        """Run one round as `run_round` does, and return it."""
        closed = yield from self.loop.run_round()
        self._record(closed)
        return closed

    def _record(self, closed: ClosedRound) -> None:
        """Record a closed round and its attempts, after the evaluation of its model."""
        # Instruments first: some set columns of attempts, which are recorded next. The model is evaluated after both.
        columns = self.loop.columns(closed)
        columns["opened_by"], columns["opened_after"] = closed.opened_by
        columns["closed_by"], columns["closed_after"] = closed.closed_by
        columns["close_rule"] = closed.close_rule
        self.rows.record_round(closed)
        learner, number, end_s = self.loop.learner, closed.number, closed.end_s
        evaluation = learner.evaluate(number, end_s, number == self.last_round)
        self.recorder.round(
            self._book.row(
                round=number,
                start_s=closed.start_s,
                end_s=end_s,
                evaluation=evaluation,
                version=learner.version,
                columns=columns,
            )
        )
        if evaluation is not None:
            record_metrics(self.recorder, number, end_s, learner.version, evaluation)

    def notes(self) -> Notes:
        """Return no notes: the tables contain everything."""
        return {}

    def record_to(self, recorder: Recorder) -> None:
        """Send all records to `recorder` from now on."""
        self.recorder = recorder
        recorder.rounds_with(self._book.choose((*self.loop.round_columns, *ROUND_CAUSES)))
        self.rows.record_to(recorder)
        for writer in self._recording:
            writer.record_to(recorder)

    def record_unfinished(self) -> None:
        """Record attempts that have not ended, at the end of the run."""
        self.rows.record_unfinished()
        if self.probing is not None:
            self.probing.stop()

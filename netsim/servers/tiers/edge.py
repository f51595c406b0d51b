"""An edge: a coordinator of its members, and a client of the node above it. Its part in a round above is a term."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from netsim.core.causes import TERM, Cause
from netsim.core.rows import EdgeRoundRow, EdgeRow, ProbeRow, UpdateRow
from netsim.core.state import StateFields
from netsim.records.sinks import NoRecorder
from netsim.servers.rounds.loop import NobodyLeftError
from netsim.servers.tiers.errand import Errand

if TYPE_CHECKING:
    from netsim.clients.pool import ClientPool
    from netsim.clients.update import Update
    from netsim.core.clock import Process
    from netsim.core.protocols import State
    from netsim.core.rows import EvaluationRow, RoundRow
    from netsim.records.attempts import AttemptTable, Block
    from netsim.records.sinks import Recorder
    from netsim.servers.rounds.round_server import RoundServer
    from netsim.servers.tiers.members import Members


_EVER = float("inf")


class TermModels(Protocol):
    """Model of an edge at the beginning and end of its terms, and of updates that other edges began."""

    @property
    def version(self) -> int:
        """Number of the present model of the edge, from 0."""

    def begin_term(self, version: int, *, ahead: bool) -> None:
        """Replace the edge's model by the model `version` of the node above, which has arrived.

        `ahead`: add what the edge has learnt since it sent its model, that is its present model less the model it sent.
        """

    def end_term(self, round: int, *, goes_on: bool) -> None:
        """Keep the present model, which the edge sends as its update of `round` of the node above.

        `goes_on`: the edge begins rounds of its next term, which count for that.
        """

    def drop_term(self, round: int) -> None:
        """Drop the model that `end_term` kept for `round`, which did not arrive."""

    def adopt(self, client: int, round: int, version: int, source: Any, start: int) -> None:
        """Keep the version `start` of the edge of `source`, from which `client` began its update in a `round` of that edge.

        The update counts here as one that began from `version`.
        """

    def drop(self, client: int, round: int, version: int) -> None:
        """Drop the version that `adopt` kept for an update, which did not arrive."""


class NoModels:
    """Null object: the run trains nothing."""

    version = 0

    def begin_term(self, version: int, *, ahead: bool) -> None:
        """Do nothing: there is no model."""

    def end_term(self, round: int, *, goes_on: bool) -> None:
        """Do nothing: there is no model."""

    def drop_term(self, round: int) -> None:
        """Do nothing: no model was kept."""

    def adopt(self, client: int, round: int, version: int, source: Any, start: int) -> None:
        """Do nothing: there are no versions."""

    def drop(self, client: int, round: int, version: int) -> None:
        """Do nothing: no version was kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeRule:
    """Behaviour of an edge towards the node above."""

    rounds: int = 1
    """Own rounds of a term. A term is an edge's part in one round of the node above."""
    goes_on: bool = False
    """True if the edge begins the rounds of its next term as it sends its model, from that model; False: as a model arrives."""


class Edge(StateFields):
    """An edge, which is client `number` of the pool `edges` and serves its `members` by the rules of `server`.

    A term begins when the model from above arrives. It ends after `rule.rounds` own rounds, or when no member is left. Then the
    edge sends its model up, or its attempt ends as aborted if no round of the term made a model. If the attempt of the edge ends
    earlier, the term ends with it, and so do all attempts of members.

    An edge that goes on (`rule.goes_on`) makes rounds of its next term while its model travels, at most all of them. The next
    term then ends after the rest of its rounds, but not before its model has arrived. If the edge goes away meanwhile, these
    rounds end with all attempts of members.

    Own rounds of the term in round r of the node above have numbers from (r - 1) `rule.rounds` + 1 on. An edge that goes on
    counts its rounds without gaps.
    """

    state_fields = ("_left", "_models_made", "_attempt", "_ahead", "_away_s")

    def __init__(
        self,
        *,
        number: int,
        name: str,
        above: str | None,
        edges: ClientPool,
        server: RoundServer,
        members: Members,
        rule: EdgeRule,
        models: TermModels,
    ) -> None:
        self.number, self.name, self.above = number, name, above
        self.edges, self.server, self.members, self.rule, self.models = edges, server, members, rule, models
        self._errand = Errand(edges.clock)
        """Runs the rounds of the term, or of the next one."""
        self._term: Update | None = None
        """Attempt of the edge whose term is under way."""
        self._left = 0
        """Remaining rounds of the term, including the round under way."""
        self._models_made = 0
        """Rounds of the term that made a model."""
        self._attempt = 0
        """Number of the attempt of the edge whose term is under way, or was last."""
        self._ahead = False
        """True while no term is under way and rounds of the next term are, or were."""
        self._away_s = _EVER
        """Time at which the edge goes away, since it last sent its model."""
        self.recorder: Recorder = NoRecorder()
        # The learner must keep the version that an attempt of a member started from until that attempt ends.
        server.loop.let_outlast()

    def begin(self, attempt: Update) -> None:
        """Begin the term of `attempt`, whose model has arrived."""
        ahead, self._ahead = self._ahead, False
        self._term, self._attempt = attempt, attempt.number
        # The model from above counts as a new version: versions in use must not be dropped for it.
        self.server.loop.retain_versions()
        self.models.begin_term(attempt.version, ahead=ahead)
        # An edge that goes on has begun the rounds of this term already, and counts on.
        if not ahead:
            self._left, self._models_made = self.rule.rounds, 0
            self.server.loop.begin_term((attempt.round - 1) * self.rule.rounds, Cause(TERM, attempt.number))
        if not self._errand.running:
            self._errand.start(self._run())

    def _run(self) -> Process[None]:
        """Run the remaining rounds of the term, and end the term if its model has arrived."""
        while self._left:
            try:
                closed = yield from self.server.run_recorded()
            except NobodyLeftError:
                self.server.loop.abandon()
                break
            self._left -= 1
            has_deliveries = not all(closed.attempts.column("censored"))
            # With `folds_none`, updates that arrived earlier make the model of a round in which none arrives.
            if has_deliveries or self.server.loop.close.folds_none:
                self._models_made += 1
        # An edge that goes on may be done before the model of its term has arrived; `begin` then runs this again.
        if self._term is not None:
            self._end_term(self._term)

    def _end_term(self, attempt: Update) -> None:
        """End the term of `attempt`: send the edge's model up, or end the attempt as aborted."""
        # Forget the term first: the end of the attempt, or of its upload, calls `on_end`, which would stop a term under way.
        self._term = None
        life, now = self.edges.life, self.edges.clock.now
        if now == attempt.departure_s:
            life.leave(attempt, now)
        elif not self._models_made:
            life.end(attempt, "aborted", now, "nothing")
        else:
            self.models.end_term(attempt.begun_round, goes_on=self.rule.goes_on)
            if self.rule.goes_on:
                self._ahead, self._left, self._models_made = True, self.rule.rounds, 0
                self._await_departure(attempt.departure_s)
                self._errand.start(self._run())
            life.proceed(attempt, now)

    def _await_departure(self, time_s: float) -> None:
        """Schedule the departure of the edge, which would end its rounds; inf: it does not go away."""
        self._away_s = time_s
        if time_s < _EVER:
            self.edges.clock.call_at(time_s, self._on_departure, time_s)

    def _on_departure(self, time_s: float) -> None:
        """Callback at a departure of the edge that was known before."""
        if time_s == self._away_s:
            self.leave()

    def leave(self) -> None:
        """Stop the rounds between two terms, since the edge goes away. Rounds of a term end with its attempt."""
        if self._ahead:
            self._stop()

    def _stop(self) -> None:
        """Abort the rounds under way, and end the attempts of all members as aborted, cause "above"."""
        # Stop the rounds before the attempts of members: their ends must not close the round under way.
        self._term, self._ahead = None, False
        self._errand.stop()
        self.server.loop.abandon()
        self.members.abort("above")

    def on_end(self, attempt: Update) -> None:
        """Callback at the end of an attempt of this edge."""
        if self._term is attempt:
            self._stop()
        if attempt.outcome != "delivered":
            self.models.drop_term(attempt.begun_round)

    def on_round(self, row: RoundRow) -> None:
        """Callback at the close of an own round: record it."""
        values = row._asdict() | {"edge": self.name, "term": self._attempt}
        # The table of edges' rounds has fewer columns than that of rounds.
        edge_row = EdgeRoundRow(**{name: values[name] for name in EdgeRoundRow._fields})
        self.recorder.edge_round(edge_row)

    def record_to(self, recorder: Recorder, attempts: Callable[[Sequence[str]], AttemptTable], probes: Recorder) -> None:
        """Send records of own rounds to `recorder`, records of members' attempts to the table that `attempts` returns, and those
        of probes to `probes`.
        """
        self.recorder = recorder
        self.server.record_to(NodeRecorder(self.on_round, attempts, probes=probes))

    def state_dict(self) -> State:
        """Return the state of the edge and its server, and of the round under way."""
        state = super().state_dict() | {"server": self.server.state_dict(), "in_term": self._term is not None}
        if self._errand.running:
            state["open"] = self.server.loop.open_state()
        return state

    def load_state_dict(self, state: State) -> None:
        """Load a state; the states of the pools and of the view of members must be loaded before."""
        super().load_state_dict(state)
        self.server.load_state_dict(state["server"])
        if state["in_term"]:
            self._term = self.edges.alive_now[self.number]
        if self._ahead:
            self._await_departure(self._away_s)
        if "open" in state:
            self.server.loop.load_open_state(state["open"])
            self._errand.start(self._run())


class NodeRecorder(NoRecorder):
    """Recorder of one node of a tree: passes rounds to `on_round`, and members' attempts to the table that `attempts` returns.

    `probes`: recorder of its probes.
    """

    def __init__(
        self,
        on_round: Callable[[RoundRow], None],
        attempts: Callable[[Sequence[str]], AttemptTable],
        evaluation: Callable[[EvaluationRow], None] | None = None,
        probes: Recorder | None = None,
    ) -> None:
        self._on_round, self._attempts, self._evaluation = on_round, attempts, evaluation
        self._probes = probes or NoRecorder()

    def probes_with(self, columns: Sequence[str]) -> None:
        """Pass the columns of probes on."""
        self._probes.probes_with(columns)

    def probe(self, row: ProbeRow) -> None:
        """Pass a probe on."""
        self._probes.probe(row)

    def round(self, row: RoundRow) -> None:
        """Pass a closed round on."""
        self._on_round(row)

    def attempts(self, columns: Sequence[str]) -> AttemptTable:
        """Return the table for members' attempts."""
        return self._attempts(columns)

    def evaluation(self, row: EvaluationRow) -> None:
        """Pass an evaluation on, if a callback is set."""
        if self._evaluation is not None:
            self._evaluation(row)


class ProbesOfEdges(NoRecorder):
    """Recorder of the probes of all edges of a tree: their table has the columns that any of the edges fills."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._columns: set[str] = set()
        """Columns that the edges so far fill."""

    def probes_with(self, columns: Sequence[str]) -> None:
        """Add the columns of one edge."""
        self._columns |= {*columns}
        self._recorder.probes_with([name for name in ProbeRow._fields if name in self._columns])

    def probe(self, row: ProbeRow) -> None:
        """Pass a probe on."""
        self._recorder.probe(row)


_UPDATE_COLUMNS = {"term_start_s": "compute_start_s", "term_end_s": "compute_end_s"}
"""Name in `UpdateRow` of each column of `EdgeRow` that has another name there. A term is the local work of an edge."""


class EdgeAttempts:
    """Table that converts rows of edges' attempts, recorded like rows of clients, to rows of the table edges."""

    def __init__(self, columns: Sequence[str], names: Sequence[str], recorder: Recorder) -> None:
        self._columns, self._names, self._recorder = list(columns), names, recorder

    def append(self, row: tuple[Any, ...]) -> None:
        """Record one attempt of an edge, given like a row of the client table."""
        values = UpdateRow._field_defaults | dict(zip(self._columns, row, strict=True))
        for edge_column, update_column in _UPDATE_COLUMNS.items():
            values[edge_column] = values[update_column]
        # The client of this attempt is an edge, and the edge that coordinates it is the node above.
        values |= {"above": values["edge"], "edge": self._names[values["client"]]}
        edge_row = EdgeRow(**{name: values[name] for name in EdgeRow._fields})
        self._recorder.edge(edge_row)

    def extend(self, block: Block) -> None:
        """Record several attempts of edges."""
        for row in block.rows():
            self.append(tuple(getattr(row, name) for name in self._columns))

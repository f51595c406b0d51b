"""A tree of coordinators as the server of a run: the root runs the rounds of the run; edges run rounds within these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from netsim.core.jamming import add_jamming
from netsim.core.rows import ROUND_CAUSES
from netsim.records.sinks import NoRecorder
from netsim.servers.rounds.round_server import Book
from netsim.servers.tiers.edge import EdgeAttempts, NodeRecorder, ProbesOfEdges

if TYPE_CHECKING:
    from netsim.clients.pool import ClientPool
    from netsim.clients.update import Update
    from netsim.core.clock import Process
    from netsim.core.protocols import BoolArray, IntArray, Learner, Notes, State
    from netsim.core.rows import RoundRow
    from netsim.network.transport.transport import Transport
    from netsim.peers.consensus import ConsensusPhase
    from netsim.records.attempts import AttemptTable
    from netsim.records.sinks import Recorder
    from netsim.servers.rounds.loop import RoundLoop
    from netsim.servers.rounds.round_server import RoundServer
    from netsim.servers.tiers.coordinators import Coordinators
    from netsim.servers.tiers.edge import Edge
    from netsim.servers.tiers.members import SharedMedium
    from netsim.servers.tiers.moves import Moves

_EVER = float("inf")
_PROBES = ("probes", "probes_answered")
"""Columns of rounds that count probes."""


class TreeAttendance:
    """Attendance in a tree: `coordinator` (K,) is the edge of each client, `above` (E,) the edge above each edge, -1: none.

    The presence of the edges themselves does not count here: the pool of edges checks it.
    """

    def __init__(self, *, clients: ClientPool, coordinator: IntArray, above: Sequence[int]) -> None:
        self._clients, self._coordinator = clients, coordinator
        self._count = len(above)
        # Order edges from the leaves upwards, so that a single pass passes attendance on to the root.
        depth = [0] * len(above)
        for edge in range(len(above)):
            node = above[edge]
            while node >= 0:
                depth[edge] += 1
                node = above[node]
        deepest_first = sorted(range(len(above)), key=lambda edge: -depth[edge])
        self._upwards = [(edge, above[edge]) for edge in deepest_first]
        """Each edge and the edge above it, the deepest first."""

    def _with_members(self, present: BoolArray) -> BoolArray:
        """Return True (E,) for edges with one of the clients `present` (K,) among their members or those of edges below."""
        attended: BoolArray = np.zeros(self._count, np.bool_)
        attended[np.unique(self._coordinator[present])] = True
        for edge, above in self._upwards:
            if above >= 0 and attended[edge]:
                attended[above] = True
        return attended

    def attended(self) -> BoolArray:
        """Return True (E,) for edges with a client below them that can be selected now, or is busy."""
        return self._with_members(self._clients.selectable(busy_too=True))

    def ever_attended(self) -> BoolArray:
        """Return True (E,) for edges with a client below them that can be selected now or later."""
        return self._with_members(self._clients.ever_selectable())

    def next_change_s(self) -> float:
        """Return the time of the next change of a client's presence."""
        return float(self._clients.availability.next_change_s.min())


class TreeServer:
    """The server of a run with edges: `root`, whose members are edges, and all `edges`, an edge above before the edges below it.

    Counts of a round of the run are counts of clients.
    """

    waited_for_lost_s = 0.0
    standstill = ""
    transport: Transport | None = None
    consensus: ConsensusPhase | None = None

    def renew_messages(self) -> None:
        """Do nothing: there are no messages between clients."""

    def __init__(
        self,
        *,
        root: RoundServer,
        edges: Sequence[Edge],
        clients: Coordinators,
        nodes: Coordinators,
        media: Mapping[str, SharedMedium],
        moves: Moves | None = None,
    ) -> None:
        self.root, self.edges, self._nodes, self._media, self._moves = root, edges, nodes, media, moves
        self._clients = clients
        self.clients = clients.pool
        """The clients of all edges."""
        self.recorder: Recorder = NoRecorder()
        self._book = Book(self.clients)
        self._probing = [edge.server.probing for edge in edges if edge.server.probing is not None]
        """Probes of clients, of each edge that asks before it selects."""
        self._before = self._tree_counts()
        """Counts of the tree at the last record."""
        self._columns: list[str] = []
        """Columns of rounds that the root fills."""
        self._begun = False
        """True once the first round has begun."""
        root.loop.let_outlast()
        nodes.pool.follow(lambda attempt: edges[attempt.client].on_end(attempt))

    @property
    def moves(self) -> Moves | None:
        """Moves of clients between edges; None if no client ever moves."""
        return self._moves

    @property
    def leaves(self) -> set[str | None]:
        """Names of the edges whose members are clients."""
        return set(self._clients.views)

    @property
    def nodes(self) -> ClientPool:
        """The edges, as clients of the nodes above them."""
        return self._nodes.pool

    def leave(self, edges: IntArray) -> None:
        """Take `edges` (n,) away, with all that they do."""
        self.nodes.leave(edges)
        for edge in edges.tolist():
            self.edges[edge].leave()

    def begin_term(self, attempt: Update) -> None:
        """Callback of the pool of edges when the model of `attempt` arrives at its edge: begin a term."""
        self.edges[attempt.client].begin(attempt)

    @property
    def round(self) -> int:
        """Number of rounds of the root that have closed."""
        return self.root.round

    @property
    def loop(self) -> RoundLoop:
        """The rounds of the root."""
        return self.root.loop

    @property
    def learner(self) -> Learner:
        """Learner of the root's model."""
        return self.root.learner

    @property
    def in_flight(self) -> int:
        """Number of attempts of clients in flight."""
        return self.clients.under_way

    def end_after(self, rounds: int) -> None:
        """Make `rounds` the last round of the run: its model is evaluated."""
        self.root.end_after(rounds)

    def run_round(self) -> Process[None]:
        """Run one round of the root, as a process of the clock. Raises NobodyLeftError if no further round is possible."""
        if not self._begun:
            self._begun = True
            if self._moves is not None:
                self._moves.begin()
        return self.root.run_round()

    def _states_bytes(self) -> int:
        """Return the bytes of clients' states sent between edges so far."""
        states = None if self._moves is None else self._moves.rule.states
        return 0 if states is None else states.bytes

    def _tree_counts(self) -> dict[str, int]:
        """Return the counts of attempts of edges, of bytes between coordinators, and of probes since the start of the run, by
        column of rounds. `Book` counts the attempts of clients.
        """
        pool = self._nodes.pool
        counts = {
            "edges_selected": pool.started,
            "edges_delivered": pool.ended["delivered"],
            "backhaul_bytes": pool.life.bytes_down + pool.life.bytes_up + self._states_bytes(),
        }
        return counts | self._probe_counts()

    def _probe_counts(self) -> dict[str, int]:
        """Return the probes and answers of all edges since the start of the run; nothing if no edge asks."""
        if not self._probing:
            return {}
        counts_of_edges = [probing.counts() for probing in self._probing]
        return {name: sum(counts[name] for counts in counts_of_edges) for name in _PROBES}

    def _on_round(self, row: RoundRow) -> None:
        """Record a round of the root, with counts of clients and of edges since the last round."""
        now, before = self._tree_counts(), self._before
        self._before = now
        changes = {name: count - before[name] for name, count in now.items()}
        columns = {name: getattr(row, name) for name in self._columns}
        self.recorder.round(
            self._book.row(
                round=row.round,
                start_s=row.start_s,
                end_s=row.end_s,
                version=row.version,
                evaluation=None,
                columns=columns | changes,
            )
        )

    def counts(self) -> dict[str, int]:
        """Return the counts since the start of the run, including the round under way."""
        counts = self._book.counts()
        for instrument in self.root.loop.instruments:
            counts = add_jamming(counts, instrument.counts())
        return counts | self._probe_counts()

    def listen_to_slots(self, on_open: Callable[[int], None]) -> None:
        """Do nothing: a tree has no slots."""

    def notes(self) -> Notes:
        """Return no notes: the tables contain everything."""
        return {}

    def record_to(self, recorder: Recorder) -> None:
        """Send all records to `recorder` from now on."""
        self.recorder = recorder
        self._columns = [*self.root.loop.round_columns, *ROUND_CAUSES]
        recorder.rounds_with(self._book.choose((*self._columns, *self._tree_counts())))
        names = [edge.name for edge in self.edges]

        def edge_attempts(columns: Sequence[str]) -> AttemptTable:
            """Return a table that turns attempts of edges into rows of the table edges."""
            return EdgeAttempts(columns, names, recorder)

        self.root.record_to(NodeRecorder(self._on_round, edge_attempts, recorder.evaluation))
        with_edges_below, probes = {edge.above for edge in self.edges}, ProbesOfEdges(recorder)
        for edge in self.edges:
            # Members of an edge are edges, or clients.
            attempts = edge_attempts if edge.name in with_edges_below else recorder.attempts
            edge.record_to(recorder, attempts, probes)

    def record_unfinished(self) -> None:
        """Record attempts that have not ended, at the end of the run."""
        for server in (self.root, *(edge.server for edge in self.edges)):
            server.record_unfinished()

    def state_dict(self) -> State:
        """Return the state at a boundary of the root's rounds; edges may be within a round."""
        return {
            "media": {name: medium.whole_state() for name, medium in self._media.items()},
            "clients": self.clients.state_dict(),
            "nodes": self._nodes.pool.state_dict(),
            "root": self.root.state_dict(),
            "edges": [edge.state_dict() for edge in self.edges],
            "book": self._book.state_dict(),
            "before": dict(self._before),
            "moves": None if self._moves is None else self._moves.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Load a state; the clock must be at the time of the state."""
        # Media before pools, whose updates resume on them; pools before coordinators, which look their attempts up there.
        for name, medium in self._media.items():
            medium.load_whole(state["media"][name], self.clients.clock.now)
        self.clients.load_state_dict(state["clients"])
        self._nodes.pool.load_state_dict(state["nodes"])
        self.root.load_state_dict(state["root"])
        for edge, saved in zip(self.edges, state["edges"], strict=True):
            edge.load_state_dict(saved)
        self._book.load_state_dict(state["book"])
        self._before = dict(state["before"])
        self._begun = True
        if self._moves is not None:
            self._moves.load_state_dict(state["moves"])

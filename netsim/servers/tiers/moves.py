"""Clients that move from edge to edge: at times that are known before the run, or as a script says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from netsim.clients.steps.stages import COMPUTE, DOWNLOAD
from netsim.core.clock import FIRST
from netsim.core.state import StateFields

if TYPE_CHECKING:
    from netsim.clients.update import Update
    from netsim.core.protocols import IntArray, State
    from netsim.servers.tiers.coordinators import Coordinators
    from netsim.servers.tiers.edge import Edge
    from netsim.servers.tiers.state_transfers import StateTransfers

_EVER = float("inf")
Moving = Literal["lost", "finishes", "handed-over", "with-state"]


class Move(NamedTuple):
    """A client that belongs to another edge from `time_s` on."""

    time_s: float
    client: int
    edge: int


def _stay(client: int, edge: int) -> None:
    """Do nothing: links of a client are the same at every edge."""


@dataclass(frozen=True, kw_only=True)
class MoveRule:
    """Fate of an update that a client is making or sending as it moves.

    "lost": its attempt ends as aborted, cause `moved`. "finishes": it goes on and arrives at the edge that began it; the new edge
    may select the client after that. "handed-over": its attempt ends as aborted, cause `handed-over`, and goes on in an attempt
    of the new edge, which takes it as it arrives; what was being sent is sent again. "with-state": likewise, once `states` has
    carried the client's state from the old edge to the new one. Then and with "handed-over", an update whose model has not
    arrived at its client is lost.
    """

    moving: Moving = "lost"
    states: StateTransfers | None = None
    """Transfers of states between edges, for "with-state"."""
    connect: Callable[[int, int], None] = _stay
    """Callback with a client and the edge with which it exchanges messages from now on."""
    check: Callable[[int, int], None] = _stay
    """Callback with a client and an edge to which a script moves it; raises an error if no message passes between them."""


class Moves(StateFields):
    """Moves of clients between edges, in the order of time; `nodes` are the edges as clients of the nodes above.

    `anywhere`: any client may move to any edge of clients, by `move`; otherwise the `moves` are all.

    `coordinator` (K,): the edge of each client, updated at each move. A move comes first in its instant: a client that ends an
    update in the same instant has moved already.

    The version of an update that is handed over becomes that of the new edge's model at the time at which the update began. So it
    has the age of an update that a member of the new edge began at that time.
    """

    state_fields = ("_next", "_versions", "_left", "_coordinator")

    def __init__(
        self,
        *,
        moves: Sequence[Move],
        clients: Coordinators,
        nodes: Coordinators,
        coordinator: IntArray,
        edges: Sequence[Edge],
        rule: MoveRule,
        anywhere: bool = False,
    ) -> None:
        self._moves = sorted(moves)
        self._clients, self._nodes, self._coordinator, self._edges, self.rule = clients, nodes, coordinator, edges, rule
        self._numbers = {edge.name: number for number, edge in enumerate(edges)}
        """Number of each edge, by its name."""
        self._next = 0
        """Place of the next move."""
        leaves = [number for number, edge in enumerate(edges) if edge.name in clients.views]
        self._visits: Mapping[int, Sequence[int]] = (
            dict.fromkeys(range(len(coordinator)), leaves) if anywhere else self._edges_by_client()
        )
        """Edges to which each client may move, by client."""
        self._versions: dict[int, dict[int, int]] = {}
        """Versions of the models of all edges that a client visits, as its update began; by client and edge."""
        self._left: dict[int, tuple[str, float]] = {}
        """Phase of each update whose client's state is under way, and the seconds that are left of it; by client."""
        for view in (*clients.views.values(), *nodes.views.values()):
            view.moves_s = self.next_s
        clients.pool.begin_followers.append(self._on_begin)
        clients.pool.follow(self._on_end)
        if rule.states is not None:
            rule.states.listen(self._on_state)

    def _edges_by_client(self) -> dict[int, list[int]]:
        """Return the distinct edges to which each client moves, in order."""
        visits: dict[int, dict[int, None]] = {}
        for move in self._moves:
            visits.setdefault(move.client, {})[move.edge] = None
        return {client: list(edges) for client, edges in visits.items()}

    def begin(self) -> None:
        """Schedule the first move; called as the run begins."""
        self._schedule()

    def next_s(self) -> float:
        """Return the time of the next move; inf: there is none."""
        return self._moves[self._next].time_s if self._next < len(self._moves) else _EVER

    def _schedule(self) -> None:
        """Put the next move on the clock."""
        if self._next < len(self._moves):
            self._clients.pool.clock.call_at(self.next_s(), self._on_due, priority=FIRST)

    def _on_due(self, payload: object) -> None:
        """Callback at the time of a move: apply all moves of this instant, and schedule the next ones."""
        due = []
        while self.next_s() == self._clients.pool.clock.now:
            due.append(self._moves[self._next])
            self._next += 1
        self._schedule()
        self._carry_out(due)

    def move(self, clients: Sequence[int], edge: int) -> None:
        """Move `clients` to `edge` now. They stay there until they move again."""
        now = self._clients.pool.clock.now
        for client in clients:
            self.rule.check(client, edge)
        self._carry_out([Move(now, client, edge) for client in clients])

    def _carry_out(self, moves: Sequence[Move]) -> None:
        """Apply `moves`, all of this instant; unless updates finish where they began, take them from the clients' old edges."""
        # First all memberships, then the updates: an attempt that ends may let an edge choose again, by its present members.
        for move in moves:
            self._apply(move.client, move.edge)
        pool, moved = self._clients.pool, [move.client for move in moves]
        if self.rule.moving != "finishes":
            for client in moved:
                update = pool.alive_now.get(client)
                if update is not None and update.edge != self._edges[self._coordinator[client]].name:
                    self._take_from_edge(update)
        pool.on_move(np.array(moved, np.int64))
        # Nodes above check again which edges have members.
        self._nodes.pool.on_move(np.zeros(0, np.int64))

    # Updates of clients that move

    def _on_begin(self, round: int, clients: IntArray, version: int, steps: IntArray | None) -> None:
        """Callback as updates begin: note the present versions of the edges to which their clients may move."""
        name = self._clients.pool.coordinator
        for client in clients.tolist():
            if client in self._visits and name is not None:
                self._versions[client] = {edge: self._edges[edge].models.version for edge in self._visits[client]}
                self.rule.connect(client, self._numbers[name])

    def _take_from_edge(self, update: Update) -> None:
        """End the attempt of an update whose client has moved. It is lost, or goes on in an attempt of the client's new edge."""
        pool, client = self._clients.pool, update.client
        now = pool.clock.now
        if self.rule.moving == "lost" or update.phase == DOWNLOAD:
            pool.life.end(update, "aborted", now, "moved")
            return
        assert update.edge is not None
        source, target = self._numbers[update.edge], int(self._coordinator[client])
        old, new = self._edges[source], self._edges[target]
        phase, left_s = update.phase, _EVER
        # If the client leaves before its training ends, `due_s` is its departure, and the training never ends.
        if phase == COMPUTE and update.due_s < update.departure_s:
            left_s = update.due_s - now
        # The new edge keeps the model from which the update began before the attempt ends, because the old edge may drop it then.
        version = self._versions[client][target]
        new.models.adopt(client, update.begun_round, version, old.models, update.version)
        successor = update.successor()
        pool.life.end(update, "aborted", now, "handed-over")
        self.rule.connect(client, target)
        new.members.take_over(successor, round=new.server.loop.round + 1, version=version)
        if self.rule.states is None:
            pool.life.go_on(successor, phase, left_s, now)
        else:
            self._left[client] = phase, left_s
            pool.life.await_state(successor, now)
            self.rule.states.begin(client, source, target)

    def _on_state(self, client: int, cause: str | None) -> None:
        """Callback as the state of a client has arrived at its edge, or is lost for `cause`."""
        phase, left_s = self._left.pop(client)
        pool = self._clients.pool
        update, now = pool.alive_now[client], pool.clock.now
        if now == update.departure_s:
            pool.life.leave(update, now)
        elif cause is not None:
            pool.life.end(update, "lost", now, cause)
        else:
            pool.life.receive_state(update, phase, left_s, now)

    def _on_end(self, update: Update) -> None:
        """Callback at the end of an attempt: drop what was kept for it.

        If its client has moved meanwhile, call the watchers of the new edge, which may wait for this client.
        """
        client = update.client
        if client in self._left:
            del self._left[client]
            assert self.rule.states is not None
            self.rule.states.cancel(client)
        if update.handed_over and update.censored and update.edge is not None:
            self._edges[self._numbers[update.edge]].models.drop(client, update.begun_round, update.version)
        present_edge = self._edges[self._coordinator[client]].name
        if update.edge != present_edge:
            for watch in list(self._clients.views[present_edge].watchers):
                watch()

    def _apply(self, client: int, edge: int) -> None:
        """Make `client` a member of `edge`. Do nothing if it is one already."""
        views, old_edge = self._clients.views, int(self._coordinator[client])
        if edge == old_edge:
            return
        views[self._edges[old_edge].name].move(client, comes=False)
        views[self._edges[edge].name].move(client, comes=True)
        self._coordinator[client] = edge

    def state_dict(self) -> State:
        """Return the place of the next move, the edges of clients, and states under way."""
        states = self.rule.states
        return super().state_dict() | {"states": None if states is None else states.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Load the state of a run under way, and bring all clients to their edges."""
        super().load_state_dict(state)
        # Servers have restored their own state: they must not note these clients as come or gone.
        for name, view in self._clients.views.items():
            assert name is not None
            view.is_member[:] = self._coordinator == self._numbers[name]
        for client in self._visits:
            update = self._clients.pool.alive_now.get(client)
            if update is not None and update.edge is not None:
                self.rule.connect(client, self._numbers[update.edge])
        if self.rule.states is not None:
            self.rule.states.load_state_dict(state["states"])
        self._schedule()

"""Clients that move from edge to edge, at times that are known before the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from netsim.core.clock import FIRST
from netsim.core.state import StateFields

if TYPE_CHECKING:
    from netsim.clients.update import Update
    from netsim.core.protocols import IntArray, State
    from netsim.servers.tiers.coordinators import Coordinators

_EVER = float("inf")
Moving = Literal["lost", "finishes"]


class Move(NamedTuple):
    """A client that belongs to another edge from `time_s` on."""

    time_s: float
    client: int
    edge: int


class Moves(StateFields):
    """Moves of clients between edges, in the order of time; `nodes` are the edges as clients of the nodes above.

    `coordinator` (K,): the edge of each client, updated at each move. `names` (E,): of edges. `moving`: fate of an update that
    the client is making or sending as it moves. "lost": the attempt ends as aborted, cause `moved`. "finishes": the update goes
    on, and arrives at the edge that began it; the new edge may select the client after that.

    A move comes first in its instant: a client that ends an update in the same instant has moved already.
    """

    state_fields = ("_next",)

    def __init__(
        self,
        *,
        moves: Sequence[Move],
        clients: Coordinators,
        nodes: Coordinators,
        coordinator: IntArray,
        names: Sequence[str],
        moving: Moving,
    ) -> None:
        self._moves = sorted(moves)
        self._clients, self._nodes, self._coordinator, self._names = clients, nodes, coordinator, names
        self._moving = moving
        self._home = coordinator.copy()
        self._next = 0
        """Place of the next move."""
        for view in (*clients.views.values(), *nodes.views.values()):
            view.moves_s = self.next_s
        clients.pool.follow(self._on_end)

    def begin(self) -> None:
        """Schedule the first move; called as the run begins."""
        self._schedule()

    def next_s(self) -> float:
        """Return the time of the next move; inf: there is none."""
        return self._moves[self._next].time_s if self._next < len(self._moves) else _EVER

    def _schedule(self) -> None:
        if self._next < len(self._moves):
            self._clients.pool.clock.call_at(self.next_s(), self._move, priority=FIRST)

    def _move(self, payload: object) -> None:
        moved = []
        while self.next_s() == self._clients.pool.clock.now:
            moved.append(self._moves[self._next].client)
            self._apply(self._moves[self._next])
            self._next += 1
        self._schedule()
        pool = self._clients.pool
        if self._moving == "lost":
            for client in moved:
                update = pool.alive_now.get(client)
                if update is not None and update.edge != self._names[self._coordinator[client]]:
                    pool.life.end(update, "aborted", pool.clock.now, "moved")
        pool.on_move(np.array(moved, np.int64))
        # Nodes above check again which edges have members.
        self._nodes.pool.on_move(np.zeros(0, np.int64))

    def _on_end(self, update: Update) -> None:
        """Callback at the end of an attempt: call the watchers of the new edge of a client that moved, which may wait for it."""
        edge = self._names[self._coordinator[update.client]]
        if update.edge != edge:
            for watch in list(self._clients.views[edge].watchers):
                watch()

    def _apply(self, move: Move) -> None:
        views, before = self._clients.views, int(self._coordinator[move.client])
        views[self._names[before]].mine[move.client] = False
        views[self._names[move.edge]].mine[move.client] = True
        self._coordinator[move.client] = move.edge

    def load_state_dict(self, state: State) -> None:
        """Load the state of a run under way, and repeat all moves so far: the state holds only their number."""
        super().load_state_dict(state)
        # All clients start at home, wherever they are in this object.
        for client, edge in enumerate(self._home.tolist()):
            self._apply(Move(0.0, client, edge))
        for move in self._moves[: self._next]:
            self._apply(move)
        self._schedule()

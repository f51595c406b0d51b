"""Edges that a script takes away, and to which it moves clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from scenarios.schema.errors import UserError, did_you_mean
from scenarios.wiring.script.values import plain

if TYPE_CHECKING:
    from netsim.clients.absences import Absences
    from netsim.clients.update import Drawn
    from netsim.core.protocols import IntArray
    from netsim.servers.tiers.tree import TreeServer

SomeEdges: TypeAlias = "str | Sequence[str] | None"
"""Edges: a name, several names, or None for all."""


class ScriptedEdges:
    """The edges of a run. `absences`: the presence that takes them away. `coordinator` (K,): the edge of each client."""

    def __init__(self, *, server: TreeServer, absences: Absences, coordinator: IntArray) -> None:
        self._server, self.absences, self._coordinator = server, absences, coordinator
        self.names = [edge.name for edge in server.edges]

    def numbers_of(self, edges: SomeEdges) -> IntArray | None:
        """Return the numbers (n,) of the edges with these names; None, for all, if `edges` is None.

        Raises UserError for no name, a name twice, and a name that no edge has.
        """
        if edges is None:
            return None
        names = [edges] if isinstance(edges, str) else plain(edges)
        if not isinstance(names, list | tuple) or not names or len(set(names)) < len(names):
            raise UserError(f"edges = {edges!r}: must be the name of an edge, or several names, each once")
        for name in names:
            if name not in self.names:
                raise UserError(f"edges: {name!r} is no edge; {did_you_mean(str(name), self.names)}")
        return np.array([self.names.index(name) for name in names], np.int64)

    def edge_of(self, client: int) -> str:
        """Return the name of the present edge of `client`."""
        return str(self.names[self._coordinator[client]])

    def move(self, clients: Sequence[int], edge: str) -> None:
        """Move `clients` to `edge` now; raises UserError for an edge that has no clients as members."""
        leaves = [name for name in self.names if name in self._server.leaves]
        if edge not in leaves:
            raise UserError(f"edge = {edge!r}: is no edge of clients; {did_you_mean(edge, leaves)}")
        assert self._server.moves is not None
        self._server.moves.move(clients, self.names.index(edge))

    def take_away(self, edges: IntArray) -> None:
        """Take `edges` (n,) away now, with all that their members do for them."""
        self._server.nodes.advance()
        self.absences.take(edges)
        self._server.leave(edges)

    def bring_back(self, edges: IntArray) -> None:
        """End one absence of each of `edges` (n,)."""
        self._server.nodes.advance()
        self.absences.bring_back(edges)
        self._server.nodes.on_move(edges)

    def renew(self, name: Drawn) -> None:
        """Evaluate the draws `name` of models on their way to and from edges again, as `ClientPool.renew` does."""
        self._server.nodes.renew(name)

    def on_return(self) -> None:
        """Handle the return of clients: nodes above check again which edges have members."""
        self._server.nodes.on_move(np.zeros(0, np.int64))

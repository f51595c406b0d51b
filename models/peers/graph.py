"""Graph of peers: an undirected graph as flat arrays over its directed edges, so that a million clients fit.

A link is two directed edges, one each way. A quantity of a directed edge (a latency, a message) is an array (E,) in the order
of the edges. The edges into one client are contiguous, so that sums and maxima over its incoming messages take one pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.errors import ParameterError

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PeerGraph:
    """Undirected graph of K clients, E directed edges, sorted by (target, source). Built by `from_links`; read only."""

    clients: int
    source: IntArray
    """(E,) sender of each directed edge."""
    target: IntArray
    """(E,) receiver of each directed edge; ascending."""
    reverse: IntArray
    """(E,) position of the edge in the other direction."""
    starts: IntArray
    """(K+1,) the edges into client n are those from starts[n] to starts[n+1] - 1."""
    distance_km: FloatArray
    """(E,) length of each edge."""
    positions_km: FloatArray | None
    """(K, 2) places of the clients; None if only distances are known."""
    address: IntArray
    """(E,) number of each edge for addressed draws, a permutation of 0..E-1 that orders links by their higher client.

    So the links of one more client at the end come last and renumber none. The draws of an exchange are `uniforms(k,
    E)[address]`.
    """
    linked: IntArray
    """Clients with at least one neighbour, ascending."""

    @classmethod
    def from_links(
        cls,
        *,
        clients: int,
        links: IntArray,
        distance_km: FloatArray | None = None,
        positions_km: FloatArray | None = None,
        allow_disconnected: bool = False,
    ) -> PeerGraph:
        """Return a graph from its links (L, 2), each named once, in either direction.

        `distance_km` (L,); None: the distances between `positions_km` (K, 2).

        Raises:
            ParameterError: clients out of range, a link of a client with itself, a link named twice, distances that are
                negative or not finite, and, unless `allow_disconnected`, a graph in more than one piece.
        """
        if clients < 1:
            raise ParameterError("clients", clients, "must be >= 1")
        low, high = _check_links(links, clients)
        positions = _check_positions(positions_km, clients)
        length = _check_lengths(distance_km, positions, low, high)
        # Links in the order of their higher client, then of the lower: equal links follow each other.
        by_high = np.argsort(high * clients + low)
        low, high, length = low[by_high], high[by_high], length[by_high]
        repeated = np.flatnonzero((np.diff(low) == 0) & (np.diff(high) == 0))
        if repeated.size:
            first = repeated[0]
            shown = f" names {low[first]}-{high[first]} twice"
            raise ParameterError("links", links, "each link must be named once", shown=shown)
        # In the order of addresses: edge 2l goes up link l (from the lower client to the higher), edge 2l + 1 comes down. So the
        # address of the edge in the other direction differs in the last bit. `address` sorts the edges by (target, source).
        up_and_down = np.stack((low, high), axis=1)
        source, target = up_and_down.ravel(), up_and_down[:, ::-1].ravel()
        address = np.argsort(target * clients + source)
        position = np.empty_like(address)
        position[address] = np.arange(len(address))
        degree = np.bincount(target, minlength=clients)
        graph = cls(
            clients=clients,
            source=source[address],
            target=target[address],
            reverse=position[address ^ 1],
            starts=np.concatenate(([0], np.cumsum(degree))).astype(np.int64),
            distance_km=np.repeat(length, 2)[address],
            positions_km=positions,
            address=address,
            linked=np.flatnonzero(degree),
        )
        for array in (graph.source, graph.target, graph.reverse, graph.starts, graph.distance_km, graph.address, graph.linked):
            array.setflags(write=False)
        if not allow_disconnected:
            graph._require_connected()
        return graph

    def _require_connected(self) -> None:
        """Raise ParameterError if the graph is in several pieces."""
        sizes = np.bincount(self.components())
        if len(sizes) > 1:
            reason = (
                f"the graph of {self.clients} clients is in {len(sizes)} pieces, the smallest of {sizes.min()}; "
                "must be connected (more links), or allow_disconnected = true"
            )
            raise ParameterError("allow_disconnected", False, reason)

    @property
    def edges(self) -> int:
        """E, the number of directed edges: twice the number of links."""
        return len(self.source)

    @property
    def degree(self) -> IntArray:
        """(K,) number of neighbours of each client."""
        return np.diff(self.starts)

    def components(self) -> IntArray:
        """Return the number, from 0, of the piece of each client; (K,)."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        matrix = csr_array((np.ones(self.edges, np.int8), self.source, self.starts), shape=(self.clients, self.clients))
        _, labels = connected_components(matrix, directed=False)
        return np.asarray(labels, np.int64)

    def incoming(self, client: int) -> slice:
        """Return the positions, among the E edges, of the edges into `client`, in the order of its neighbours' numbers."""
        return slice(int(self.starts[client]), int(self.starts[client + 1]))

    def outgoing(self, clients: IntArray) -> IntArray:
        """Return the positions of all edges that leave `clients` (n,): client by client, neighbours by number."""
        first = self.starts[clients]
        counts = self.starts[clients + 1] - first
        # Place of each client's first edge in the result; the sum below counts up from `first` of the client.
        begins = np.cumsum(counts) - counts
        return self.reverse[np.repeat(first - begins, counts) + np.arange(int(counts.sum()))]

    def sum_incoming(self, values: FloatArray) -> FloatArray:
        """Return the sums over the edges into each client of `values` (E,); shape (K,), 0 for a client without neighbours."""
        sums = np.zeros(self.clients)
        # reduceat cannot handle empty segments: clients without neighbours are left out.
        if self.edges:
            sums[self.linked] = np.add.reduceat(values, self.starts[self.linked])
        return sums

    def max_incoming(self, values: FloatArray) -> FloatArray:
        """Return the maxima over the edges into each client of `values` (E,); shape (K,), -inf for a client without neighbours.
        """
        maxima = np.full(self.clients, -math.inf)
        if self.edges:
            maxima[self.linked] = np.maximum.reduceat(values, self.starts[self.linked])
        return maxima


def _check_links(links: IntArray, clients: int) -> tuple[IntArray, IntArray]:
    """Return the lower and the higher client (L,) of each link. Raises ParameterError for clients out of range, or a loop."""
    pairs = np.asarray(links, np.int64).reshape(-1, 2)
    low, high = pairs.min(axis=1), pairs.max(axis=1)
    outside = np.flatnonzero((low < 0) | (high >= clients))
    if outside.size:
        link = tuple(pairs[outside[0]].tolist())
        raise ParameterError("links", link, f"clients must lie in 0..{clients - 1}", shown=f" has {link}")
    loops = np.flatnonzero(low == high)
    if loops.size:
        link = tuple(pairs[loops[0]].tolist())
        raise ParameterError("links", link, "a client has no link with itself", shown=f" has {link}")
    return low, high


def _check_lengths(distance_km: FloatArray | None, positions: FloatArray | None, low: IntArray, high: IntArray) -> FloatArray:
    """Return the length (L,) of each link in km, as given or between the `positions` (K, 2) of its ends."""
    if distance_km is not None:
        length = np.asarray(distance_km, np.float64)
        if length.shape != low.shape:
            reason = f"must be {low.shape}, one distance a link"
            raise ParameterError("distance_km", length, reason, shown=f" has shape {length.shape}")
    elif positions is not None:
        offset = positions[low] - positions[high]
        length = np.hypot(offset[:, 0], offset[:, 1])
    else:
        raise ParameterError("distance_km", None, "must be given where there are no positions")
    wrong = np.flatnonzero(~(np.isfinite(length) & (length >= 0)))
    if wrong.size:
        link = int(wrong[0])
        wrong_length = float(length[link])
        shown = f" = {wrong_length!r} of link {low[link]}-{high[link]}"
        raise ParameterError("distance_km", wrong_length, "must be finite and >= 0 km", shown=shown)
    return length


def _check_positions(positions_km: FloatArray | None, clients: int) -> FloatArray | None:
    """Return `positions_km` (K, 2), read only. Raises ParameterError for another shape, or a number that is not finite."""
    if positions_km is None:
        return None
    positions = np.array(positions_km, np.float64)
    if positions.shape != (clients, 2):
        raise ParameterError(
            "positions_km", positions, f"must be ({clients}, 2), a point for each client", shown=f" has shape {positions.shape}"
        )
    if not np.isfinite(positions).all():
        reason = "must be a point in the plane for each client"
        raise ParameterError("positions_km", positions, reason, shown=" is not finite everywhere")
    positions.setflags(write=False)
    return positions

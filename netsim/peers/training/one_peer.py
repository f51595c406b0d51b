"""One-peer exponential graphs (Ying et al., "Exponential Graph is Provably Efficient for Decentralized Deep Training", 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from netsim.core.errors import ParameterError
from netsim.peers.training.exchange import Exchange, ExchangeProtocol, Order, RetryS, TimeoutS

if TYPE_CHECKING:
    from netsim.peers.training.protocol import Host


class OnePeer(ExchangeProtocol):
    """D-PSGD with one neighbour a round: in round r peer i sends to i + s, modulo n, with the stride s = 2^((r - 1) mod q).

    There are q = ceil(log2 n) strides. A peer combines its own model and the one that arrives, each by a half, so that W_r is
    doubly stochastic. Where n is a power of two, q rounds of combining alone give all peers the exact mean. The graph must hold
    the links of all strides, as the topologies `exponential` and `complete` do.

    The rounds are those of the overlay `models.overlays.exponential.OnePeerExponential`, which counts them from 0.
    """

    mixes = False

    def __init__(self, *, order: Order = "train-first", retry_s: RetryS = None, timeout_s: TimeoutS = None) -> None:
        super().__init__(order=order, retry_s=retry_s, timeout_s=timeout_s)

    def attach(self, host: Host) -> None:
        """Find the edge of each stride into each peer; raises ParameterError if a link is missing."""
        super().attach(host)
        graph, peers = host.graph, np.arange(host.graph.clients)
        # Edges are sorted by (target, source).
        keys = graph.target * graph.clients + graph.source
        self._incoming: list[list[int]] = []
        """Edge into each peer, by stride."""
        for power in range((graph.clients - 1).bit_length()):
            sources = (peers - (1 << power)) % graph.clients
            needed = peers * graph.clients + sources
            places = np.searchsorted(keys, needed)
            missing = peers
            if len(keys):
                # The search returns len(keys) for a key above all others: look at the last one then, which differs.
                is_missing = keys[np.minimum(places, len(keys) - 1)] != needed
                missing = np.flatnonzero(is_missing)
            if missing.size:
                peer = int(missing[0])
                reason = f"needs a link between peers {sources[peer]} and {peer}; choose peers.topology.kind = 'exponential'"
                raise ParameterError("kind", "one-peer", reason)
            self._incoming.append(places.tolist())

    def exchange(self, peer: int, round: int) -> Exchange:
        """Return the one message that `peer` sends and the one that it awaits in `round`."""
        if not self._incoming:
            return Exchange([], [], [], 1.0)
        power = (round - 1) % len(self._incoming)
        edges = self._incoming[power]
        # The edge that leaves the peer is the one into the peer that lies a stride ahead.
        ahead = (peer + (1 << power)) % len(edges)
        return Exchange(outgoing=[edges[ahead]], incoming=[edges[peer]], weights=[0.5], own=0.5)

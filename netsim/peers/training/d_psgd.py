"""D-PSGD (Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms?", NeurIPS 2017), over links with a clock.

Each peer has a barrier of its own: it begins round r + 1 once it has its neighbours' messages of round r.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from annotated_doc import Doc

from netsim.core.errors import ParameterError
from netsim.peers.training.exchange import Exchange, ExchangeProtocol, Order, RetryS, TimeoutS

if TYPE_CHECKING:
    from netsim.peers.training.protocol import Host


class DPsgd(ExchangeProtocol):
    """Each round a peer trains, sends a model to all neighbours, waits for theirs, and combines them by the mixing weights.

    A model that is missing as the peer goes on is replaced by the peer's own: its weight goes to oneself, and rows of W still
    sum to 1.
    """

    def __init__(
        self,
        *,
        order: Order = "train-first",
        retry_s: RetryS = None,
        timeout_s: TimeoutS = None,
        backup: Annotated[int, Doc("Neighbours that a peer does not wait for: it goes on once all but so many are there.")] = 0,
    ) -> None:
        super().__init__(order=order, retry_s=retry_s, timeout_s=timeout_s)
        if backup < 0:
            raise ParameterError("backup", backup, "must be >= 0")
        self.backup = backup

    def attach(self, host: Host) -> None:
        """Note the messages of each peer: the edges with a weight. Raises ParameterError if `backup` lets nobody wait."""
        super().attach(host)
        most = max(map(len, host.neighbours))
        if self.backup and self.backup >= most:
            raise ParameterError("backup", self.backup, f"must be below {most}, the most neighbours that a peer has")
        own_weights, edge_weights = host.mixing.own.tolist(), host.mixing.edge.tolist()
        self._exchanges = []
        # A model of weight 0 is neither sent nor awaited: weights in one direction only make the graph directed.
        for peer, edges in enumerate(host.neighbours):
            outgoing = [edge for edge in host.outgoing(peer) if edge_weights[edge]]
            incoming = [edge for edge in edges if edge_weights[edge]]
            weights = [edge_weights[edge] for edge in incoming]
            self._exchanges.append(Exchange(outgoing, incoming, weights, own_weights[peer]))

    def exchange(self, peer: int, round: int) -> Exchange:
        """Return the messages and weights of `peer`, the same in every round."""
        return self._exchanges[peer]

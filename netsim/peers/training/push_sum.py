"""Stochastic gradient push (Assran, Loizou, Ballas and Rabbat, "Stochastic Gradient Push for Distributed Deep Learning", ICML
2019), with the push-sum weights of Kempe, Dobra and Gehrke, 2003.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from netsim.peers.training.exchange import Exchange, ExchangeProtocol, RetryS, TimeoutS

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray, IntArray
    from netsim.peers.training.protocol import Arrival, Host


class PushSum(ExchangeProtocol):
    """Each round a peer trains, and pushes equal parts of its sum and of its weight to its neighbours and to itself.

    A peer has a sum x and a weight w, 1 at first; its model is x / w. Training adds its step to x. Then each of its d neighbours
    and the peer itself get x / (d + 1) and w / (d + 1), and add up what they get. Columns of the weights sum to 1: sums are kept,
    and the models agree on the mean though peers have different numbers of neighbours, which no peer needs to know of others.
    What arrives late is added in the next round; what is lost takes its weight along.
    """

    mixes = False
    state_fields = ("_weight", "_part", "_weights", "_late")

    def __init__(self, *, retry_s: RetryS = None, timeout_s: TimeoutS = None) -> None:
        super().__init__(order="train-first", retry_s=retry_s, timeout_s=timeout_s)

    def attach(self, host: Host) -> None:
        """Create the parts that peers keep, which are their first models with weight 1, and lists of parts that arrive."""
        super().attach(host)
        peers = len(host.neighbours)
        # Weights are not those of `Exchange`: they come with the parts (`mix`).
        self._exchanges = [
            Exchange(outgoing=host.outgoing(peer), incoming=edges, weights=(), own=0.0)
            for peer, edges in enumerate(host.neighbours)
        ]
        self._weight: FloatArray = np.ones(peers)
        """(K,) weight w of each peer; between sending and combining, the part that the peer keeps."""
        self._part: IntArray = host.model.copy()
        """(K,) part of the sum x that each peer has kept, between sending and combining."""
        self._weights: list[dict[tuple[int, int], float]] = [{} for _ in range(peers)]
        """Weights that arrived at each peer with messages not combined yet, by round and edge."""
        self._late: list[list[tuple[int, float]]] = [[] for _ in range(peers)]
        """Parts of earlier rounds that arrived at each peer since it last combined, and their weights."""

    def begin(self, peer: int) -> None:
        """Begin an own round. A part kept in a round that was not combined, because the peer was away, counts as late."""
        if self._ready[peer] and self._sent[peer] != self.host.round[peer]:
            # Without the part that it kept then, the sum over all peers would shrink.
            self._late[peer].append((int(self._part[peer]), float(self._weight[peer])))
            self._weight[peer] = 0.0
        super().begin(peer)

    def exchange(self, peer: int, round: int) -> Exchange:
        """Return the messages of `peer`, the same in every round."""
        return self._exchanges[peer]

    def send(self, peer: int, round: int, model: int) -> None:
        """Divide sum and weight into equal parts, keep one and send the others."""
        host, outgoing = self.host, self._exchanges[peer].outgoing
        share, weight = 1.0 / (1 + len(outgoing)), float(self._weight[peer])
        # Training began with the model m = x / w and ended with n: the new sum is x + (n - m) = w m + (n - m).
        part = host.combine([model, int(host.model[peer])], [share, share * (weight - 1.0)])
        self._part[peer], self._weight[peer] = part, share * weight
        host.send_model(peer, outgoing, key=round, model=part, attached=share * weight)

    def on_message(self, arrival: Arrival) -> None:
        """Keep the weight that comes with a part."""
        self._weights[arrival.peer][arrival.key, arrival.edge] = arrival.attached
        super().on_message(arrival)

    def on_late(self, peer: int, edge: int, model: int) -> None:
        """Keep a part of an earlier round, which the next combination adds. It is the oldest of its edge whose weight is kept."""
        weights = self._weights[peer]
        oldest_round = min(round for round, arrived_over in weights if arrived_over == edge)
        self._late[peer].append((model, weights.pop((oldest_round, edge))))

    def mix(self, peer: int, round: int, model: int, arrived: dict[int, int]) -> tuple[list[int], list[float]]:
        """Return the parts that the peer adds up, with weights that turn their sum into the model x / w."""
        weights = self._weights[peer]
        parts = [(int(self._part[peer]), float(self._weight[peer])), *self._late[peer]]
        parts += [(arrived[edge], weights.pop((round, edge))) for edge in sorted(arrived)]
        self._late[peer] = []
        # The new sum is that of all parts; dividing each by the new weight w gives the model x / w.
        new_weight = sum(weight for _, weight in parts)
        self._weight[peer] = new_weight
        return [part for part, _ in parts], [1.0 / new_weight] * len(parts)

    def kept(self) -> Iterable[int]:
        """Return the models in use, parts kept and late parts included."""
        late_parts = [part for late in self._late for part, _ in late]
        return [*super().kept(), *self._part.tolist(), *late_parts]

"""CHOCO-SGD (Koloskova, Stich and Jaggi, "Decentralized Stochastic Optimization and Gossip Algorithms with Compressed
Communication", ICML 2019).

Peers send compressed differences to copies of their models that all their neighbours keep: what a message leaves out is in the
next difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_doc import Doc

from netsim.core.errors import ParameterError
from netsim.peers.training.exchange import Exchange, ExchangeProtocol, Order, RetryS

if TYPE_CHECKING:
    from netsim.core.protocols import IntArray
    from netsim.peers.training.protocol import Host

_SYMMETRIC = 1e-9
"""Largest accepted difference between the weights of the two directions of a link."""


class Choco(ExchangeProtocol):
    """Each round a peer trains, sends C(y - v) to its neighbours, and steps towards their copies.

    y is its model after training, v its public copy, which it and its neighbours keep, and C the compression of
    `payload.compression`. Then v += C(y - v) at all of them, and x = y + gamma sum_j W_ij (v_j - v_i). In the order
    combine-while-computing, the difference is that of the model of before, and the step of training is added at the end.

    A peer keeps two vectors beside its model: v, and the sum of W_ij v_j over its neighbours. Copies begin at the model that all
    peers begin with. A copy that lacks a difference would stay wrong, so lost messages are sent again until they arrive; the
    differences that a peer has missed while it was away are added once they are there.
    """

    sends_differences = True
    state_fields = ("_public", "_around")

    def __init__(
        self,
        *,
        gamma: Annotated[
            float,
            Doc("Step towards the neighbours' copies, > 0 and at most 1. The coarser the compression, the smaller it must be."),
        ],
        order: Order = "train-first",
        retry_s: RetryS = None,
    ) -> None:
        super().__init__(order=order, retry_s=retry_s, timeout_s=None)
        if not 0 < gamma <= 1:
            raise ParameterError("gamma", gamma, "must be > 0 and <= 1")
        self.gamma = gamma

    def check(self, *, lossy: bool) -> None:
        """Raise ParameterError if a lost message would make the copies of a model differ for good."""
        if lossy and self.retry_s is None:
            reason = "a message may be lost, or a peer be away, and the copies of a model would differ for good; give retry_s"
            raise ParameterError("retry_s", None, reason)

    def attach(self, host: Host) -> None:
        """Create the copies; raises ParameterError for weights that differ between the directions of a link."""
        super().attach(host)
        weights = host.mixing.edge
        if np.abs(weights - weights[host.graph.reverse]).max(initial=0.0) > _SYMMETRIC:
            reason = "needs the same weight in both directions of a link; choose server.mixing.kind = 'metropolis'"
            raise ParameterError("kind", "choco", reason)
        self._weight: list[float] = weights.tolist()
        """[E] weight of each edge."""
        self._exchanges = []
        """Messages of each peer, the same in every round."""
        for peer, incoming in enumerate(host.neighbours):
            incoming_weights = [self._weight[edge] for edge in incoming]
            self._exchanges.append(Exchange(host.outgoing(peer), incoming, incoming_weights, host.mixing.own.item(peer)))
        self._public: IntArray = host.model.copy()
        """(K,) public copy v of each peer's model, kept by the peer."""
        sums_around = []
        for exchange in self._exchanges:
            copies = host.model[host.graph.source[exchange.incoming]].tolist()
            sums_around.append(host.combine(copies, exchange.weights))
        self._around: IntArray = np.array(sums_around, np.int64)
        """(K,) weighted sum of the public copies of each peer's neighbours."""

    def exchange(self, peer: int, round: int) -> Exchange:
        """Return the messages of `peer`, the same in every round."""
        return self._exchanges[peer]

    def send(self, peer: int, round: int, model: int) -> None:
        """Send the difference of `model` to the public copy, and add to the copy what receivers get of it."""
        # Add what receivers get, not the difference itself: the own copy must stay equal to theirs.
        host, public = self.host, int(self._public[peer])
        difference = host.combine([model, public], [1.0, -1.0])
        arriving = host.send_model(peer, self._exchanges[peer].outgoing, round, difference)
        self._public[peer] = host.combine([public, arriving], [1.0, 1.0])

    def mix(self, peer: int, round: int, model: int, arrived: dict[int, int]) -> tuple[list[int], list[float]]:
        """Add the differences that `arrived`, by edge, to the neighbours' copies; return models and weights of the step towards
        them.
        """
        self._add(peer, arrived)
        # x = y + gamma (sum_j W_ij v_j - (1 - W_ii) v_i), since the weights of the neighbours sum to 1 - W_ii.
        own = self._exchanges[peer].own
        gamma, around = self.gamma, int(self._around[peer])
        return [model, around, int(self._public[peer])], [1.0, gamma, gamma * (own - 1.0)]

    def on_late(self, peer: int, edge: int, model: int) -> None:
        """Add a difference of an earlier round, which the copies must not lack."""
        self._add(peer, {edge: model})

    def _add(self, peer: int, differences: dict[int, int]) -> None:
        """Add differences that have arrived at `peer`, by edge, to the copies of its neighbours."""
        edges = sorted(differences)
        models = [int(self._around[peer]), *(differences[edge] for edge in edges)]
        weights = [1.0, *(self._weight[edge] for edge in edges)]
        self._around[peer] = self.host.combine(models, weights)

    def kept(self) -> Iterable[int]:
        """Return the models in use, public copies and their sums included."""
        return [*super().kept(), *self._public.tolist(), *self._around.tolist()]

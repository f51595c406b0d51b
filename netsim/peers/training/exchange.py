"""Rounds of training and exchange, with a barrier at each peer: base of protocols that combine by weights (`DPsgd`, `Matcha`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
from annotated_doc import Doc

from netsim.core.errors import ParameterError
from netsim.peers.training.barrier import Barrier
from netsim.peers.training.protocol import Arrival, Host, TrainingProtocol

if TYPE_CHECKING:
    from netsim.core.protocols import BoolArray, IntArray

Order = Annotated[
    Literal["combine-while-computing", "train-first"],
    Doc(
        "train-first: train, send what came of it, combine; a round takes training and exchange one after the other. "
        "combine-while-computing: send the model of before, train meanwhile, add the step to the combined models (the "
        "paper's Algorithm 1); a round takes the longer of the two."
    ),
]
RetryS = Annotated[
    float | None, Doc("Seconds after which a lost message is sent again, until it arrives; absent: as [peers] says.")
]
TimeoutS = Annotated[
    float | None, Doc("Longest wait of a peer for its neighbours, from the end of its training; absent: no limit.")
]


class Exchange(NamedTuple):
    """Messages of a peer in one of its rounds, and the weights by which it combines what arrives."""

    outgoing: Sequence[int]
    """Edges over which it sends its model."""
    incoming: Sequence[int]
    """Edges over which it awaits models."""
    weights: Sequence[float]
    """Weight of the model of each incoming edge."""
    own: float
    """Weight of its own model."""


class ExchangeProtocol(TrainingProtocol):
    """Each round a peer trains, sends a model to its neighbours of that round, waits for theirs, and combines them by weights.

    Subclasses say which edges are used in a round, and with which weights (`exchange`). A model that is missing as the peer goes
    on is replaced by the peer's own: its weight goes to oneself, and rows of W still sum to 1.
    """

    state_fields = ("_barrier", "_own", "_trained", "_ready")
    backup = 0
    """Messages of a round that a peer does not wait for."""

    def __init__(self, *, order: Order, retry_s: float | None, timeout_s: float | None) -> None:
        if order not in ("combine-while-computing", "train-first"):
            raise ParameterError("order", order, "must be 'combine-while-computing' or 'train-first'")
        for name, value in (("retry_s", retry_s), ("timeout_s", timeout_s)):
            if value is not None and not 0 < value < float("inf"):
                raise ParameterError(name, value, "must be > 0 seconds and finite")
        self.order, self.retry_s, self.timeout_s = order, retry_s, timeout_s

    def exchange(self, peer: int, round: int) -> Exchange:
        """Return the messages and weights of `peer` in its own `round`; always the same for the same round."""
        raise NotImplementedError

    def check(self, *, lossy: bool) -> None:
        if lossy and self.retry_s is None and self.timeout_s is None and not self.backup:
            reason = "a message may be lost, or a peer be away, and a neighbour would wait for ever; give retry_s or timeout_s"
            raise ParameterError("timeout_s", None, reason)

    def attach(self, host: Host) -> None:
        super().attach(host)
        peers = len(host.neighbours)
        self._barrier = Barrier(peers)
        self._own: IntArray = np.zeros(peers, np.int64)
        """(K,) model that each peer sent in its round."""
        self._trained: IntArray = np.zeros(peers, np.int64)
        self._ready: BoolArray = np.zeros(peers, np.bool_)
        """(K,) True for peers whose training of this round is over."""
        self._first = self.order == "train-first"

    def begin(self, peer: int) -> None:
        host = self.host
        self._ready[peer] = False
        if not self._first:
            self._own[peer] = model = int(host.model[peer])
            round = int(host.round[peer])
            host.send_model(peer, self.exchange(peer, round).outgoing, round, model)
        host.train(peer)

    def on_trained(self, peer: int, model: int) -> None:
        host, round = self.host, int(self.host.round[peer])
        self._ready[peer] = True
        self._trained[peer] = model
        if self._first:
            self._own[peer] = model
            host.send_model(peer, self.exchange(peer, round).outgoing, round, model)
        if self.timeout_s is not None:
            host.call_in(self.timeout_s, peer, round)
        self._go_on(peer)

    def on_message(self, arrival: Arrival) -> None:
        self._barrier.add(arrival, int(self.host.round[arrival.peer]))
        self._go_on(arrival.peer)

    def on_timer(self, peer: int, key: int) -> None:
        if self._ready[peer] and key == self.host.round[peer]:
            self._barrier.time_out(peer)
            self._go_on(peer)

    def on_leave(self, peer: int) -> None:
        # It keeps what has arrived: nobody sends that again.
        self._ready[peer] = False

    def _go_on(self, peer: int) -> None:
        host, round = self.host, int(self.host.round[peer])
        if not self._ready[peer]:
            return
        _, incoming, edge_weights, own = self.exchange(peer, round)
        if not self._barrier.is_open(peer, round, len(incoming) - self.backup):
            return
        arrived = self._barrier.take(peer, round)
        self._ready[peer] = False
        models, weights = [int(self._own[peer])], [own]
        for edge, weight in zip(incoming, edge_weights, strict=True):
            model = arrived.get(edge)
            if model is None:
                own += weight
            else:
                models.append(model)
                weights.append(weight)
        weights[0] = own
        if not self._first:
            # The step of the local training is added to the combined models.
            models += [int(self._trained[peer]), int(self._own[peer])]
            weights += [1.0, -1.0]
        self._own[peer] = self._trained[peer] = combined = host.combine(models, weights)
        host.finish(peer, combined)

    def kept(self) -> Iterable[int]:
        return [*self._barrier.models(), *self._own.tolist(), *self._trained.tolist()]

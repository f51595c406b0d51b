"""D-PSGD (Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms?", NeurIPS 2017), over links with a clock.

Each peer has a barrier of its own: it begins round r + 1 once it has its neighbours' messages of round r.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from annotated_doc import Doc

from netsim.core.errors import ParameterError
from netsim.peers.training.barrier import Barrier
from netsim.peers.training.protocol import Arrival, Host, TrainingProtocol

if TYPE_CHECKING:
    from netsim.core.protocols import BoolArray, IntArray

Order = Literal["combine-while-computing", "train-first"]


class DPsgd(TrainingProtocol):
    """Each round a peer trains, sends a model to all neighbours, waits for theirs, and combines them by the mixing weights.

    A model that is missing as the peer goes on is replaced by the peer's own: its weight goes to oneself, and rows of W still
    sum to 1.
    """

    state_fields = ("_barrier", "_own", "_trained", "_ready")

    def __init__(
        self,
        *,
        order: Annotated[
            Order,
            Doc(
                "train-first: train, send what came of it, combine; a round takes training and exchange one after the other. "
                "combine-while-computing: send the model of before, train meanwhile, add the step to the combined models (the "
                "paper's Algorithm 1); a round takes the longer of the two."
            ),
        ] = "train-first",
        retry_s: Annotated[
            float | None, Doc("Seconds after which a lost message is sent again, until it arrives; absent: as [peers] says.")
        ] = None,
        timeout_s: Annotated[
            float | None, Doc("Longest wait of a peer for its neighbours, from the end of its training; absent: no limit.")
        ] = None,
        backup: Annotated[int, Doc("Neighbours that a peer does not wait for: it goes on once all but so many are there.")] = 0,
    ) -> None:
        if order not in ("combine-while-computing", "train-first"):
            raise ParameterError("order", order, "must be 'combine-while-computing' or 'train-first'")
        for name, value in (("retry_s", retry_s), ("timeout_s", timeout_s)):
            if value is not None and not 0 < value < float("inf"):
                raise ParameterError(name, value, "must be > 0 seconds and finite")
        if backup < 0:
            raise ParameterError("backup", backup, "must be >= 0")
        self.order, self.retry_s, self.timeout_s, self.backup = order, retry_s, timeout_s, backup

    def check(self, *, lossy: bool) -> None:
        if lossy and self.retry_s is None and self.timeout_s is None and not self.backup:
            reason = "a message may be lost, or a peer be away, and a neighbour would wait for ever; give retry_s or timeout_s"
            raise ParameterError("timeout_s", None, reason)

    def attach(self, host: Host) -> None:
        super().attach(host)
        peers = len(host.neighbours)
        degree = np.array([len(edges) for edges in host.neighbours], np.int64)
        self._barrier = Barrier(np.maximum(degree - self.backup, 0))
        self._own: IntArray = np.zeros(peers, np.int64)
        """(K,) model that each peer sent in its round."""
        self._trained: IntArray = np.zeros(peers, np.int64)
        self._ready: BoolArray = np.zeros(peers, np.bool_)
        """(K,) True for peers whose training of this round is over."""
        self._first = self.order == "train-first"
        self._base: list[float] = host.mixing.own.tolist()
        self._weight: list[float] = host.mixing.edge.tolist()

    def begin(self, peer: int) -> None:
        host = self.host
        self._ready[peer] = False
        if not self._first:
            self._own[peer] = model = int(host.model[peer])
            host.send_model(peer, host.outgoing(peer), int(host.round[peer]), model)
        host.train(peer)

    def on_trained(self, peer: int, model: int) -> None:
        host, round = self.host, int(self.host.round[peer])
        self._ready[peer] = True
        self._trained[peer] = model
        if self._first:
            self._own[peer] = model
            host.send_model(peer, host.outgoing(peer), round, model)
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
        if not (self._ready[peer] and self._barrier.is_open(peer, round)):
            return
        arrived = self._barrier.take(peer, round)
        self._ready[peer] = False
        models, weights, own = [int(self._own[peer])], [self._base[peer]], self._base[peer]
        for edge in host.neighbours[peer]:
            model = arrived.get(edge)
            if model is None:
                own += self._weight[edge]
            else:
                models.append(model)
                weights.append(self._weight[edge])
        weights[0] = own
        if not self._first:
            # The step of the local training is added to the combined models.
            models += [int(self._trained[peer]), int(self._own[peer])]
            weights += [1.0, -1.0]
        self._own[peer] = self._trained[peer] = combined = host.combine(models, weights)
        host.finish(peer, combined)

    def kept(self) -> Iterable[int]:
        return [*self._barrier.models(), *self._own.tolist(), *self._trained.tolist()]

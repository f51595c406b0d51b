"""Rounds of training and exchange, with a barrier at each peer: base of protocols that combine by weights (`DPsgd`, `Matcha`)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from annotated_doc import Doc

from netsim.core.errors import ParameterError
from netsim.peers.training.barrier import Barrier, opening_times_s
from netsim.peers.training.protocol import Arrival, Host, TrainingProtocol

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray, IntArray

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


def check_waits(retry_s: float | None, timeout_s: float | None) -> None:
    """Raise ParameterError for a wait that is not a time."""
    for name, value in (("retry_s", retry_s), ("timeout_s", timeout_s)):
        if value is not None and not 0 < value < float("inf"):
            raise ParameterError(name, value, "must be > 0 seconds and finite")


class Exchange(NamedTuple):
    """Messages of a peer in one of its rounds, and the weights by which it combines what arrives."""

    outgoing: Sequence[int]
    """Edges over which the peer sends its model."""
    incoming: Sequence[int]
    """Edges over which the peer awaits models."""
    weights: Sequence[float]
    """Weight of the model of each incoming edge."""
    own: float
    """Weight of the peer's own model."""


class ExchangeProtocol(TrainingProtocol):
    """Each round a peer trains, sends a model to its neighbours of that round, waits for theirs, and combines them by weights.

    Subclasses say which edges are used in a round, and with which weights (`exchange`). A model that is missing as the peer goes
    on is replaced by the peer's own: its weight goes to oneself, and rows of W still sum to 1.
    """

    state_fields: ClassVar[tuple[str, ...]] = ("_barrier", "_own", "_trained", "_ready", "_sent")
    backup = 0
    """Messages of a round that a peer does not wait for."""

    def __init__(self, *, order: Order, retry_s: float | None, timeout_s: float | None) -> None:
        if order not in ("combine-while-computing", "train-first"):
            raise ParameterError("order", order, "must be 'combine-while-computing' or 'train-first'")
        check_waits(retry_s, timeout_s)
        self.order, self.retry_s, self.timeout_s = order, retry_s, timeout_s

    @abstractmethod
    def exchange(self, peer: int, round: int) -> Exchange:
        """Return the messages and weights of `peer` in its own `round`; always the same for the same round."""

    def send(self, peer: int, round: int, model: int) -> None:
        """Send the `model` of `peer` to its neighbours of `round`."""
        self.host.send_model(peer, self.exchange(peer, round).outgoing, round, model)

    def mix(self, peer: int, round: int, model: int, arrived: dict[int, int]) -> tuple[list[int], list[float]]:
        """Return (models, weights) whose sum is the `model` of `peer` combined with the models that have `arrived`, by edge.

        A missing model counts as the peer's own.
        """
        _, incoming, edge_weights, own = self.exchange(peer, round)
        if len(arrived) == len(incoming):
            return [model, *(arrived[edge] for edge in incoming)], [own, *edge_weights]
        models, weights = [model], [own]
        for edge, weight in zip(incoming, edge_weights, strict=True):
            if edge in arrived:
                models.append(arrived[edge])
                weights.append(weight)
            else:
                own += weight
        weights[0] = own
        return models, weights

    def on_late(self, peer: int, edge: int, model: int) -> None:
        """Handle a model of an earlier round than the round of `peer`, which arrived over `edge`; by default it is not used."""

    def check(self, *, lossy: bool) -> None:
        """Raise ParameterError if a lost message would let a neighbour wait for ever."""
        if lossy and self.retry_s is None and self.timeout_s is None and not self.backup:
            reason = "a message may be lost, or a peer be away, and a neighbour would wait for ever; give retry_s or timeout_s"
            raise ParameterError("timeout_s", None, reason)

    def attach(self, host: Host) -> None:
        """Create the barrier and the state of each peer."""
        super().attach(host)
        peers = len(host.neighbours)
        self._barrier = Barrier(peers)
        # Lists, not arrays: each message reads one number of each.
        self._own = [0] * peers
        """Model that each peer sent in its round."""
        self._trained = [0] * peers
        """Model that the last training of each peer made."""
        self._ready = [False] * peers
        """True for peers whose training of this round is over."""
        self._sent = [0] * peers
        """Last round in which each peer has sent its model."""
        self._trains_first = self.order == "train-first"

    def begin(self, peer: int) -> None:
        """Begin an own round: train; if models are combined while computing, send the present one first.

        A peer that was away while it waited for its neighbours returns to that wait.
        """
        host, round = self.host, self.host.round.item(peer)
        if self._has_trained(peer, round):
            # The peer was away while it waited, and returns to the same round.
            self._wait(peer, round)
            return
        self._ready[peer] = False
        # A peer that was away while it trained has sent its model already, and trains again.
        has_sent = self._sent[peer] == round
        if not self._trains_first and not has_sent:
            self._own[peer] = model = int(host.model[peer])
            self._sent[peer] = round
            self.send(peer, round, model)
        host.train(peer)

    def _has_trained(self, peer: int, round: int) -> bool:
        """Return True if `peer` has trained and sent its model in its own `round`, and has not gone on."""
        return self._ready[peer] and self._sent[peer] == round

    def rests(self, peer: int, round: int) -> bool:
        """Return True if `peer` would only wait on after its return."""
        return self._has_trained(peer, round) and self.timeout_s is None

    def on_trained(self, peer: int, model: int) -> None:
        """Send the trained model (unless the one before was sent), and wait for the neighbours."""
        round = self.host.round.item(peer)
        self._ready[peer] = True
        self._trained[peer] = model
        if self._trains_first:
            self._own[peer] = model
            self._sent[peer] = round
            self.send(peer, round, model)
        self._wait(peer, round)

    def _wait(self, peer: int, round: int) -> None:
        """Wait for the neighbours of `peer`, whose training of its own `round` is over."""
        # The timer first: combining begins the next round, which may set a timer of its own.
        if self.timeout_s is not None:
            self.host.call_in(self.timeout_s, peer, round)
        self._combine_if_open(peer, round)

    def on_message(self, arrival: Arrival) -> None:
        """Keep a model of the present or a later round, and go on if it was the last one needed."""
        peer = arrival.peer
        round = self.host.round.item(peer)
        if not self._barrier.add(arrival, round):
            self.on_late(peer, arrival.edge, arrival.model)
        elif self._ready[peer]:
            self._combine_if_open(peer, round)

    def on_timer(self, peer: int, key: int) -> None:
        """Go on without the models that are missing."""
        if self._ready[peer] and key == self.host.round[peer]:
            self._barrier.time_out(peer)
            self._combine_if_open(peer, key)

    def _combine_if_open(self, peer: int, round: int) -> None:
        """Combine the models of a `peer` that is ready in its own `round`, and finish the round, if its barrier is open."""
        host = self.host
        needed = len(self.exchange(peer, round).incoming) - self.backup
        if not self._barrier.is_open(peer, round, needed):
            return
        # Late models first: protocols that add them (`PushSum`, `Choco`) do so before this round is combined.
        arrived, late = self._barrier.take(peer, round)
        for edge, model in late:
            self.on_late(peer, edge, model)
        self._ready[peer] = False
        models, weights = self.mix(peer, round, self._own[peer], arrived)
        if not self._trains_first:
            # Add the step of the local training, trained model less the model before, to the combined models.
            models += [self._trained[peer], self._own[peer]]
            weights += [1.0, -1.0]
        self._own[peer] = self._trained[peer] = combined = host.combine(models, weights)
        host.finish(peer, combined)

    def foresee(
        self, round: int, begins_s: FloatArray, trained_s: FloatArray, arrivals_s: Callable[[IntArray, FloatArray], FloatArray]
    ) -> FloatArray | None:
        """Return when each peer finishes its `round`, seconds (K,): when its barrier opens. None with a timeout or `backup`."""
        if self.timeout_s is not None or self.backup:
            return None
        graph, peers = self.host.graph, range(len(begins_s))
        outgoing = chain.from_iterable([self.exchange(peer, round).outgoing for peer in peers])
        edges = np.fromiter(outgoing, np.int64)
        sends_s = trained_s if self._trains_first else begins_s
        arrived_s = arrivals_s(edges, sends_s[graph.source[edges]])
        return opening_times_s(trained_s, graph.target[edges], arrived_s)

    def awaited(self, peer: int) -> Sequence[int]:
        """Return the edges over which a model of the present round is missing, if `peer` waits; none if it trains."""
        if not self._ready[peer]:
            return ()
        round = int(self.host.round[peer])
        return self._barrier.missing(peer, round, self.exchange(peer, round).incoming)

    def kept(self) -> Iterable[int]:
        """Return the models at barriers, and those sent and trained in the present round."""
        return [*self._barrier.models(), *self._own, *self._trained]

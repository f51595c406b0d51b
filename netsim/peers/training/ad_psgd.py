"""AD-PSGD (Lian, Zhang, Zhang and Liu, "Asynchronous Decentralized Parallel Stochastic Gradient Descent", ICML 2018)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_doc import Doc

from netsim.core.errors import ParameterError
from netsim.peers.training.exchange import RetryS, check_waits
from netsim.peers.training.protocol import Arrival, Host, TrainingProtocol

if TYPE_CHECKING:
    from netsim.core.protocols import BoolArray, IntArray

_NONE = -1


class AdPsgd(TrainingProtocol):
    """Peers train, each at its own pace, and average with one random neighbour at a time; there are no rounds to wait for.

    After a training peer i sends its model to a neighbour j as a request, and j answers with its own model. As the answer
    arrives, both models become their mean, and i adds the step of its training. That step is stale if the model of i has changed
    meanwhile. j may be in training; it adds its own step when that ends.

    Exchanges are atomic: between its answer and the end of the exchange j answers no other peer, and adds no step. Requests that
    come meanwhile wait in their order. If the answer is lost, neither side averages, so the sum of all models is kept.

    Peers that wait for each other in a circle would wait for ever. So the graph must be bipartite: peers of one half (that of
    peer 0) ask, the others only train and answer. With `bipartite` false all peers ask, and a peer gives up after `timeout_s`: it
    adds its step and goes on.
    """

    every_peer = False
    mixes = False
    state_fields = ("_start", "_trained", "_ready", "_asked", "_number", "_answering", "_theirs", "_queue")

    def __init__(
        self,
        *,
        bipartite: Annotated[
            bool, Doc("True: one half of a bipartite graph asks, the other answers; false: all ask, and timeout_s is needed.")
        ] = True,
        retry_s: RetryS = None,
        timeout_s: Annotated[
            float | None, Doc("Longest wait of a peer for an answer, after which it goes on without; absent: no limit.")
        ] = None,
    ) -> None:
        check_waits(retry_s, timeout_s)
        if not bipartite and timeout_s is None:
            reason = "peers that all ask may wait for each other in a circle, for ever; give timeout_s, or bipartite = true"
            raise ParameterError("timeout_s", None, reason)
        self.bipartite, self.retry_s, self.timeout_s = bipartite, retry_s, timeout_s

    def check(self, *, lossy: bool) -> None:
        """Raise ParameterError if a lost message would let a peer wait for ever."""
        if lossy and self.retry_s is None and self.timeout_s is None:
            reason = "a message may be lost, or a peer be away, and one that asked would wait for ever; give retry_s or timeout_s"
            raise ParameterError("timeout_s", None, reason)

    def attach(self, host: Host) -> None:
        """Create the state of each peer; raises ParameterError if the graph must be bipartite and is not."""
        super().attach(host)
        peers = len(host.neighbours)
        self._asks: BoolArray = _first_half(host) if self.bipartite else np.ones(peers, np.bool_)
        """(K,) True for peers of the half that sends requests."""
        self._reverse: list[int] = host.graph.reverse.tolist()
        self._start: IntArray = host.model.copy()
        """(K,) model that each peer's training began with."""
        self._trained: IntArray = host.model.copy()
        """(K,) model that each peer's last training made."""
        self._ready: BoolArray = np.zeros(peers, np.bool_)
        """(K,) True for peers whose training has ended and whose step is not added yet."""
        self._asked: IntArray = np.full(peers, _NONE)
        """(K,) edge over which each peer awaits an answer; -1: it awaits none."""
        self._number: IntArray = np.zeros(peers, np.int64)
        """(K,) number of requests that each peer has sent, which is the number of its last request."""
        self._answering: IntArray = np.full(peers, _NONE)
        """(K,) edge over which the answer of each peer is on its way; -1: no answer is."""
        self._theirs: IntArray = host.model.copy()
        """(K,) model of the peer that gets the answer."""
        self._queue: list[list[tuple[int, int, int]]] = [[] for _ in range(peers)]
        """Queue of requests at each peer: edge, number, model."""

    # An exchange in four steps. (1) Peer i sends request number n with its model, key 2 n (`_ask_or_add_step`). (2) Peer j queues
    # it, and answers with its own model, key 2 n + 1, once no other exchange holds it (`_answer`); from then on it is locked. (3)
    # As the answer arrives, both models become their mean in one event, which makes the exchange atomic (`on_message`). (4) j is
    # released: it adds the step that it held back, and answers the next request (`_release`); i adds its own step.

    def begin(self, peer: int) -> None:
        """Train from the present model, and answer a waiting request meanwhile."""
        self._start[peer] = self.host.model[peer]
        self.host.train(peer)
        self._answer(peer)

    def on_trained(self, peer: int, model: int) -> None:
        """Keep the trained model, and ask a neighbour or add the step."""
        self._trained[peer], self._ready[peer] = model, True
        self._ask_or_add_step(peer)

    def _ask_or_add_step(self, peer: int) -> None:
        """Ask a random neighbour after a training, or add the step if `peer` does not ask. Do nothing while it answers a request:
        `_release` calls this again.
        """
        host, edges = self.host, self.host.outgoing(peer)
        if self._answering[peer] != _NONE:
            return
        if not (self._asks[peer] and edges):
            self._add_step(peer)
            return
        self._number[peer] += 1
        number = int(self._number[peer])
        chosen = edges[int(host.uniforms("ad-psgd-neighbour", peer, number) * len(edges))]
        self._asked[peer] = self._reverse[chosen]
        host.send_model(peer, [chosen], 2 * number, int(host.model[peer]))
        if self.timeout_s is not None:
            host.call_in(self.timeout_s, peer, number)

    def on_message(self, arrival: Arrival) -> None:
        """Queue a request; or take an answer: average both models, release the other peer, and add the own step.

        An answer to a request that has timed out changes no model.
        """
        # The key of request n is 2 n, that of its answer 2 n + 1.
        peer, number = arrival.peer, arrival.key >> 1
        if not arrival.key & 1:
            self._queue[peer].append((arrival.edge, number, arrival.model))
            self._answer(peer)
            return
        model, other = self.host.model, arrival.sender
        is_awaited = self._asked[peer] != _NONE and number == self._number[peer]
        if is_awaited:
            # Each side averages its present model with what it got of the other's, compressed as it may be.
            mine, theirs = int(model[peer]), int(model[other])
            model[other] = self.host.combine([theirs, int(self._theirs[other])], [0.5, 0.5])
            model[peer] = self.host.combine([mine, arrival.model], [0.5, 0.5])
            self._asked[peer] = _NONE
        self._release(other, arrival.edge)
        if is_awaited:
            self._add_step(peer)

    def on_lost(self, peer: int, edge: int, key: int) -> None:
        """Release a peer whose answer is lost."""
        if key & 1:
            self._release(peer, edge)

    def on_timer(self, peer: int, key: int) -> None:
        """Give up the request if its answer has not come, and add the step."""
        if self._asked[peer] != _NONE and key == self._number[peer]:
            self._asked[peer] = _NONE
            self._add_step(peer)

    def on_leave(self, peer: int) -> None:
        """Drop the peer's own request and training; requests of other peers wait until it returns."""
        self._asked[peer], self._ready[peer] = _NONE, False

    def _answer(self, peer: int) -> None:
        """Answer the next request that waits at `peer`. Do nothing if none waits, or if the peer is in an exchange."""
        is_free = self._answering[peer] == _NONE and self._asked[peer] == _NONE
        if self._queue[peer] and is_free:
            edge, number, model = self._queue[peer].pop(0)
            back = self._reverse[edge]
            self._answering[peer], self._theirs[peer] = back, model
            self.host.send_model(peer, [back], 2 * number + 1, int(self.host.model[peer]))

    def _release(self, peer: int, edge: int) -> None:
        """End the exchange in which `peer` has answered over `edge`: add the step that it held back, and answer the next request.
        """
        if self._answering[peer] == edge:
            self._answering[peer] = _NONE
            # Its own step before the next answer, which would hold the step back again.
            if self._ready[peer]:
                self._ask_or_add_step(peer)
            self._answer(peer)

    def _add_step(self, peer: int) -> None:
        """Add the step of a training to the present model of `peer`, and begin the next."""
        host, start, trained = self.host, int(self._start[peer]), int(self._trained[peer])
        self._ready[peer] = False
        present = int(host.model[peer])
        # Present model + (trained model - model before). If no exchange came between, that is the trained model itself.
        model = trained
        if present != start:
            model = host.combine([present, trained, start], [1.0, 1.0, -1.0])
        host.finish(peer, model)

    def awaited(self, peer: int) -> Sequence[int]:
        """Return the edge over which `peer` awaits an answer, or the end of an exchange that holds its step back."""
        if self._asked[peer] != _NONE:
            return [int(self._asked[peer])]
        answering = int(self._answering[peer])
        if self._ready[peer] and answering != _NONE:
            # Its step waits until the other peer of its exchange has its answer.
            return [self._reverse[answering]]
        return ()

    def kept(self) -> Iterable[int]:
        """Return the models of requests, trainings and exchanges under way."""
        requested = [model for queue in self._queue for _, _, model in queue]
        return [*requested, *self._start.tolist(), *self._trained.tolist(), *self._theirs.tolist()]


def _first_half(host: Host) -> BoolArray:
    """Return (K,) True for one half of a bipartite graph: the half of the first peer of each connected piece.

    Raises ParameterError for a graph that is not bipartite.
    """
    graph, peers = host.graph, host.graph.clients
    # Half of each peer, 1 or 0; _NONE: not reached yet.
    sources, half = graph.source.tolist(), np.full(peers, _NONE)
    for first in range(peers):
        if half[first] != _NONE:
            continue
        # Breadth-first search of one connected piece: neighbours are in different halves. The list grows while it is read.
        half[first], reached = 1, [first]
        for peer in reached:
            for edge in host.neighbours[peer]:
                other = sources[edge]
                if half[other] == half[peer]:
                    reason = (
                        f"needs a bipartite graph, and peers {other} and {peer} of one half are linked; choose another "
                        "peers.topology (a ring of an even number, a grid, a tree), or bipartite = false with timeout_s"
                    )
                    raise ParameterError("bipartite", True, reason)
                if half[other] == _NONE:
                    half[other] = 1 - half[peer]
                    reached.append(other)
    is_first_half: BoolArray = half == 1
    return is_first_half

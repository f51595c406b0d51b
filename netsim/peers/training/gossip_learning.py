"""Gossip learning: models walk at random among the peers, and each peer that one comes to merges it with its own and trains.

Source: Ormandi, Hegedus and Jelasity, "Gossip learning with linear models on fully distributed data", 2013, Algorithms 1 and 2;
weights by age: Hegedus, Danner and Jelasity, "Gossip learning as a decentralized alternative to federated learning", 2019.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from annotated_doc import Doc

from netsim.core.errors import ParameterError
from netsim.peers.training.protocol import Arrival, Host, TrainingProtocol

if TYPE_CHECKING:
    from netsim.core.protocols import BoolArray, IntArray

Variant = Literal["merge-update", "update", "update-merge"]
Merge = Literal["mean", "by-age"]
_LEAST_SHARE = 0.01
"""Least time between two messages of a peer, as a share of the mean: the normal law has no least value."""


class GossipLearning(TrainingProtocol):
    """Peers train once, then send their model to a random neighbour every period, and train whenever a model arrives.

    Models that arrive during a training wait for its end, in the order of their arrival. The age of a model counts its trainings:
    a merged model has the larger of two ages, and each training adds one. Each own round of a peer is one training.
    """

    every_peer = False
    mixes = False
    never_rests = True
    state_fields = ("_inbox", "_age", "_sent", "_timed", "_busy", "_own", "_received")

    def __init__(
        self,
        *,
        period_s: Annotated[float, Doc("Mean seconds between two messages of a peer.")],
        spread: Annotated[
            float, Doc("Standard deviation of the normal law of these seconds, as a share of their mean; drawn each time.")
        ] = 0.1,
        variant: Annotated[
            Variant,
            Doc(
                "merge-update: merge the model that arrived with the own one, then train; update: train the one that arrived in "
                "place of the own; update-merge: train the own, then the one that arrived, and merge them: two trainings."
            ),
        ] = "merge-update",
        merge: Annotated[
            Merge, Doc("mean: both models count by a half; by-age: each counts by the number of its trainings.")
        ] = "mean",
    ) -> None:
        if not 0 < period_s < float("inf"):
            raise ParameterError("period_s", period_s, "must be > 0 seconds and finite")
        if not 0 <= spread < 1:
            raise ParameterError("spread", spread, "must be >= 0 and < 1")
        if variant not in ("merge-update", "update", "update-merge"):
            raise ParameterError("variant", variant, "must be 'merge-update', 'update' or 'update-merge'")
        if merge not in ("mean", "by-age"):
            raise ParameterError("merge", merge, "must be 'mean' or 'by-age'")
        self.period_s, self.spread, self.variant, self.merge = period_s, spread, variant, merge

    def attach(self, host: Host) -> None:
        """Create the state of each peer."""
        super().attach(host)
        peers = len(host.neighbours)
        self._inbox: list[list[tuple[int, int]]] = [[] for _ in range(peers)]
        """Models, each with its age, that wait for the end of each peer's training."""
        self._age: IntArray = np.zeros(peers, np.int64)
        """(K,) age of each peer's model."""
        self._sent: IntArray = np.zeros(peers, np.int64)
        """(K,) messages that each peer has sent."""
        self._timed: BoolArray = np.zeros(peers, np.bool_)
        """(K,) True for peers with a timer that runs."""
        self._busy: BoolArray = np.zeros(peers, np.bool_)
        """(K,) True for peers in training."""
        self._received: list[tuple[int, int] | None] = [None] * peers
        """Model that each peer trains, or will train next, because it arrived, and its age; None: it trains its own."""
        self._own: list[int | None] = [None] * peers
        """The peer's own model after its training, while it trains the one that arrived; None: it does not (update-merge)."""

    def begin(self, peer: int) -> None:
        """Begin an own round: the first training, the second one of update-merge, or a model that waits. Otherwise wait for a
        model.
        """
        if not self._timed[peer]:
            self._wait(peer)
        if self._age[peer] == 0:
            self._start(peer, int(self.host.model[peer]))
        elif self._own[peer] is not None:
            received = self._received[peer]
            assert received is not None
            received_model, _ = received
            self._start(peer, received_model)
        elif self._inbox[peer]:
            self._take_in(peer)

    def rests(self, peer: int, round: int) -> bool:
        """Return True if `peer` would only wait for a model."""
        return bool(self._age[peer]) and self._own[peer] is None and not self._inbox[peer]

    def on_message(self, arrival: Arrival) -> None:
        """Keep a model with its age; train with it at once if the peer is idle."""
        peer = arrival.peer
        self._inbox[peer].append((arrival.model, int(arrival.attached)))
        if not self._busy[peer]:
            self._take_in(peer)

    def on_trained(self, peer: int, model: int) -> None:
        """Finish the own round with the trained model, and set its age by the variant."""
        # Five cases: the first training of all (nothing was received); a training of the model that arrived; one of the merged
        # model; the first and the second training of update-merge.
        host, received, own = self.host, self._received[peer], self._own[peer]
        own_age = int(self._age[peer])
        self._busy[peer] = False
        if received is None:
            self._age[peer] = own_age + 1
        elif self.variant == "update":
            _, received_age = received
            self._age[peer], self._received[peer] = received_age + 1, None
        elif self.variant == "merge-update":
            _, received_age = received
            self._age[peer], self._received[peer] = max(own_age, received_age) + 1, None
        elif own is None:
            # Its own model is trained; the next own round trains the one that arrived.
            self._age[peer], self._own[peer] = own_age + 1, model
        else:
            _, received_age = received
            # The model that arrived is trained now, too: merge both.
            model = self._merge_models(own, own_age, model, received_age + 1)
            self._age[peer] = max(own_age, received_age + 1)
            self._own[peer] = self._received[peer] = None
        host.finish(peer, model)

    def on_timer(self, peer: int, key: int) -> None:
        """Send the present model to a random neighbour, and set the next timer."""
        host, edges = self.host, self.host.outgoing(peer)
        if edges:
            number = int(self._sent[peer])
            chosen = edges[int(host.uniforms("gossip-neighbour", peer, number) * len(edges))]
            self._sent[peer] += 1
            host.send_model(peer, [chosen], key=number, model=int(host.model[peer]), attached=int(self._age[peer]))
            self._wait(peer)

    def on_leave(self, peer: int) -> None:
        """Stop timer and training; the models that wait are kept."""
        self._timed[peer] = self._busy[peer] = False
        self._received[peer] = self._own[peer] = None

    def _wait(self, peer: int) -> None:
        """Set the timer of the next message after a random period."""
        number = int(self._sent[peer])
        share = 1.0
        if self.spread:
            # Uniform numbers may be 0, where the normal law has no quantile.
            uniform = max(self.host.uniforms("gossip-period", peer, number), 2.0**-53)
            share = max(NormalDist(1.0, self.spread).inv_cdf(uniform), _LEAST_SHARE)
        self._timed[peer] = True
        self.host.call_in(share * self.period_s, peer, number)

    def _take_in(self, peer: int) -> None:
        """Start training with the first model that waits."""
        received, received_age = self._received[peer] = self._inbox[peer].pop(0)
        own = int(self.host.model[peer])
        if self.variant == "update":
            start = received
        elif self.variant == "merge-update":
            start = self._merge_models(own, int(self._age[peer]), received, received_age)
        else:
            # update-merge trains the own model first.
            start = own
        self._start(peer, start)

    def _merge_models(self, own: int, own_age: int, received: int, received_age: int) -> int:
        """Return the two models merged by the rule `merge`, given their ages; by halves if neither was ever trained."""
        share = 0.5
        if self.merge == "by-age" and own_age + received_age:
            share = received_age / (own_age + received_age)
        return self.host.combine([own, received], [1.0 - share, share])

    def _start(self, peer: int, model: int) -> None:
        """Start a training of `peer` from `model`."""
        self._busy[peer] = True
        self.host.train(peer, model)

    def kept(self) -> Iterable[int]:
        """Return the models that wait, and those of trainings under way."""
        waiting = [model for inbox in self._inbox for model, _ in inbox]
        received = [entry[0] for entry in self._received if entry is not None]
        own = [model for model in self._own if model is not None]
        return [*waiting, *received, *own]

"""A barrier for each peer: the peer waits for its neighbours' messages of its round; messages of later rounds are kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from netsim.core.state import StateFields

if TYPE_CHECKING:
    from netsim.core.protocols import BoolArray
    from netsim.peers.training.protocol import Arrival


class Barrier(StateFields):
    """Models that have arrived at each of `peers` peers, by the round that they belong to."""

    state_fields = ("_arrived", "_timed_out")

    def __init__(self, peers: int) -> None:
        self._arrived: list[dict[int, dict[int, int]]] = [{} for _ in range(peers)]
        """Models that arrived at each peer, by round, then by edge."""
        self._timed_out: BoolArray = np.zeros(peers, np.bool_)

    def add(self, arrival: Arrival, round: int) -> bool:
        """Keep a model that arrived at a peer in its own `round`; return False for a model of an earlier round."""
        if arrival.key < round:
            return False
        self._arrived[arrival.peer].setdefault(arrival.key, {})[arrival.edge] = arrival.model
        return True

    def time_out(self, peer: int) -> None:
        """Open the barrier of `peer` for its present round, whatever has arrived."""
        self._timed_out[peer] = True

    def is_open(self, peer: int, round: int, needed: int) -> bool:
        """True if `peer` need not wait in `round` any longer, because the models that it needs have arrived."""
        if self._timed_out[peer]:
            return True
        return len(self._arrived[peer].get(round, ())) >= needed

    def take(self, peer: int, round: int) -> tuple[dict[int, int], list[tuple[int, int]]]:
        """Remove and return the models of `round`, by edge, and the leftovers of earlier rounds, as (edge, model)."""
        arrived = self._arrived[peer]
        taken = arrived.pop(round, {})
        late = [one for key in sorted(arrived) if key < round for one in arrived.pop(key).items()]
        self._timed_out[peer] = False
        return taken, late

    def models(self) -> Iterable[int]:
        """Return the models that are kept."""
        return (model for peer in self._arrived for models in peer.values() for model in models.values())

"""A barrier for each peer: the peer waits for its neighbours' messages of its round; messages of later rounds are kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from netsim.core.state import StateFields

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray, IntArray
    from netsim.peers.training.protocol import Arrival


def opening_times_s(ready_s: FloatArray, receivers: IntArray, arrivals_s: FloatArray) -> FloatArray:
    """Return when the barriers of all peers open, seconds (K,), if each needs every message of its round.

    Array form of `Barrier.is_open`; both must open at the same time. `ready_s` (K,): when each peer begins to wait. `receivers`,
    `arrivals_s` (n,): receiver and arrival of each message.

    >>> opening_times_s(np.array([1.0, 5.0]), np.array([0, 1, 0]), np.array([2.0, 3.0, 4.0]))
    array([4., 5.])
    """
    opens: FloatArray = ready_s.copy()
    np.maximum.at(opens, receivers, arrivals_s)
    return opens


class Barrier(StateFields):
    """Models that have arrived at each of `peers` peers, by the round that they belong to."""

    state_fields = ("_arrived", "_timed_out")

    def __init__(self, peers: int) -> None:
        self._arrived: list[dict[int, dict[int, int]]] = [{} for _ in range(peers)]
        """Models that arrived at each peer, by round, then by edge."""
        self._timed_out = [False] * peers
        """True for peers that wait no longer in their present round."""

    def add(self, arrival: Arrival, round: int) -> bool:
        """Keep a model that arrived at a peer in its own `round`; return False, and keep nothing, for a model of an earlier
        round.
        """
        peer, _, edge, key, model, _ = arrival
        if key < round:
            return False
        arrived = self._arrived[peer]
        if key in arrived:
            arrived[key][edge] = model
        else:
            arrived[key] = {edge: model}
        return True

    def time_out(self, peer: int) -> None:
        """Open the barrier of `peer` for its present round, whatever has arrived."""
        self._timed_out[peer] = True

    def is_open(self, peer: int, round: int, needed: int) -> bool:
        """Return True if `peer` need not wait in `round` any longer, because the models that it needs have arrived."""
        if self._timed_out[peer]:
            return True
        return len(self._arrived[peer].get(round, ())) >= needed

    def missing(self, peer: int, round: int, edges: Sequence[int]) -> list[int]:
        """Return those of `edges` over which no model of `round` has arrived at `peer`."""
        arrived = self._arrived[peer].get(round, {})
        return [edge for edge in edges if edge not in arrived]

    def take(self, peer: int, round: int) -> tuple[dict[int, int], list[tuple[int, int]]]:
        """Remove and return (models of `round` by edge, leftovers of earlier rounds as (edge, model)), and close the barrier of
        `peer` again after a timeout.
        """
        arrived = self._arrived[peer]
        of_round = arrived.pop(round, {})
        leftovers: list[tuple[int, int]] = []
        # Earlier rounds in their order, so that sums of late models do not depend on the order of arrival. Most often there are
        # none, and only models of later rounds are left.
        if arrived and min(arrived) < round:
            for earlier in sorted(number for number in arrived if number < round):
                leftovers += arrived.pop(earlier).items()
        self._timed_out[peer] = False
        return of_round, leftovers

    def models(self) -> Iterable[int]:
        """Return the models that are kept."""
        return (model for by_round in self._arrived for by_edge in by_round.values() for model in by_edge.values())

"""Clustered sampling by data size (Fraboni, Vidal, Kameni, Lorenzi, ICML 2021, Algorithm 1).

Clients in descending order of data fill m distributions one after the other, each to the brim; a client that does not fit
goes on in the next. A client with more than 1/m of the data fills whole distributions.
"""

from __future__ import annotations

import numpy as np

from models.policies.clustered.distributions import by_filling, draw_set
from models.policies.protocols import AsksNobody, FloatArray, IntArray, Outcome, State, View, check_round, check_sizes


class ClusteredBySize(AsksNobody):
    """Draws one client from each of m distributions that the sizes of the clients' data fill (Algorithm 1)."""

    needs_updates = False

    def __init__(self, *, clients: int, per_round: int, data_sizes: FloatArray) -> None:
        check_round(clients, per_round)
        self._shares = check_sizes(data_sizes, clients)
        order = np.argsort(-self._shares, kind="stable")
        self.distributions = by_filling(order, per_round * self._shares[order])

    def select(self, view: View) -> IntArray:
        return draw_set(self.distributions, self._shares, view.selectable, view.rng)

    def observe(self, outcome: Outcome) -> None:
        pass

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass

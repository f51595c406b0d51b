"""Clustered sampling by data size (Fraboni, Vidal, Kameni, Lorenzi, ICML 2021, Algorithm 1).

Clients in descending order of data fill m distributions one after the other, each to the brim; a client that does not fit
continues in the next. A client with more than 1/m of the data fills whole distributions.
"""

from __future__ import annotations

import numpy as np

from models.policies.clustered.distributions import draw_set, fill_distributions
from models.policies.protocols import FloatArray, IntArray, NoMemory, NoProbes, View, check_round, data_shares


class ClusteredBySize(NoMemory, NoProbes):
    """Policy that draws one client from each of m distributions, which the sizes of the clients' data fill (Algorithm 1).

    Example:
        >>> import numpy as np
        >>> policy = ClusteredBySize(clients=3, per_round=2, data_sizes=np.array([20.0, 30.0, 50.0]))
        >>> [each.clients for each in policy.distributions]
        [array([2]), array([1, 0])]
    """

    needs_updates = False

    def __init__(self, *, clients: int, per_round: int, data_sizes: FloatArray) -> None:
        check_round(clients, per_round)
        self._shares = data_shares(data_sizes, clients)
        order = np.argsort(-self._shares, kind="stable")
        self.distributions = fill_distributions(order, per_round * self._shares[order])

    def select(self, view: View) -> IntArray:
        """Return min(m, selectable) clients, ascending; shape (n,)."""
        return draw_set(self.distributions, self._shares, view.selectable, view.rng)

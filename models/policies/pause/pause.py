"""PAUSE: privacy-aware active user selection (Peleg et al., Algorithm 1), with eq. 14 solved exactly in O(K log K)."""

from __future__ import annotations

import numpy as np

from models.policies.pause.exact_search import best_set
from models.policies.pause.ucb_policy import Terms, UcbPolicy
from models.policies.protocols import IntArray


class Pause(UcbPolicy):
    """Selects the set of greatest energy (eq. 14), found by an exact sweep; ties by the policy's own stream.

    Example:
        >>> import numpy as np
        >>> from models.privacy import NoSchedule
        >>> from netsim.core.protocols import RoundView
        >>> policy = Pause(clients=4, per_round=2, data_sizes=np.array([10.0, 40.0, 30.0, 20.0]), schedule=NoSchedule())
        >>> policy.select(RoundView(1, 0.0, np.full(4, True), np.zeros(4, int), np.random.default_rng(1)))
        array([1, 2])
    """

    def _search(self, terms: Terms, rng: np.random.Generator) -> IntArray:
        return best_set(terms.ucb, terms.modular, self._per_round, rng)

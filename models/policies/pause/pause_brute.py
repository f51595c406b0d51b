"""PAUSE (Peleg et al., Algorithm 1) with eq. 14 solved by enumeration, as in the paper: for comparison with the exact search."""

from __future__ import annotations

import numpy as np

from models.policies.pause.enumeration import best_by_enumeration, check_count
from models.policies.pause.ucb_policy import Terms, UcbPolicy
from models.policies.protocols import IntArray


class PauseBrute(UcbPolicy):
    """Selects the set of greatest energy (eq. 14) by comparing all sets; ties by the policy's own stream.

    Raises:
        ParameterError: K choose m is more than five million sets.

    Example:
        >>> import numpy as np
        >>> from models.privacy import NoSchedule
        >>> from netsim.core.protocols import RoundView
        >>> policy = PauseBrute(clients=4, per_round=2, data_sizes=np.array([10.0, 40.0, 30.0, 20.0]), schedule=NoSchedule())
        >>> policy.select(RoundView(1, 0.0, np.full(4, True), np.zeros(4, int), np.random.default_rng(1)))
        array([1, 2])
    """

    def _check_size(self, clients: int, per_round: int) -> None:
        check_count(clients, per_round)

    def _search(self, terms: Terms, rng: np.random.Generator) -> IntArray:
        return best_by_enumeration(terms.ucb, terms.modular, self._per_round, rng)

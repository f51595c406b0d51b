"""PAUSE (Peleg et al., Algorithm 1) with eq. 14 maximised by enumeration, as in the paper: for comparison with the exact
search."""

from __future__ import annotations

import numpy as np

from models.policies.pause.enumeration import best_by_enumeration, check_count
from models.policies.pause.ucb_policy import Terms, UcbPolicy
from models.policies.protocols import IntArray


class PauseBrute(UcbPolicy):
    """Selects the set of greatest energy (eq. 14), all sets compared; equal ones by the policy's own stream.

    Raises:
        ValueError: K choose m is more than five million sets.
    """

    def _check_size(self, clients: int, per_round: int) -> None:
        check_count(clients, per_round)

    def _search(self, terms: Terms, rng: np.random.Generator) -> IntArray:
        return best_by_enumeration(terms.ucb, terms.modular, self._per_round, rng)

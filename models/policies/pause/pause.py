"""PAUSE: privacy-aware active user selection (Peleg et al., Algorithm 1), its maximisation (eq. 14) done exactly in O(K log
K)."""

from __future__ import annotations

import numpy as np

from models.policies.pause.exact_search import best_set
from models.policies.pause.ucb_policy import Terms, UcbPolicy
from models.policies.protocols import IntArray


class Pause(UcbPolicy):
    """Selects the set of greatest energy (eq. 14), found by an exact sweep; ties by the policy's own stream."""

    def _search(self, terms: Terms, rng: np.random.Generator) -> IntArray:
        return best_set(terms.ucb, terms.modular, self._per_round, rng)

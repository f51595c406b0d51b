"""Vanilla-SA: PAUSE (Peleg et al., Algorithm 1) with eq. 14 maximised by annealing over all one-for-one swaps (Section IV-B)."""

from __future__ import annotations

import numpy as np

from models.policies.pause.annealed_pause import AnnealedPause
from models.policies.pause.annealing import AnySwap, anneal, finite_ucb
from models.policies.pause.parameters import AnnealingParameters
from models.policies.pause.ucb_policy import Terms
from models.policies.protocols import IntArray


class VanillaSaPause(AnnealedPause[AnnealingParameters]):
    """Selects the best set that an annealing walk has seen; any swap is a neighbour and C = 2 alpha + gamma + 1.

    That C bounds the reward's range, where a ratio is at most 1; a ucb can exceed 1 in early rounds, and an energy range above C
    voids the condition of Theorem 4.
    """

    def _search(self, terms: Terms, rng: np.random.Generator) -> IntArray:
        size, walk = self._per_round, self._annealing
        scale = 2.0 * self._parameters.alpha + self._parameters.gamma + 1.0
        ucb = finite_ucb(terms.ucb, terms.modular, size)
        return anneal(ucb, terms.modular, size, AnySwap(), scale=scale, kappa=walk.kappa, steps=walk.steps, rng=rng)

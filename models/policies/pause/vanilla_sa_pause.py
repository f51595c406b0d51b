"""Vanilla-SA: PAUSE (Peleg et al., Algorithm 1) with eq. 14 solved by annealing over all one-for-one swaps (Section IV-B)."""

from __future__ import annotations

import numpy as np

from models.policies.pause.annealed_pause import AnnealedPause
from models.policies.pause.annealing import AnySwap, anneal, finite_ucb
from models.policies.pause.parameters import AnnealingParameters
from models.policies.pause.ucb_policy import Terms
from models.policies.protocols import IntArray


class VanillaSaPause(AnnealedPause[AnnealingParameters]):
    """Selects the best set that an annealing walk visits; every swap is a neighbour and C = 2 alpha + gamma + 1.

    C bounds the range of the reward, where a ratio is at most 1. A ucb can exceed 1 in early rounds; an energy range above C
    voids the condition of Theorem 4.

    Example:
        >>> import numpy as np
        >>> from models.policies.pause.parameters import AnnealingParameters
        >>> from models.privacy import NoSchedule
        >>> from netsim.core.protocols import RoundView
        >>> sizes, annealing = np.array([10.0, 40.0, 30.0, 20.0]), AnnealingParameters(steps=200)
        >>> policy = VanillaSaPause(clients=4, per_round=2, data_sizes=sizes, schedule=NoSchedule(), annealing=annealing)
        >>> policy.select(RoundView(1, 0.0, np.full(4, True), np.zeros(4, int), np.random.default_rng(1)))
        array([1, 2])
    """

    def _search(self, terms: Terms, rng: np.random.Generator) -> IntArray:
        size, walk = self._per_round, self._annealing
        scale = 2.0 * self._parameters.alpha + self._parameters.gamma + 1.0
        ucb = finite_ucb(terms.ucb, terms.modular, size)
        return anneal(ucb, terms.modular, size, AnySwap(), scale=scale, kappa=walk.kappa, steps=walk.steps, rng=rng)

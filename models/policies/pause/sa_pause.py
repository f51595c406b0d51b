"""SA-PAUSE: PAUSE (Peleg et al., Algorithm 1) with eq. 14 maximised by the tailored simulated annealing of Algorithm 2."""

from __future__ import annotations

import numpy as np

from models.policies.pause.annealed_pause import AnnealedPause
from models.policies.pause.annealing import ListSwap, anneal, energy_range, finite_ucb
from models.policies.pause.parameters import TailoredAnnealing
from models.policies.pause.ucb_policy import Terms
from models.policies.protocols import IntArray


class SaPause(AnnealedPause[TailoredAnnealing]):
    """Selects the best set that an annealing walk has seen; C from eq. 19.

    An infinite ucb stands in eq. 19 as the finite number of `annealing.finite_ucb`.
    """

    def _search(self, terms: Terms, rng: np.random.Generator) -> IntArray:
        size, walk = self._per_round, self._annealing
        alpha, gamma = self._parameters.alpha / size, self._parameters.gamma / size
        ucb = finite_ucb(terms.ucb, terms.modular, size)
        width = energy_range(ucb, alpha * terms.generalization, gamma * terms.privacy, size)
        graph = ListSwap((ucb, terms.privacy, terms.generalization))
        return anneal(ucb, terms.modular, size, graph, scale=width + walk.omega, kappa=walk.kappa, steps=walk.steps, rng=rng)

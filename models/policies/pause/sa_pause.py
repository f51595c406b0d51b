"""SA-PAUSE: PAUSE (Peleg et al., Algorithm 1) with eq. 14 solved by the tailored simulated annealing of Algorithm 2."""

from __future__ import annotations

import numpy as np

from models.policies.pause.annealed_pause import AnnealedPause
from models.policies.pause.annealing import ListSwap, anneal, energy_range, finite_ucb
from models.policies.pause.parameters import TailoredAnnealing
from models.policies.pause.ucb_policy import Terms
from models.policies.protocols import IntArray


class SaPause(AnnealedPause[TailoredAnnealing]):
    """Selects the best set that an annealing walk over the neighbours of R1 and R2 visits; C from eq. 19.

    Eq. 19 needs finite numbers: an infinite ucb enters it as the number of `annealing.finite_ucb`.

    Example:
        >>> import numpy as np
        >>> from models.policies.pause.parameters import TailoredAnnealing
        >>> from models.privacy import NoSchedule
        >>> from netsim.core.protocols import RoundView
        >>> sizes, annealing = np.array([10.0, 40.0, 30.0, 20.0]), TailoredAnnealing(steps=200)
        >>> policy = SaPause(clients=4, per_round=2, data_sizes=sizes, schedule=NoSchedule(), annealing=annealing)
        >>> policy.select(RoundView(1, 0.0, np.full(4, True), np.zeros(4, int), np.random.default_rng(1)))
        array([1, 2])
    """

    def _search(self, terms: Terms, rng: np.random.Generator) -> IntArray:
        """Return the positions (m,) of the best set of an annealing walk among the candidates of `terms`."""
        size, walk = self._per_round, self._annealing
        alpha, gamma = self._parameters.alpha / size, self._parameters.gamma / size
        ucb = finite_ucb(terms.ucb, terms.modular, size)
        width = energy_range(ucb, alpha * terms.generalization, gamma * terms.privacy, size)
        graph = ListSwap((ucb, terms.privacy, terms.generalization))
        return anneal(ucb, terms.modular, size, graph, scale=width + walk.omega, kappa=walk.kappa, steps=walk.steps, rng=rng)

"""SA-PAUSE: PAUSE (Peleg et al., Algorithm 1) with eq. 14 maximised by the tailored simulated annealing of Algorithm 2."""

from __future__ import annotations

import numpy as np

from models.policies.annealing import ListSwap, anneal, energy_range, finite_ucb
from models.policies.pause_parameters import PauseParameters, TailoredAnnealing
from models.policies.protocols import FloatArray, IntArray
from models.policies.rewards import Schedule
from models.policies.ucb import PerClientDetector, Terms, UcbPolicy


class SaPause(UcbPolicy):
    """Selects the best set that an annealing walk has seen; C from eq. 19.

    An infinite ucb stands in eq. 19 as the finite number of `annealing.finite_ucb`.
    """

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        data_sizes: FloatArray,
        schedule: Schedule,
        parameters: PauseParameters = PauseParameters(),
        annealing: TailoredAnnealing = TailoredAnnealing(),
        detector: PerClientDetector = None,
        per_model: int | None = None,
    ) -> None:
        super().__init__(
            clients=clients,
            per_round=per_round,
            data_sizes=data_sizes,
            schedule=schedule,
            parameters=parameters,
            detector=detector,
            per_model=per_model,
        )
        self._alpha, self._gamma = parameters.alpha / per_round, parameters.gamma / per_round
        self._annealing = annealing

    def _search(self, terms: Terms, rng: np.random.Generator) -> IntArray:
        size = self._per_round
        ucb = finite_ucb(terms.ucb, terms.modular, size)
        span = energy_range(ucb, self._alpha * terms.generalization, self._gamma * terms.privacy, size)
        graph = ListSwap((ucb, terms.privacy, terms.generalization))
        steps, kappa, omega = self._annealing.steps, self._annealing.kappa, self._annealing.omega
        return anneal(ucb, terms.modular, size, graph, scale=span + omega, kappa=kappa, steps=steps, rng=rng)

"""SA-PAUSE: PAUSE (Peleg et al., Algorithm 1) with eq. 14 maximised by the tailored simulated annealing of Algorithm 2."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_doc import Doc

from models.policies.annealing import ListSwap, anneal, energy_range, finite_ucb
from models.policies.pause_parameters import PauseParameters
from models.policies.protocols import FloatArray, IntArray, check_at_least
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
        steps: Annotated[int, Doc("Steps of the annealing walk, of whose sets the best is selected.")] = 3000,
        kappa: Annotated[
            float,
            Doc("Divides the temperature (1; 30 in the large-network study, which voids the condition of Theorem 4)."),
        ] = 1.0,
        omega: Annotated[float, Doc("The small constant of eq. 19, > 0.")] = 1e-3,
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
        check_at_least("steps", steps, 1)
        check_at_least("kappa", kappa, 0, strict=True)
        check_at_least("omega", omega, 0, strict=True)
        self._alpha, self._gamma = parameters.alpha / per_round, parameters.gamma / per_round
        self._steps, self._kappa, self._omega = steps, kappa, omega

    def _search(self, terms: Terms, rng: np.random.Generator) -> IntArray:
        size = self._per_round
        ucb = finite_ucb(terms.ucb, terms.modular, size)
        span = energy_range(ucb, self._alpha * terms.generalization, self._gamma * terms.privacy, size)
        graph = ListSwap((ucb, terms.privacy, terms.generalization))
        return anneal(ucb, terms.modular, size, graph, scale=span + self._omega, kappa=self._kappa, steps=self._steps, rng=rng)

"""Vanilla-SA: PAUSE (Peleg et al., Algorithm 1) with eq. 14 maximised by annealing over all one-for-one swaps (Section IV-B)."""

from __future__ import annotations

import numpy as np

from models.policies.annealing import AnySwap, anneal, finite_ucb
from models.policies.pause_parameters import AnnealingParameters, PauseParameters
from models.policies.protocols import FloatArray, IntArray
from models.policies.rewards import Schedule
from models.policies.ucb import PerClientDetector, Terms, UcbPolicy


class VanillaSaPause(UcbPolicy):
    """Selects the best set that an annealing walk has seen; any swap is a neighbour and C = 2 alpha + gamma + 1.

    That C bounds the reward's range, where a ratio is at most 1; a ucb can exceed 1 in early rounds, and an energy range above C
    voids the condition of Theorem 4.
    """

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        data_sizes: FloatArray,
        schedule: Schedule,
        parameters: PauseParameters = PauseParameters(),
        annealing: AnnealingParameters = AnnealingParameters(),
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
        self._scale = 2.0 * parameters.alpha + parameters.gamma + 1.0
        self._steps, self._kappa = annealing.steps, annealing.kappa

    def _search(self, terms: Terms, rng: np.random.Generator) -> IntArray:
        ucb = finite_ucb(terms.ucb, terms.modular, self._per_round)
        return anneal(
            ucb, terms.modular, self._per_round, AnySwap(), scale=self._scale, kappa=self._kappa, steps=self._steps, rng=rng
        )

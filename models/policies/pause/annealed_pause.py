"""Base class of the policies that solve PAUSE's eq. 14 (Peleg et al., Algorithm 1) by simulated annealing over sets of clients.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from models.policies.pause.parameters import AnnealingParameters, PauseParameters
from models.policies.pause.rewards import Schedule
from models.policies.pause.ucb_policy import PerClientDetector, UcbPolicy
from models.policies.protocols import FloatArray

Walk = TypeVar("Walk", bound=AnnealingParameters)


class AnnealedPause(UcbPolicy, Generic[Walk]):
    """Selects the best set that an annealing walk visits. Subclasses choose the graph and the temperature, in `_search`."""

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        data_sizes: FloatArray,
        schedule: Schedule,
        parameters: PauseParameters = PauseParameters(),
        annealing: Walk,
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
        self._parameters, self._annealing = parameters, annealing

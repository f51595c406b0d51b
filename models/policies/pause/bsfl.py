"""BSFL (Ben Ami, Cohen and Zhao, "Client Selection for Generalization in Accelerated Federated Learning: A Multi-Armed Bandit
Approach", IEEE Access 2025): the bandit that PAUSE adds privacy to, which is PAUSE with gamma = 0.

Reward of a set: min over it of tau_min / tau_k + (alpha/m) sum g_k, with g_k = sign(x) |x|^beta and x = m n_k / n less the
share of rounds that k took part in. Index: mean + sqrt((m + 1) ln t / T_k), infinite before the first observation. The
equations are those that PAUSE and later papers quote; they were not checked against the paper itself.
"""

from __future__ import annotations

from dataclasses import asdict

from models.policies.pause.parameters import PauseParameters, SpeedAndGeneralization
from models.policies.pause.pause import Pause
from models.policies.pause.rewards import Schedule
from models.policies.pause.ucb_policy import PerClientDetector
from models.policies.protocols import FloatArray


class Bsfl(Pause):
    """Selects the set of greatest index and generalization, exactly. Releases have no weight.

    Example:
        >>> import numpy as np
        >>> from models.privacy import NoSchedule
        >>> from netsim.core.protocols import RoundView
        >>> policy = Bsfl(clients=4, per_round=2, data_sizes=np.array([10.0, 40.0, 30.0, 20.0]), schedule=NoSchedule())
        >>> policy.select(RoundView(1, 0.0, np.full(4, True), np.zeros(4, int), np.random.default_rng(1)))
        array([1, 2])
    """

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        data_sizes: FloatArray,
        schedule: Schedule,
        weights: SpeedAndGeneralization = SpeedAndGeneralization(),
        detector: PerClientDetector = None,
        per_model: int | None = None,
    ) -> None:
        super().__init__(
            clients=clients,
            per_round=per_round,
            data_sizes=data_sizes,
            schedule=schedule,
            parameters=PauseParameters(**asdict(weights), gamma=0.0),
            detector=detector,
            per_model=per_model,
        )

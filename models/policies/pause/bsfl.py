"""BSFL (Ben Ami, Cohen and Zhao, "Client Selection for Generalization in Accelerated Federated Learning: A Multi-Armed Bandit
Approach", IEEE Access 2025): the bandit that PAUSE adds privacy to, which is PAUSE with gamma = 0.

Reward of a set: min over it of tau_min / tau_k + (alpha/m) sum g_k, g_k = sign(x) |x|^beta with x = m n_k / n less the share of
rounds that k took part in; index: mean + sqrt((m + 1) ln t / T_k), infinite before the first. As PAUSE's account and others'
summaries give it, not checked against the paper.
"""

from __future__ import annotations

from dataclasses import asdict

from models.policies.pause.parameters import PauseParameters, SpeedAndGeneralization
from models.policies.pause.pause import Pause
from models.policies.pause.rewards import Schedule
from models.policies.pause.ucb_policy import PerClientDetector
from models.policies.protocols import FloatArray


class Bsfl(Pause):
    """Selects the set of greatest index and generalization, exactly; whatever is released, privacy weighs nothing."""

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

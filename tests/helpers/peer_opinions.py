"""Opinions and graphs for tests of the consensus phase."""

from __future__ import annotations

from typing import Any

import numpy as np

from models.laws.delays import ShiftedExponential
from models.peers.graph import PeerGraph
from models.peers.topologies import random_geometric

JITTER = ShiftedExponential(shift_s=0.01, mean_excess_s=0.02)


def opinions_of(clients: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).random(clients)


def geometric(clients: int, seed: int, radius_km: float = 0.35) -> PeerGraph:
    rng = np.random.default_rng(seed)
    return random_geometric(clients=clients, generator=rng, radius_km=radius_km, allow_disconnected=True)

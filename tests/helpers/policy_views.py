"""What a policy sees before it selects, and what clients answered."""

from __future__ import annotations

from typing import Any

import numpy as np

from netsim.core.protocols import RoundView
from netsim.core.reports import Probed


def view(round: int, able: Any, probed: Probed | None = None, seed: int = 0, time_s: float = 0.0) -> RoundView:
    selectable = np.asarray(able, np.bool_)
    rng = np.random.default_rng([seed, round])
    return RoundView(round, time_s, selectable, np.zeros(len(selectable), np.int64), rng, probed or Probed.without_clients())


def answers(clients: Any, elapsed_s: Any = None) -> Probed:
    """Everyone has answered, but for those with NaN seconds."""
    who = np.asarray(clients, np.int64)
    took_s = np.ones(len(who)) if elapsed_s is None else np.asarray(elapsed_s, np.float64)
    return Probed(clients=who, answered=~np.isnan(took_s), loss=np.full(len(who), np.nan), elapsed_s=took_s)

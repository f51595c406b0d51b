"""A shared link of constant bandwidth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from models.laws.bandwidth.laws import Constant
from models.laws.changes import Unchanging
from netsim.core.clock import Clock
from netsim.network.bandwidth.sharing import SharedMedium


def shared_medium(
    *,
    clock: Clock,
    clients: int,
    size_bytes: Any,
    bandwidth_bytes_per_s: float,
    per_client_bytes_per_s: Any = math.inf,
) -> SharedMedium:
    """Return the carrier; `per_client_bytes_per_s`: the most that a client can have, inf for no limit."""
    limits = np.minimum(per_client_bytes_per_s, 1e18)
    own = None if np.ndim(limits) == 0 and limits == 1e18 else Unchanging(Constant(bytes_per_s=limits))
    link = Unchanging(Constant(bytes_per_s=bandwidth_bytes_per_s))
    return SharedMedium(clock=clock, clients=clients, size_bytes=size_bytes, link=link, own=own)

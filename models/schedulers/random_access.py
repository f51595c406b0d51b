"""Random access: every client picks a sub-channel for itself (slotted ALOHA, Roberts 1975, over N channels).

With K clients that all send, a transmission meets no other with probability (1 - 1/N)^(K - 1); those that meet are lost.
"""

from __future__ import annotations

import numpy as np

from models.schedulers.protocols import BoolArray, IntArray, SlotView, check_at_least_one
from netsim.core.state import StateFields


class RandomAccess(StateFields):
    """Gives each client any of the N sub-channels, drawn independently in every round. Needs `server.contention`.

    Example:
        >>> import numpy as np
        >>> from netsim.core.scheduling import SlotView
        >>> scheduler = RandomAccess(clients=2, channels=3)
        >>> scheduler.assign(SlotView(1, np.ones(2, int), np.ones(2), np.random.default_rng(1)))
        array([1, 1])
    """

    contends = True
    """True: two clients may get the same sub-channel."""
    declared = ()
    """Declared changes: none."""

    def detects(self) -> bool:
        """Return False: there is no detector."""
        return False

    def __init__(self, *, clients: int, channels: int) -> None:
        check_at_least_one(clients, channels)
        self._clients, self._channels = clients, channels

    def assign(self, view: SlotView) -> IntArray:
        """Return the sub-channel of each client; (K,), independent and uniform."""
        return np.asarray(view.rng.integers(self._channels, size=self._clients))

    def observe(self, view: SlotView, channels: IntArray, good: BoolArray) -> None:
        """Ignore the outcome of a round: draws do not depend on it."""

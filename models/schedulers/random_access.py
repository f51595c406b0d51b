"""Random access: nobody schedules, every client picks a sub-channel for itself (slotted ALOHA, Roberts 1975, over N channels).

With K clients that all send, a transmission meets no other with probability (1 - 1/N)^(K - 1); those that meet are lost.
"""

from __future__ import annotations

import numpy as np

from models.schedulers.protocols import BoolArray, IntArray, SlotView, State, check_at_least_one


class RandomAccess:
    """Each client takes any of the N sub-channels, whatever the others do, drawn again in every round. Needs
    `server.contention`."""

    contends = True
    """Two clients may be given one sub-channel."""
    declared = ()
    """No change is looked for."""

    def __init__(self, *, clients: int, channels: int) -> None:
        check_at_least_one(clients, channels)
        self._clients, self._channels = clients, channels

    def assign(self, view: SlotView) -> IntArray:
        """The sub-channel of each client; (K,), independent and uniform."""
        return np.asarray(view.rng.integers(self._channels, size=self._clients))

    def observe(self, view: SlotView, channels: IntArray, good: BoolArray) -> None:
        """Learns nothing."""

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """There is no state."""

"""Matching by rotation: client j takes the ((j + t) mod K)-th best channel (Li et al., Algorithm 2, line 10), all from 0."""

from __future__ import annotations

from models.schedulers.protocols import SlotView
from netsim.core.state import StateFields


class Rotation(StateFields):
    """Matcher that gives every client each rank in turn, regardless of ages.

    Example:
        >>> import numpy as np
        >>> from netsim.core.scheduling import SlotView
        >>> Rotation().match(SlotView(1, np.array([1, 4]), np.ones(2), np.random.default_rng(1)), [7, 5])
        [5, 7]
    """

    def match(self, view: SlotView, ranked: list[int]) -> list[int]:
        """Return the channel of each client: `ranked` (channels, best first), rotated by the number of the round."""
        shift = view.round % len(ranked)
        return ranked[shift:] + ranked[:shift]


def rotation_order(round: int, clients: int) -> list[int]:
    """Return the clients in the order of the ranks that rotation gives them in `round`: a fair order for breaking ties."""
    return [(rank - round) % clients for rank in range(clients)]

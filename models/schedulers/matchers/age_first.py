"""Matching by age: the client of greatest age gets the best channel, and so on down."""

from __future__ import annotations

from models.schedulers.matchers.rotation import rotation_order
from models.schedulers.protocols import SlotView
from netsim.core.state import StateFields


class AgeFirst(StateFields):
    """Matcher that gives the best channel to the oldest client, and so on; clients of equal age follow the order of rotation.

    Example:
        >>> import numpy as np
        >>> from netsim.core.scheduling import SlotView
        >>> AgeFirst().match(SlotView(1, np.array([1, 4]), np.ones(2), np.random.default_rng(1)), [7, 5])
        [5, 7]
    """

    def match(self, view: SlotView, ranked: list[int]) -> list[int]:
        ages: list[int] = view.ages.tolist()
        order = sorted(rotation_order(view.round, len(ranked)), key=ages.__getitem__, reverse=True)
        return match_by_rank(order, ranked)


def match_by_rank(order: list[int], ranked: list[int]) -> list[int]:
    """Return the channel of each client: client `order[r]` takes channel `ranked[r]`."""
    matched = [0] * len(ranked)
    for client, channel in zip(order, ranked, strict=True):
        matched[client] = channel
    return matched

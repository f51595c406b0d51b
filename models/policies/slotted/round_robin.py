"""Round-robin over predefined sets of clients (the baseline of Tong et al. 2024, Section VI-A)."""

from __future__ import annotations

from models.policies.slotted.predefined_sets import PredefinedSets
from models.policies.slotted.protocols import SlotView


class RoundRobin(PredefinedSets):
    """Policy that selects `sets` one after the other, then `random_sets` further sets drawn in slot 1; then from the beginning.

    The paper takes {0, 1, 10, 15, 19} (counted from 0) and four random sets. A set is selected even if some of its clients are
    not selectable.

    Example:
        >>> import numpy as np
        >>> from netsim.core.protocols import RoundView
        >>> policy = RoundRobin(clients=4, per_round=2, sets=[[0, 1], [2, 3]], random_sets=0)
        >>> policy.select(RoundView(2, 0.0, np.full(4, True), np.zeros(4, int), np.random.default_rng(1)))
        array([2, 3])
    """

    def _choose(self, view: SlotView, count: int) -> int:
        """Return the number of the slot's set: the `count` sets take turns."""
        return (view.round - 1) % count

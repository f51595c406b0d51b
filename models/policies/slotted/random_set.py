"""A random one of predefined sets of clients in each slot: random selection as described in Section VI-C of Tong et al. 2024.

Their Section VI-A has "the random selection method uniformly selects K out of N clients" instead, which is policy `random`.
"""

from __future__ import annotations

from models.policies.slotted.predefined_sets import PredefinedSets
from models.policies.slotted.protocols import SlotView


class RandomSet(PredefinedSets):
    """Policy that draws one of `sets` and of `random_sets` further sets in every slot; the further sets are drawn in slot 1.

    The paper takes {0, 1, 10, 15, 19} (counted from 0) and four random sets. A set is selected even if some of its clients are
    not selectable.

    Example:
        >>> import numpy as np
        >>> from netsim.core.protocols import RoundView
        >>> policy = RandomSet(clients=4, per_round=2, sets=[[0, 1], [2, 3]], random_sets=0)
        >>> policy.select(RoundView(1, 0.0, np.full(4, True), np.zeros(4, int), np.random.default_rng(1)))
        array([0, 1])
    """

    def _choose(self, view: SlotView, count: int) -> int:
        """Draw the number of the slot's set out of `count` sets."""
        return int(view.rng.integers(count))

"""Matching at random: the baseline of adaptive matching (Li et al., Section VI)."""

from __future__ import annotations

from models.schedulers.protocols import SlotView
from netsim.core.state import StateFields


class RandomMatching(StateFields):
    """Matcher that gives the channels to the clients at random, every matching equally likely.

    Example:
        >>> import numpy as np
        >>> from netsim.core.scheduling import SlotView
        >>> RandomMatching().match(SlotView(1, np.array([1, 4]), np.ones(2), np.random.default_rng(1)), [7, 5])
        [7, 5]
    """

    def match(self, view: SlotView, ranked: list[int]) -> list[int]:
        shuffled: list[int] = view.rng.permutation(ranked).tolist()
        return shuffled

"""Random selection: m clients uniformly without replacement (the baseline of PAUSE's study, Section V-A)."""

from __future__ import annotations

import numpy as np

from models.policies.protocols import IgnoresOpinions, IntArray, NoMemory, NoProbes, View, check_round


class Random(NoMemory, NoProbes, IgnoresOpinions):
    """Policy that draws m selectable clients, every such set equally likely; all selectable clients if they are m or fewer.

    Example:
        >>> import numpy as np
        >>> from netsim.core.protocols import RoundView
        >>> view = RoundView(1, 0.0, np.array([True, True, False, True]), np.zeros(4, int), np.random.default_rng(1))
        >>> Random(clients=4, per_round=2).select(view)
        array([0, 1])
    """

    needs_updates = False

    def __init__(self, *, clients: int, per_round: int) -> None:
        check_round(clients, per_round)
        self._per_round = per_round

    def select(self, view: View) -> IntArray:
        """Return min(m, selectable) clients, ascending; shape (n,)."""
        candidates = np.flatnonzero(view.selectable)
        if len(candidates) <= self._per_round:
            return candidates
        return np.sort(view.rng.choice(candidates, self._per_round, replace=False, shuffle=False))

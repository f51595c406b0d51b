"""All clients in every round: "FedAvg with privacy" and "without" in PAUSE's study, Section V-A.

The scenario chooses the privacy mechanism; this policy does not know it.
"""

from __future__ import annotations

import numpy as np

from models.policies.protocols import IgnoresOpinions, IntArray, NoMemory, NoProbes, View


class All(NoMemory, NoProbes, IgnoresOpinions):
    """Policy that selects every selectable client, even if they are more than `server.per_round`. It has no parameters.

    Example:
        >>> import numpy as np
        >>> from netsim.core.protocols import RoundView
        >>> view = RoundView(1, 0.0, np.array([True, True, False, True]), np.zeros(4, int), np.random.default_rng(1))
        >>> All().select(view)
        array([0, 1, 3])
    """

    needs_updates = False
    selects_everyone = True

    def __init__(self) -> None:
        pass

    def select(self, view: View) -> IntArray:
        """Return all selectable clients, ascending; shape (n,)."""
        return np.flatnonzero(view.selectable)

"""Fastest in expectation: the m clients of lowest true mean latency (the baseline of PAUSE's study, Section V-A)."""

from __future__ import annotations

import numpy as np

from models.policies.pause.exact_search import top_by_score
from models.policies.protocols import IntArray, NoMemory, NoProbes, Truth, View, check_round


class Fastest(NoMemory, NoProbes):
    """Policy that selects the m selectable clients of lowest mean latency, under the laws in force as the round begins.

    Ties go to the lower client.

    Example:
        >>> import numpy as np
        >>> from models.laws.changes import Unchanging
        >>> from models.laws.delays import Constant
        >>> from models.laws.expectations import Truth
        >>> from netsim.core.protocols import RoundView
        >>> latency = Constant(value_s=np.array([3.0, 1.0, 2.0]))
        >>> truth = Truth(clients=3, phases=[Unchanging(latency)], kinds=["compute"])
        >>> view = RoundView(1, 0.0, np.full(3, True), np.zeros(3, int), np.random.default_rng(1))
        >>> Fastest(clients=3, per_round=2, truth=truth).select(view)
        array([1, 2])
    """

    needs_updates = False

    def __init__(self, *, clients: int, per_round: int, truth: Truth) -> None:
        check_round(clients, per_round)
        self._per_round = per_round
        self._truth = truth

    def select(self, view: View) -> IntArray:
        """Return min(m, selectable) clients, ascending; shape (n,)."""
        candidates = np.flatnonzero(view.selectable)
        mean_latency_s = self._truth.mean_latency_s(view.round, view.time_s)[candidates]
        fastest = top_by_score(-mean_latency_s, self._per_round, rng=None)
        return np.sort(candidates[fastest])

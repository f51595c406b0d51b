"""Random selection: m clients uniformly without replacement (the baseline of PAUSE's study, Section V-A)."""

from __future__ import annotations

import numpy as np

from models.policies.protocols import AsksNobody, FloatArray, IntArray, Outcome, State, View, check_round


class Random(AsksNobody):
    """Selects m selectable clients, every such set equally likely; all of them where they are no more than m."""

    needs_updates = False

    def __init__(self, *, clients: int, per_round: int) -> None:
        check_round(clients, per_round)
        self._per_round = per_round

    def select(self, view: View) -> IntArray:
        able = np.flatnonzero(view.selectable)
        if len(able) <= self._per_round:
            return able
        return np.sort(view.rng.choice(able, self._per_round, replace=False, shuffle=False))

    def observe(self, outcome: Outcome) -> None:
        pass

    def observe_opinions(self, round: int, clients: IntArray, opinions: FloatArray) -> None:
        """Learns nothing."""

    def notes(self) -> dict[str, int]:
        """Nothing to say."""
        return {}

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass

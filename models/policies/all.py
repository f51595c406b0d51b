"""All clients in every round ("FedAvg with privacy" and "without" in PAUSE's study, Section V-A; privacy is the scenario's
choice)."""

from __future__ import annotations

import numpy as np

from models.policies.protocols import AsksNobody, FloatArray, IntArray, Outcome, State, View


class All(AsksNobody):
    """Selects every selectable client, however many a round was meant to have. It has no parameters."""

    needs_updates = False

    def __init__(self) -> None:
        pass

    def select(self, view: View) -> IntArray:
        return np.flatnonzero(view.selectable)

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

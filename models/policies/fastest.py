"""Fastest in expectation: the m clients of lowest true mean latency (the baseline of PAUSE's study, Section V-A)."""

from __future__ import annotations

import numpy as np

from models.policies.pause.exact_search import top_by_score
from models.policies.protocols import AsksNobody, IntArray, Outcome, State, Truth, View, check_round


class Fastest(AsksNobody):
    """Selects the m selectable clients of lowest mean latency under the laws in force as the round begins; ties: lower client
    first."""

    needs_updates = False

    def __init__(self, *, clients: int, per_round: int, truth: Truth) -> None:
        check_round(clients, per_round)
        self._per_round = per_round
        self._truth = truth

    def select(self, view: View) -> IntArray:
        able = np.flatnonzero(view.selectable)
        speed = -self._truth.mean_latency_s(view.round, view.time_s)[able]
        return np.sort(able[top_by_score(speed, self._per_round, None)])

    def observe(self, outcome: Outcome) -> None:
        pass

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass

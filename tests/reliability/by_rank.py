"""Parts of worlds whose clients are permuted or joined by one more: they go by ranks, and not by the numbers of clients."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from models.laws.availability.presence import Always
from netsim.core.protocols import IntArray, RoundView, State


class ByRank:
    """Select the selectable clients whose ranks come first in an order that is drawn by round."""

    needs_updates = False

    def __init__(self, *, per_round: int, ranks: list[int]) -> None:
        self._per_round, self._ranks = per_round, ranks

    def select(self, view: RoundView) -> IntArray:
        """Return the clients of the round, in the order of the draw."""
        able = np.flatnonzero(view.selectable)
        drawn = [hashlib.sha256(f"{view.round}/{self._ranks[client]}".encode()).digest() for client in able]
        return able[sorted(range(len(able)), key=drawn.__getitem__)][: self._per_round]

    def observe(self, outcome: Any) -> None:
        return None

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        return None


class AllButLast(Always):
    """All clients are present at all times but the last, which never comes."""

    def __init__(self, *, clients: int) -> None:
        super().__init__(clients=clients)
        self.on[-1] = False

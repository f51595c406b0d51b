"""Round-robin over predefined sets of clients (the baseline of Tong et al. 2024, Section VI-A)."""

from __future__ import annotations

import numpy as np

from models.policies.protocols import FloatArray, IntArray, State, check_round
from models.policies.slots import SlotView, check_members


class RoundRobin:
    """Plays `sets` one after the other, and then `random_sets` further ones drawn once, in round 1; then from the beginning.

    Each of `sets` names m different clients, counted from 0; None: none. The paper plays {0, 1, 10, 15, 19} (counted from 0) and
    four random sets. Plays its set whether or not its clients are selectable.
    """

    def __init__(self, *, clients: int, per_round: int, sets: list[list[int]] | None = None, random_sets: int = 4) -> None:
        check_round(clients, per_round)
        self._given = [check_members("sets", members, clients) for members in sets or []]
        wrong = [members for members in self._given if len(members) != per_round]
        if wrong:
            raise ValueError(f"sets has {list(wrong[0])}: must be sets of {per_round} clients, as many as play in a round")
        if random_sets < 0 or random_sets + len(self._given) == 0:
            raise ValueError(f"random_sets = {random_sets!r}: must be >= 0, and >= 1 where no sets are given")
        self._clients, self._per_round, self._random_sets = clients, per_round, random_sets
        self._drawn = np.empty((0, per_round), np.int64)

    def select(self, view: SlotView) -> IntArray:
        """The clients of the slot, ascending; shape (m,)."""
        if len(self._drawn) < self._random_sets:
            draws = [view.rng.choice(self._clients, self._per_round, replace=False) for _ in range(self._random_sets)]
            self._drawn = np.sort(np.array(draws, np.int64), axis=1)
        turn = (view.round - 1) % (len(self._given) + self._random_sets)
        if turn < len(self._given):
            return np.array(self._given[turn], np.int64)
        return np.array(self._drawn[turn - len(self._given)], np.int64)

    def observe_opinions(self, round: int, clients: IntArray, opinions: FloatArray) -> None:
        """Learns nothing."""

    def state_dict(self) -> State:
        return {"drawn": self._drawn.copy()}

    def load_state_dict(self, state: State) -> None:
        self._drawn = np.array(state["drawn"], np.int64).reshape(-1, self._per_round)

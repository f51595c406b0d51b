"""Sets of clients that are settled before the first slot, given or drawn: what baselines choose among (Tong et al., VI-A)."""

from __future__ import annotations

import numpy as np

from models.errors import ParameterError
from models.policies.protocols import IntArray, State, check_round
from models.policies.slotted.protocols import SlotView, check_members


class PredefinedSets:
    """`sets`, and `random_sets` further ones of m clients that are drawn once, with the draws of the first slot asked for.

    Each of `sets` names m different clients, counted from 0; None: none. The paper takes {0, 1, 10, 15, 19} (counted from 0) and
    four random sets.
    """

    def __init__(self, *, clients: int, per_round: int, sets: list[list[int]] | None, random_sets: int) -> None:
        check_round(clients, per_round)
        self._given = [check_members("sets", members, clients) for members in sets or []]
        wrong = [members for members in self._given if len(members) != per_round]
        if wrong:
            reason = f"must be sets of {per_round} clients, as many as a round selects"
            raise ParameterError("sets", sets, reason, shown=f" has {list(wrong[0])}")
        if random_sets < 0 or random_sets + len(self._given) == 0:
            raise ParameterError("random_sets", random_sets, "must be >= 0, and >= 1 where no sets are given")
        self._clients, self._per_round, self._random_sets = clients, per_round, random_sets
        self._drawn = np.empty((0, per_round), np.int64)

    def __len__(self) -> int:
        return len(self._given) + self._random_sets

    def draw(self, view: SlotView) -> None:
        """Draw the random ones, unless that is done."""
        if len(self._drawn) < self._random_sets:
            draws = [view.rng.choice(self._clients, self._per_round, replace=False) for _ in range(self._random_sets)]
            self._drawn = np.sort(np.array(draws, np.int64), axis=1)

    def members(self, number: int) -> IntArray:
        """Set `number`, ascending, the given ones first; shape (m,)."""
        if number < len(self._given):
            return np.array(self._given[number], np.int64)
        return np.array(self._drawn[number - len(self._given)], np.int64)

    def state_dict(self) -> State:
        """The sets drawn."""
        return {"drawn": self._drawn.copy()}

    def load_state_dict(self, state: State) -> None:
        """Take over the sets drawn."""
        self._drawn = np.array(state["drawn"], np.int64).reshape(-1, self._per_round)

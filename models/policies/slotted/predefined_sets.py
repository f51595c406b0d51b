"""Base class of the baselines that choose among predefined sets of clients (Tong et al. 2024, Section VI-A)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.policies.protocols import IgnoresOpinions, IntArray, check_round
from models.policies.slotted.protocols import SlotView, check_members
from netsim.core.state import StateFields


class PredefinedSets(StateFields, IgnoresOpinions, ABC):
    """Base class: it selects one of `sets` and of `random_sets` further sets, which are drawn once, in the first slot.

    The paper takes {0, 1, 10, 15, 19} (counted from 0) and four random sets. A set is selected even if some of its clients are
    not selectable. Subclasses choose the set, in `_choose`.

    Raises:
        ParameterError: a set that does not name m different clients, or no set at all.
    """

    state_fields = ("_drawn",)

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        sets: Annotated[list[list[int]] | None, Doc("Sets of m different clients, counted from 0, to choose from.")] = None,
        random_sets: Annotated[int, Doc("Further sets to choose from, drawn once, in round 1.")] = 4,
    ) -> None:
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

    def select(self, view: SlotView) -> IntArray:
        """Return the clients of the slot, ascending; shape (m,)."""
        if len(self._drawn) < self._random_sets:
            draws = [view.rng.choice(self._clients, self._per_round, replace=False) for _ in range(self._random_sets)]
            self._drawn = np.sort(np.array(draws, np.int64), axis=1)
        given = len(self._given)
        number = self._choose(view, given + self._random_sets)
        members = self._given[number] if number < given else self._drawn[number - given]
        return np.array(members, np.int64)

    @abstractmethod
    def _choose(self, view: SlotView, count: int) -> int:
        """Return the number of the slot's set, from 0; the given sets come first, then the drawn ones, `count` in all."""

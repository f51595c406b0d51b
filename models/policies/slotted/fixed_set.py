"""The same set of clients in every round: with the best set, the optimum that regret is measured against (Tong et al. 2024,
Section VI)."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.policies.protocols import FloatArray, IntArray, State, check_round
from models.policies.slotted.protocols import SlotView, check_members


class FixedSet:
    """Selects the same m clients in every slot, whether or not they are selectable."""

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        members: Annotated[
            list[int],
            Doc("The m different clients, counted from 0, that are selected, whether or not they are selectable."),
        ],
    ) -> None:
        check_round(clients, per_round)
        self._members = np.array(check_members("members", members, clients), np.int64)
        if len(self._members) != per_round:
            raise ParameterError("members", members, f"must be {per_round} clients, as many as a round selects")

    def select(self, view: SlotView) -> IntArray:
        """The clients of the slot, ascending; shape (m,)."""
        return self._members.copy()

    def observe_opinions(self, round: int, clients: IntArray, opinions: FloatArray) -> None:
        """Learns nothing."""

    def notes(self) -> dict[str, int]:
        """Nothing to say."""
        return {}

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass

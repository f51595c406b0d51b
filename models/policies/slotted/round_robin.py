"""Round-robin over predefined sets of clients (the baseline of Tong et al. 2024, Section VI-A)."""

from __future__ import annotations

from typing import Annotated

from annotated_doc import Doc

from models.policies.protocols import FloatArray, IntArray, State
from models.policies.slotted.predefined_sets import PredefinedSets
from models.policies.slotted.protocols import SlotView


class RoundRobin:
    """Selects `sets` one after the other, and then `random_sets` further ones drawn once, in round 1; then from the beginning.

    The paper has {0, 1, 10, 15, 19} (counted from 0) and four random sets. Selects its set whether or not its clients are
    selectable.
    """

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        sets: Annotated[
            list[list[int]] | None,
            Doc("Sets of m different clients, counted from 0, that are selected one after the other."),
        ] = None,
        random_sets: Annotated[int, Doc("Further sets, drawn once, in round 1.")] = 4,
    ) -> None:
        self._sets = PredefinedSets(clients=clients, per_round=per_round, sets=sets, random_sets=random_sets)

    def select(self, view: SlotView) -> IntArray:
        """The clients of the slot, ascending; shape (m,)."""
        self._sets.draw(view)
        return self._sets.members((view.round - 1) % len(self._sets))

    def observe_opinions(self, round: int, clients: IntArray, opinions: FloatArray) -> None:
        """Learns nothing."""

    def notes(self) -> dict[str, int]:
        """Nothing to say."""
        return {}

    def state_dict(self) -> State:
        return self._sets.state_dict()

    def load_state_dict(self, state: State) -> None:
        self._sets.load_state_dict(state)

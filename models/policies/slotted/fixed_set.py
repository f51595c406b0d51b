"""The same set of clients in every slot: with the best set, the optimum that regret is measured against (Tong et al. 2024, VI).
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.policies.protocols import IgnoresOpinions, IntArray, check_round
from models.policies.slotted.protocols import SlotView, check_members
from netsim.core.state import StateFields


class FixedSet(IgnoresOpinions, StateFields):
    """Policy that selects the same m clients in every slot, even if some are not selectable.

    Example:
        >>> import numpy as np
        >>> from netsim.core.protocols import RoundView
        >>> policy = FixedSet(clients=4, per_round=2, members=[3, 0])
        >>> policy.select(RoundView(1, 0.0, np.full(4, True), np.zeros(4, int), np.random.default_rng(1)))
        array([0, 3])
    """

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        members: Annotated[
            list[int],
            Doc("The m different clients, counted from 0, that are selected, even if some are not selectable."),
        ],
    ) -> None:
        check_round(clients, per_round)
        self._members = np.array(check_members("members", members, clients), np.int64)
        if len(self._members) != per_round:
            raise ParameterError("members", members, f"must be {per_round} clients, as many as a round selects")

    def select(self, view: SlotView) -> IntArray:
        """Return the clients of the slot, ascending; shape (m,)."""
        return self._members.copy()

"""Conventional UCB over super-arms, all C(K, m) sets (Tong et al. 2024, eq. 11): selects every arm once before it compares
any."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from annotated_doc import Doc

from models.policies.protocols import FloatArray, IntArray, State, check_round
from models.policies.slotted.arm_order import Arm, Shuffle, Ties, check_ties, subset_of_rank
from models.policies.slotted.arm_table import ArmTable, check_mu
from models.policies.slotted.protocols import SlotView, check_opinions, check_played


class SuperArmUcb:
    """Selects each of the C(K, m) arms once, then the arm of greatest mean_a + mu sqrt(ln t / n_a).

    Memory goes by the arms selected, so that any C(K, m) is allowed; where there are more arms than slots this is a selection at
    random without repetition. Selects its arm whether or not its clients are selectable.
    """

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        mu: Annotated[float, Doc("Weight of exploration.")] = 1.0,
        order: Annotated[
            Ties,
            Doc('Order of the first selections: "random", or a fixed one ("first": colexicographic).'),
        ] = "random",
    ) -> None:
        check_round(clients, per_round)
        check_mu(mu)
        check_ties("order", order)
        self._clients, self._per_round, self._mu = clients, per_round, mu
        self._unplayed = Shuffle(math.comb(clients, per_round), order)
        self._table = ArmTable()
        self._pending: tuple[Arm, int] = ((), 0)
        self.repeats = 0
        """The number of slots that repeated an arm."""

    @property
    def arms_played(self) -> int:
        """The number of different arms selected."""
        return len(self._table)

    def select(self, view: SlotView) -> IntArray:
        """The clients of the slot, ascending; shape (m,)."""
        if self._unplayed.drawn < self._unplayed.count:
            rank = self._unplayed.draw(view.rng)
            self._pending = (subset_of_rank(rank, self._per_round, self._clients), 0)
        else:
            _, count = self._table.best(self._mu * math.sqrt(math.log(view.round)))
            self._pending = (self._table.head(count), count)
        return np.array(self._pending[0], np.int64)

    def observe_opinions(self, round: int, clients: IntArray, opinions: FloatArray) -> None:
        """Learn from the slot just tested: the reward of its arm is the average of `opinions` (K,) (eq. 8)."""
        arm, count = self._pending
        check_played(clients, arm)
        reward = float(check_opinions(opinions, self._clients).mean())
        if count:
            self._table.replay(count, reward)
            self.repeats += 1
        else:
            self._table.add(arm, 1, reward)

    def notes(self) -> dict[str, int]:
        """How many different arms were selected, and in how many slots one that had been selected before."""
        return {"arms_played": self.arms_played, "repeats": self.repeats}

    def state_dict(self) -> State:
        arm, count = self._pending
        return {
            "unplayed": self._unplayed.state_dict(),
            "table": self._table.state_dict(),
            "pending": {"arm": list(arm), "count": count},
            "repeats": self.repeats,
        }

    def load_state_dict(self, state: State) -> None:
        self._unplayed.load_state_dict(state["unplayed"])
        self._table.load_state_dict(state["table"])
        self._pending = (tuple(state["pending"]["arm"]), int(state["pending"]["count"]))
        self.repeats = int(state["repeats"])

"""Conventional UCB over all C(K, m) super-arms (Tong et al. 2024, eq. 11): every arm is selected once before any are compared."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
from annotated_doc import Doc

from models.policies.protocols import FloatArray, IntArray, check_round
from models.policies.slotted.arm_order import Arm, Shuffle, Ties, check_ties, unrank_subset
from models.policies.slotted.arm_table import ArmTable, check_mu
from models.policies.slotted.protocols import SlotView, check_opinions, check_played
from netsim.core.state import StateFields


class _SelectedArm(NamedTuple):
    """Arm of the present slot."""

    arm: Arm = ()
    times_selected: int = 0
    """Number of earlier slots that selected it."""


class SuperArmUcb(StateFields):
    """Policy that selects each of the C(K, m) arms (sets of m clients) once, then that of greatest mean_a + mu sqrt(ln t / n_a).

    Memory grows with the arms selected, so any C(K, m) is allowed; with more arms than slots this selects at random without
    repetition. An arm is selected even if its clients are not selectable.

    Example:
        >>> import numpy as np
        >>> from netsim.core.protocols import RoundView
        >>> policy = SuperArmUcb(clients=4, per_round=2, order="first")
        >>> policy.select(RoundView(1, 0.0, np.full(4, True), np.zeros(4, int), np.random.default_rng(1)))
        array([0, 1])
    """

    state_fields = ("_unplayed", "_table", "_pending", "repeats")

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
        self._pending = _SelectedArm()
        self.repeats = 0
        """Number of slots that repeated an arm."""

    @property
    def arms_played(self) -> int:
        """Number of different arms selected."""
        return len(self._table)

    def select(self, view: SlotView) -> IntArray:
        """Return the clients of the slot, ascending; shape (m,)."""
        if self._unplayed.drawn < self._unplayed.count:
            rank = self._unplayed.draw(view.rng)
            self._pending = _SelectedArm(unrank_subset(rank, self._per_round, self._clients))
        else:
            width = self._mu * math.sqrt(math.log(view.round))
            times_selected = self._table.best(width).times_selected
            self._pending = _SelectedArm(self._table.head(times_selected), times_selected)
        return np.array(self._pending.arm, np.int64)

    def observe_opinions(self, round: int, clients: IntArray, opinions: FloatArray) -> None:
        """Learn from the slot just tested: the reward of its arm is the average of `opinions` (K,) (eq. 8)."""
        selected = self._pending
        check_played(clients, selected.arm)
        reward = float(check_opinions(opinions, self._clients).mean())
        if selected.times_selected:
            self._table.replay(selected.times_selected, reward)
            self.repeats += 1
        else:
            self._table.add(selected.arm, 1, reward)

    def on_load(self) -> None:
        """Name the parts of the arm of the present slot again: a saved state holds a plain tuple."""
        self._pending = _SelectedArm(*self._pending)

    def notes(self) -> dict[str, int]:
        """Return the number of different arms selected, and the number of slots that repeated one."""
        return {"arms_played": self.arms_played, "repeats": self.repeats}

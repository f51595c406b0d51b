"""Quick-Init UCB over super-arms (Tong et al. 2024, Algorithm 1), for FL&FA: the server sees all opinions.

Readings. The first ceil(K/m) slots select groups that together hold every client; each group's reward is credited to its
members, and a member's credit stays as it is after these slots. Every super-arm then starts with n_a = 1 and, as its mean, the
average of its members' credits (the paper adds the credits, which would put the means outside [0, 1]). From then on eq. 11
decides: mean_a + mu sqrt(ln t / n_a). If K/m is not whole, the last group is filled up with clients of earlier groups, and a
client that was in two groups is credited the average of the two.

Arms not yet selected differ only in their means, and these never change: the best of them is the next m-subset in decreasing
sum of credits, which `ByMean` finds without making the others. So C(100, 5) or C(1000, 10) arms cost as much as C(20, 5).
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, NamedTuple

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.policies.protocols import FloatArray, IntArray, State, check_round
from models.policies.slotted.arm_order import Arm, ByMean, Ties, check_ties
from models.policies.slotted.arm_table import ArmTable, check_mu, update_mean
from models.policies.slotted.protocols import SlotView, check_opinions, check_played
from netsim.core.state import StateFields


class _SelectedArm(NamedTuple):
    """Arm of the present slot."""

    arm: Arm = ()
    times_selected: int = 0
    """n_a before the slot: 0 for one of the first groups, 1 for an arm that is selected for the first time after these."""
    mean: float = 0.0
    """Mean with which an arm of n_a = 1 starts: the average credit of its clients."""


class QuickInitUcb(StateFields):
    """Policy that selects a super-arm of m clients a slot and learns from the opinions of all K.

    An arm is selected even if its clients are not selectable. The credits of groups tie often. A new arm comes before a
    selected one of equal index.

    Example:
        >>> import numpy as np
        >>> from netsim.core.protocols import RoundView
        >>> policy = QuickInitUcb(clients=4, per_round=2, groups="consecutive")
        >>> policy.select(RoundView(1, 0.0, np.full(4, True), np.zeros(4, int), np.random.default_rng(1)))
        array([0, 1])
    """

    state_fields = (
        "_order",
        "_credit_sum",
        "_credit_count",
        "_slots",
        "_table",
        "_groups",
        "_pending",
        "arms_played",
        "repeats",
    )

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        mu: Annotated[float, Doc("Weight of exploration.")] = 1.0,
        credit: Annotated[
            Literal["average", "own"],
            Doc(
                'Credit of a member of a group: the average opinion of all clients ("average", as in the paper), or its own '
                '("own").'
            ),
        ] = "average",
        ties: Annotated[
            Ties,
            Doc('First of the arms of equal credits: one at "random", or a fixed one ("first": the one of lower clients).'),
        ] = "random",
        groups: Annotated[Literal["random", "consecutive"], Doc('"random" groups, or "consecutive" clients.')] = "random",
    ) -> None:
        check_round(clients, per_round)
        check_mu(mu)
        check_ties("ties", ties)
        if credit not in ("average", "own"):
            raise ParameterError("credit", credit, "must be 'average' or 'own'")
        if groups not in ("random", "consecutive"):
            raise ParameterError("groups", groups, "must be 'random' or 'consecutive'")
        self._clients, self._per_round, self._mu, self._ties = clients, per_round, mu, ties
        self._own_credit = credit == "own"
        self._random_groups = groups == "random"
        self.cold_slots = math.ceil(clients / per_round)
        """Number of first slots, each of which selects a group."""
        self._order = np.empty(0, np.int64)
        self._credit_sum = np.zeros(clients)
        self._credit_count = np.zeros(clients, np.int64)
        self._slots = 0
        self._table = ArmTable()
        self._unplayed: ByMean | None = None
        self._groups: set[Arm] = set()
        self._pending = _SelectedArm()
        self.arms_played = 0
        """Number of different arms selected."""
        self.repeats = 0
        """Number of slots that repeated an arm."""

    @property
    def credits(self) -> FloatArray:
        """(K,) credit of each client; NaN for a client that has none yet."""
        known = self._credit_count > 0
        return np.where(known, self._credit_sum / np.maximum(self._credit_count, 1), math.nan)

    def select(self, view: SlotView) -> IntArray:
        """Return the clients of the slot, ascending; shape (m,)."""
        if self._slots < self.cold_slots:
            self._pending = _SelectedArm(self._group(view.rng))
        else:
            if self._unplayed is None:
                # All clients have credits now.
                self._unplayed = self._ranking()
            width = self._mu * math.sqrt(math.log(view.round))
            mean_unplayed = self._unplayed.best()
            best_index, times_selected = self._table.best(width)
            # An arm that was not played has the average credit of its clients as its mean, and counts as played once.
            if mean_unplayed + width >= best_index:
                arm = self._unplayed.take(view.rng)
                self._pending = _SelectedArm(arm, times_selected=1, mean=mean_unplayed)
            else:
                self._pending = _SelectedArm(self._table.head(times_selected), times_selected)
        return np.array(self._pending.arm, np.int64)

    def observe_opinions(self, round: int, clients: IntArray, opinions: FloatArray) -> None:
        """Learn from the slot just tested: the reward of its arm is the average of `opinions` (K,) (eq. 8)."""
        selected = self._pending
        arm, times_selected = selected.arm, selected.times_selected
        check_played(clients, arm)
        values = check_opinions(opinions, self._clients)
        reward = float(values.mean())
        if times_selected > 1:
            self._table.replay(times_selected, reward)
            self.repeats += 1
        elif times_selected == 1:
            # The average credit counted as one selection, this slot is the second.
            self._table.add(arm, 2, update_mean(selected.mean, 1, reward))
            self._count(arm)
        else:
            # A slot of the first groups credits clients, not the arm.
            members = list(arm)
            self._credit_sum[members] += values[members] if self._own_credit else reward
            self._credit_count[members] += 1
            self._count(arm)
            self._groups.add(arm)
        self._slots += 1

    def _count(self, arm: Arm) -> None:
        """Count the selection of `arm`, which is not in the table, as a new arm or as a repeat."""
        # An arm that was one of the first groups enters the table only when it is selected again.
        if arm in self._groups:
            self.repeats += 1
        else:
            self.arms_played += 1

    def _group(self, rng: np.random.Generator) -> Arm:
        """Return the group of the present cold slot, ascending; the order of the clients is drawn in the first slot."""
        if self._slots == 0:
            self._order = rng.permutation(self._clients) if self._random_groups else np.arange(self._clients)
        first = self._slots * self._per_round
        # The last group goes on with the first clients.
        places = np.arange(first, first + self._per_round) % self._clients
        return tuple(sorted(self._order[places].tolist()))

    def _ranking(self) -> ByMean:
        """Return all arms in decreasing sum of their clients' credits."""
        return ByMean(values=self.credits, size=self._per_round, ties=self._ties)

    def notes(self) -> dict[str, int]:
        """Return the number of different arms selected, and the number of slots that repeated one."""
        return {"arms_played": self.arms_played, "repeats": self.repeats}

    def state_dict(self) -> State:
        """Return the fields, and the progress through the arms not yet selected, which exists only after the first slots."""
        return super().state_dict() | {"unplayed": None if self._unplayed is None else self._unplayed.state_dict()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        # A saved state holds a plain tuple.
        self._pending = _SelectedArm(*self._pending)
        self._unplayed = None
        if state["unplayed"] is not None:
            self._unplayed = self._ranking()
            self._unplayed.load_state_dict(state["unplayed"])

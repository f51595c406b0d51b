"""Adaptive matching by marginal contribution and fairness (Li et al., Section V, eq. 36-40)."""

from __future__ import annotations

from typing import Annotated

from annotated_doc import Doc

from models.errors import ParameterError
from models.schedulers.matchers.age_first import by_client
from models.schedulers.matchers.rotation import turn
from models.schedulers.protocols import SlotView, State


class Adaptive:
    """The i-th client by lambda_i = (1 - beta_t) C_i + beta_t a_i / (largest age so far) takes the i-th channel.

    beta_t = `beta` V_t / (largest V so far), with V_t = sum over clients of (a_i - mean age)^2, and 0 while all V were 0. Both
    maxima include the present round, are kept in the state, and count the rounds in which `match` is called. The paper leaves
    `beta` in [0, 1] open: 0 goes by contribution alone, 1 by age alone whenever ages have never been more unequal. Equal
    lambda: in the order of rotation.
    """

    def __init__(
        self,
        *,
        beta: Annotated[float, Doc("Greatest weight of ages, between 0 and 1: beta_t = beta V_t / (largest V so far).")] = 0.5,
    ) -> None:
        if not 0.0 <= beta <= 1.0:
            raise ParameterError("beta", beta, "must be between 0 and 1")
        self._beta = beta
        self._largest_age = 0
        self._largest_variance = 0.0

    def match(self, view: SlotView, ranked: list[int]) -> list[int]:
        """The channel of each client."""
        priorities = self._priorities(view.ages.tolist(), view.contribution.tolist())
        order = sorted(turn(view.round, len(ranked)), key=priorities.__getitem__, reverse=True)
        return by_client(order, ranked)

    def _priorities(self, ages: list[int], contribution: list[float]) -> list[float]:
        mean = sum(ages) / len(ages)
        variance = sum([(age - mean) ** 2 for age in ages])
        self._largest_age = largest = max(self._largest_age, *ages)
        self._largest_variance = max(self._largest_variance, variance)
        beta = self._beta * variance / self._largest_variance if variance else 0.0
        return [(1.0 - beta) * c + beta * (age / largest) for c, age in zip(contribution, ages, strict=True)]

    def state_dict(self) -> State:
        return {"largest_age": self._largest_age, "largest_variance": self._largest_variance}

    def load_state_dict(self, state: State) -> None:
        self._largest_age = int(state["largest_age"])
        self._largest_variance = float(state["largest_variance"])

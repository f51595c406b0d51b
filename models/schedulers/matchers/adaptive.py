"""Adaptive matching by marginal contribution and fairness (Li et al., Section V, eq. 36-40)."""

from __future__ import annotations

from typing import Annotated

from annotated_doc import Doc

from models.errors import ParameterError
from models.schedulers.matchers.age_first import match_by_rank
from models.schedulers.matchers.rotation import rotation_order
from models.schedulers.protocols import SlotView
from netsim.core.state import StateFields


class Adaptive(StateFields):
    """Matcher that ranks clients by lambda_i and gives the best channel to the first, and so on.

    lambda_i = (1 - beta_t) C_i + beta_t a_i / (largest age so far), C_i the contribution of client i and a_i its age.
    beta_t = `beta` V_t / (largest V so far), with V_t = sum over clients of (a_i - mean age)^2, and 0 while all V were 0. Both
    maxima include the present round, are part of the saved state, and cover the rounds in which `match` is called. The paper
    leaves `beta` in [0, 1] open: 0 uses contribution alone; 1 uses age alone in a round whose V is the largest so far. Clients
    of equal lambda follow the order of rotation.

    Example:
        >>> import numpy as np
        >>> from netsim.core.scheduling import SlotView
        >>> Adaptive(beta=1.0).match(SlotView(1, np.array([1, 4]), np.ones(2), np.random.default_rng(1)), [7, 5])
        [5, 7]
    """

    state_fields = ("_largest_age", "_largest_variance")

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
        """Return the channel of each client: the order of their lambda meets that of `ranked` (channels, best first)."""
        priorities = self._priorities(view.ages.tolist(), view.contribution.tolist())
        order = sorted(rotation_order(view.round, len(ranked)), key=priorities.__getitem__, reverse=True)
        return match_by_rank(order, ranked)

    def _priorities(self, ages: list[int], contribution: list[float]) -> list[float]:
        """Return lambda of each client, and update the two maxima: the largest age and the largest V so far."""
        mean_age = sum(ages) / len(ages)
        variance = sum([(age - mean_age) ** 2 for age in ages])
        largest_age = max(self._largest_age, *ages)
        self._largest_age = largest_age
        self._largest_variance = max(self._largest_variance, variance)
        beta_t = self._beta * variance / self._largest_variance if variance else 0.0
        return [(1.0 - beta_t) * own + beta_t * (age / largest_age) for own, age in zip(contribution, ages, strict=True)]

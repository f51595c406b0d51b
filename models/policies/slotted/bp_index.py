"""The index of BP-UCB (Tong et al. 2024, eq. 17, 18, Algorithm 2), for FL&DA: the index that each client computes for itself.

All clients are computed as arrays. Beliefs come from `models.peers.belief`; the engine spreads the indices by gossip and
decides when a slot starts. This file holds the state that a client keeps from slot to slot (its mean and its count), and the
index.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.policies.protocols import FloatArray, IntArray, check_round
from models.policies.slotted.arm_table import check_mu
from models.policies.slotted.protocols import check_opinions
from netsim.core.state import StateFields


class BpIndex(StateFields):
    """Index mean_n + b_n / K + mu sqrt(ln t / n_n): b_n is the belief of client n, mean_n the mean of its rewards.

    A client has a reward in each slot in which it was selected; n_n counts them, and t is the slot.

    Example:
        >>> import numpy as np
        >>> policy = BpIndex(clients=3, per_round=2)
        >>> policy.top(policy.index(1, np.array([0.9, 0.1, 0.5])))
        array([0, 2])
    """

    state_fields = ("_mean", "_count")

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        mu: Annotated[float, Doc("Weight of exploration.")] = 0.01,
        credit: Annotated[
            Literal["own", "average"],
            Doc(
                'Reward of a selected client: its "own" opinion (eq. 18), or the "average" over all clients (which they would '
                "have to spread, too)."
            ),
        ] = "own",
        cold_start: Annotated[
            bool,
            Doc(
                "True: in slot 1 every client tests the model and counts as selected once (as in the proof of Theorem 3; "
                "Algorithm 2 does not print it). False: a client that was not selected in slot 1 starts with n_n = 1 and mean 0."
            ),
        ] = True,
    ) -> None:
        check_round(clients, per_round)
        check_mu(mu)
        if credit not in ("own", "average"):
            raise ParameterError("credit", credit, "must be 'own' or 'average'")
        self._per_round, self._mu, self._cold_start = per_round, mu, cold_start
        self._own_credit = credit == "own"
        self._mean = np.zeros(clients)
        self._count = np.ones(clients, np.int64)

    @property
    def means(self) -> FloatArray:
        """(K,) mean of each client (eq. 18); a copy."""
        return self._mean.copy()

    @property
    def counts(self) -> IntArray:
        """(K,) number of slots in which each client was selected, as the index counts it: at least 1. A copy."""
        return self._count.copy()

    def index(self, round: int, belief: FloatArray) -> FloatArray:
        """Return the indices (K,) of slot `round` from `belief` (K,).

        In slot 1 all means are 0 and ln 1 = 0, so only the beliefs differ.
        """
        if round < 1:
            raise ParameterError("round", round, "must be >= 1")
        if np.shape(belief) != self._mean.shape:
            reason = f"must be {self._mean.shape}, one belief for each client"
            raise ParameterError("belief", belief, reason, shown=f" has shape {np.shape(belief)}")
        return np.asarray(self._mean + belief / len(self._mean) + self._mu * np.sqrt(math.log(round) / self._count))

    def top(self, index: FloatArray, priority: FloatArray | None = None) -> IntArray:
        """Return the m clients of greatest `index` (K,), ascending.

        Ties go to the lower `priority` (K,), then to the lower client.
        """
        keys = (-index,) if priority is None else (priority, -index)
        return np.sort(np.lexsort(keys)[: self._per_round])

    def observe_opinions(self, round: int, clients: IntArray, opinions: FloatArray) -> None:
        """Learn from the test of the model in slot `round`; called once a slot.

        `clients` (m,) were selected in it; `opinions` (K,) are those of all clients, in [0, 1].
        """
        values = check_opinions(opinions, len(self._mean))
        rewarded = np.asarray(clients, np.int64)
        if round == 1 and self._cold_start:
            rewarded = np.arange(len(values))
        rewards = values[rewarded] if self._own_credit else values.mean()
        # Counts start at 1 for the test of slot 1, which must not count twice.
        if round > 1:
            self._count[rewarded] += 1
        self._mean[rewarded] += (rewards - self._mean[rewarded]) / self._count[rewarded]

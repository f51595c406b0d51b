"""The index of BP-UCB (Tong et al. 2024, eq. 17, 18, Algorithm 2), for FL&DA: what each client computes of itself, as arrays.

Beliefs come from `models.peers.belief`; the engine spreads the indices by gossip and decides when a slot starts. Here is what a
client keeps from slot to slot (its mean and its count) and the index it makes of them.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.policies.protocols import FloatArray, IntArray, State, check_round
from models.policies.slotted.arm_table import check_mu
from models.policies.slotted.protocols import check_opinions


class BpIndex:
    """mean_n + b_n / K + mu sqrt(ln t / n_n), the mean over the slots in which client n was selected."""

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        mu: Annotated[float, Doc("Weight of exploration.")] = 0.01,
        credit: Annotated[
            Literal["own", "average"],
            Doc(
                'What a selected client counts: its "own" opinion (eq. 18), or the "average" over all clients (which they would '
                "have to spread, too)."
            ),
        ] = "own",
        cold_start: Annotated[
            bool,
            Doc(
                "In slot 1 every client tests the model and counts as selected once (the proof of Theorem 3 has this, Algorithm "
                "2 does not print it); without it, a client that was not selected in slot 1 starts with n_n = 1 and mean 0."
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
        """(K,) each client's mean (eq. 18)."""
        return self._mean.copy()

    @property
    def counts(self) -> IntArray:
        """(K,) in how many slots each client was selected, as the index counts it: at least 1."""
        return self._count.copy()

    def index(self, round: int, belief: FloatArray) -> FloatArray:
        """The indices (K,) of slot `round` from beliefs (K,). In slot 1, before any opinion counts, only beliefs differ."""
        if round < 1:
            raise ParameterError("round", round, "must be >= 1")
        if np.shape(belief) != self._mean.shape:
            reason = f"must be {self._mean.shape}, one belief for each client"
            raise ParameterError("belief", belief, reason, shown=f" has shape {np.shape(belief)}")
        return np.asarray(self._mean + belief / len(self._mean) + self._mu * np.sqrt(math.log(round) / self._count))

    def top(self, index: FloatArray, priority: FloatArray | None = None) -> IntArray:
        """The m clients of greatest `index` (K,), ascending; of equal ones the lower `priority` (K,), then the lower client."""
        keys = (-index,) if priority is None else (priority, -index)
        return np.sort(np.lexsort(keys)[: self._per_round])

    def observe_opinions(self, round: int, clients: IntArray, opinions: FloatArray) -> None:
        """Count the test of slot `round`: `clients` were selected in it, `opinions` (K,) are all clients'. Once a slot."""
        values = check_opinions(opinions, len(self._mean))
        who = np.arange(len(values)) if round == 1 and self._cold_start else np.asarray(clients, np.int64)
        earned = values[who] if self._own_credit else values.mean()
        # Every count starts at 1, and slot 1 is that first time, not a second one.
        if round > 1:
            self._count[who] += 1
        self._mean[who] += (earned - self._mean[who]) / self._count[who]

    def state_dict(self) -> State:
        return {"mean": self._mean.copy(), "count": self._count.copy()}

    def load_state_dict(self, state: State) -> None:
        self._mean[:] = state["mean"]
        self._count[:] = state["count"]

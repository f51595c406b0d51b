"""What the policies of the PAUSE family share: the confidence bound (PAUSE eq. 11-13), the rewards, state, and the round of
Algorithm 1.

A policy of the family adds how it searches for the set of greatest energy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from models.policies.protocols import FloatArray, IntArray, Outcome, State, View, check_at_least
from models.policies.rewards import Rewards, Schedule, latency_ratio


class Terms(NamedTuple):
    """The terms of the energy (eq. 18) of the clients one can choose from; each (n,). Read only."""

    ucb: FloatArray
    modular: FloatArray
    generalization: FloatArray
    privacy: FloatArray


class UcbPolicy(ABC):
    """Selects by ucb, generalization and privacy rewards. Subclasses say how, in `_search`.

    Every selection gives one observation of tau_min/tau, at the close of its round. The paper knows no censoring: a latency
    that was cut off (a client lost, late or aborted) is taken as the time at which the server stopped waiting. T_k of eq. 8 and
    13 counts these selections; p_k of eq. 7 goes by what was released (`View.participations`).
    """

    needs_updates = False

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        data_sizes: FloatArray,
        schedule: Schedule,
        alpha: float = 100.0,
        beta: float = 2.0,
        gamma: float = 5.0,
        zeta: float = 1.0,
        tau_min_s: float = 0.05,
    ) -> None:
        self._rewards = Rewards(
            clients=clients,
            per_round=per_round,
            data_sizes=data_sizes,
            schedule=schedule,
            alpha=alpha,
            beta=beta,
            gamma=gamma,
        )
        check_at_least("zeta", zeta, 0)
        check_at_least("tau_min_s", tau_min_s, 0, strict=True)
        self._per_round = per_round
        self._zeta = zeta
        self._tau_min_s = tau_min_s
        self._ratio_sum = np.zeros(clients)
        # ucb = exploit + sqrt((m+1) ln t) * width; both change for the clients of a round only. Unexplored: inf + 0.
        self._exploit = np.full(clients, math.inf)
        self._width = np.zeros(clients)
        self._ucb = np.empty(clients)

    def select(self, view: View) -> IntArray:
        """The m selectable clients `_search` settles on, ascending; all selectable clients where they are no more than m."""
        np.multiply(self._width, math.sqrt((self._per_round + 1) * math.log(view.round)), out=self._ucb)
        self._ucb += self._exploit
        rewards = self._rewards
        modular = rewards.update(view.round, view.participations)
        terms = Terms(self._ucb, modular, rewards.generalization, rewards.privacy)
        if view.selectable.all():
            if len(modular) <= self._per_round:
                return np.arange(len(modular))
            return np.sort(self._search(terms, view.rng))
        able = np.flatnonzero(view.selectable)
        if len(able) <= self._per_round:
            return able
        return np.sort(able[self._search(Terms(*(term[able] for term in terms)), view.rng)])

    def observe(self, outcome: Outcome) -> None:
        clients = outcome.clients
        self._rewards.count(clients)
        self._ratio_sum[clients] += latency_ratio(self._tau_min_s, outcome.latency_s)
        self._refresh(clients)

    def state_dict(self) -> State:
        return {"rewards": self._rewards.state_dict(), "ratio_sum": self._ratio_sum.copy()}

    def load_state_dict(self, state: State) -> None:
        self._rewards.load_state_dict(state["rewards"])
        self._ratio_sum[:] = state["ratio_sum"]
        self._exploit.fill(math.inf)
        self._width.fill(0.0)
        self._refresh(np.flatnonzero(self._rewards.counts))

    def _refresh(self, clients: IntArray) -> None:
        counts = self._rewards.counts[clients]
        self._exploit[clients] = self._zeta * (self._ratio_sum[clients] / counts)
        self._width[clients] = 1.0 / np.sqrt(counts)

    @abstractmethod
    def _search(self, terms: Terms, rng: np.random.Generator) -> IntArray:
        """Positions of m of the n > m clients in `terms`; distinct."""

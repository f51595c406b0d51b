"""What the policies of the PAUSE family share: the confidence bound (PAUSE eq. 11-13), the rewards, state, and the round of
Algorithm 1.

A policy of the family adds how it searches for the set of greatest energy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, NamedTuple

import numpy as np
from annotated_doc import Doc

from models.detection.protocols import Detector
from models.policies.pause.latency_means import LatencyMeans
from models.policies.pause.parameters import PauseParameters
from models.policies.pause.rewards import Rewards, Schedule, latency_ratio
from models.policies.protocols import AsksNobody, FloatArray, IntArray, Outcome, State, View

PerClientDetector = Annotated[
    Callable[[], Detector] | None,
    Doc(
        "Watches each client's tau_min/tau, numbers in (0, 1], and its mean is reset where a change is declared (absent: it "
        "averages over the whole run)."
    ),
]


class Terms(NamedTuple):
    """The terms of the energy (eq. 18) of the clients one can choose from; each (n,). Read only."""

    ucb: FloatArray
    modular: FloatArray
    generalization: FloatArray
    privacy: FloatArray


class UcbPolicy(ABC, AsksNobody):
    """Selects by ucb, generalization and privacy rewards. Subclasses say how, in `_search`.

    Every selection gives one observation of tau_min/tau, at the close of its round. The paper knows no censoring: a latency
    that was censored (a client lost, late or aborted) is taken as the time at which the server stopped waiting. T_k of eq. 8 and
    13 counts these selections; p_k of eq. 7 goes by what was released (`View.participations`). With a `detector`, T_k of eq. 13
    counts the observations since the client's last declared change, and the one that told of it; the logarithm goes by t still.
    Clients never selected have an infinite ucb (eq. 13) and so come first. With `unexplored` "energy" the greatest generalization
    and privacy rewards decide among them (eq. 14; equal ones: chance), with "random" chance alone, as in the authors' code.
    A server that asks for one client at a time and makes a model of several updates says of how many, in `per_model`: a client
    takes part in at most one of them, so that m of eq. 8, which compares T_k/t with its share of the data, is this number. In
    eq. 13 and 14 m stays the size of the set that is chosen, `per_round`.
    """

    needs_updates = False
    counts_updates = True

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        data_sizes: FloatArray,
        schedule: Schedule,
        parameters: PauseParameters = PauseParameters(),
        detector: PerClientDetector = None,
        per_model: int | None = None,
    ) -> None:
        self._check_size(clients, per_round)
        self._rewards = Rewards(
            clients=clients,
            per_round=per_round,
            data_sizes=data_sizes,
            schedule=schedule,
            parameters=parameters,
            per_model=per_model,
        )
        self._at_random = parameters.unexplored == "random"
        self._per_round = per_round
        self._zeta = parameters.zeta
        self._tau_min_s = parameters.tau_min_s
        self._latency = LatencyMeans(clients=clients, detector=detector)
        # ucb = exploit + sqrt((m+1) ln t) * width; both change for the clients of a round only. Unexplored: inf + 0.
        self._exploit = np.full(clients, math.inf)
        self._width = np.zeros(clients)
        self._ucb = np.empty(clients)

    def _check_size(self, clients: int, per_round: int) -> None:
        """Refuse m of K clients that the search cannot do; by default it does all."""

    def select(self, view: View) -> IntArray:
        """The m selectable clients `_search` settles on, ascending; all selectable clients where they are no more than m."""
        np.multiply(self._width, math.sqrt((self._per_round + 1) * math.log(view.round)), out=self._ucb)
        self._ucb += self._exploit
        rewards = self._rewards
        modular = rewards.update(view.round, view.participations)
        if self._at_random:
            able = np.flatnonzero(view.selectable)
            fresh = able[np.isinf(self._exploit[able])]
            if len(fresh):
                return self._explore(fresh, able, view.rng)
        terms = Terms(self._ucb, modular, rewards.generalization, rewards.privacy)
        if view.selectable.all():
            if len(modular) <= self._per_round:
                return np.arange(len(modular))
            return np.sort(self._search(terms, view.rng))
        able = np.flatnonzero(view.selectable)
        if len(able) <= self._per_round:
            return able
        return np.sort(able[self._search(Terms(*(term[able] for term in terms)), view.rng)])

    def _explore(self, fresh: IntArray, able: IntArray, rng: np.random.Generator) -> IntArray:
        """m of the clients `able`, ascending: at random those never selected (`fresh`), then, if these are fewer, others."""
        chosen = rng.choice(fresh, min(self._per_round, len(fresh)), replace=False)
        others = np.setdiff1d(able, fresh)
        short = min(self._per_round - len(chosen), len(others))
        return np.sort(np.concatenate([chosen, rng.choice(others, short, replace=False)]))

    def observe(self, outcome: Outcome) -> None:
        clients = outcome.clients
        self._rewards.count(clients)
        self._latency.observe(outcome.round, clients, latency_ratio(self._tau_min_s, outcome.latency_s))
        self._refresh(clients)

    @property
    def restarts(self) -> list[tuple[int, int]]:
        """(round, client) of every change of a client's latency that was declared; a copy."""
        return self._latency.restarts.copy()

    def state_dict(self) -> State:
        return {"rewards": self._rewards.state_dict(), "latency": self._latency.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self._rewards.load_state_dict(state["rewards"])
        self._latency.load_state_dict(state["latency"])
        self._refresh(np.arange(len(self._exploit)))

    def _refresh(self, clients: IntArray) -> None:
        mean, width = self._latency.mean_and_width(clients)
        self._width[clients] = width
        self._exploit[clients] = np.where(width > 0.0, self._zeta * mean, math.inf)

    @abstractmethod
    def _search(self, terms: Terms, rng: np.random.Generator) -> IntArray:
        """Positions of m of the n > m clients in `terms`; distinct."""

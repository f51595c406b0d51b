"""Base class of the PAUSE family: confidence bound (PAUSE eq. 11-13), rewards, state, and the round of Algorithm 1.

A subclass adds the search for the set of greatest energy.
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
from models.policies.protocols import FloatArray, IntArray, NoProbes, Outcome, View
from netsim.core.state import StateFields

PerClientDetector = Annotated[
    Callable[[], Detector] | None,
    Doc(
        "Detector of changes in each client's tau_min/tau, a number in (0, 1]. A declared change resets the client's mean; "
        "absent: means are over the whole run."
    ),
]


class Terms(NamedTuple):
    """Terms of the energy (eq. 18) of the n candidates; each (n,). Read only."""

    ucb: FloatArray
    modular: FloatArray
    generalization: FloatArray
    privacy: FloatArray


class UcbPolicy(StateFields, ABC, NoProbes):
    """Base class of policies that select by ucb, generalization and privacy rewards. Subclasses search for the best set.

    Every selection gives one observation of tau_min/tau, at the close of its round. The paper knows no censoring: the latency
    of a client that was lost, late or aborted is taken as the time at which the server stopped waiting. T_k of eq. 8 and 13
    counts these selections; p_k of eq. 7 counts releases (`View.participations`). With a `detector`, T_k of eq. 13 counts the
    observations since the client's last declared change, the one that led to its declaration included; the logarithm keeps the
    number of the round.

    Clients never selected have an infinite ucb (eq. 13) and so come first. With `unexplored` "energy" the greatest
    generalization and privacy rewards decide among them (eq. 14; ties at random), with "random" chance alone, as in the
    authors' code.

    `per_model`: the number of updates that make a model, where a server asks for one client at a time. A client takes part in
    at most one of them, so this number is m of eq. 8, which compares T_k/t with the client's share of the data. In eq. 13 and
    14 m stays the size of the selected set, `per_round`.
    """

    state_fields = ("_rewards", "_latency")
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
        """Raise ParameterError if the search cannot handle m of K clients. The default accepts all."""

    def select(self, view: View) -> IntArray:
        """Return the m selectable clients that `_search` finds, ascending; all selectable clients if they are m or fewer.

        With `unexplored` "random", clients that were never selected come first, drawn by `_explore`.
        """
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
        # Fast path without copies: if all clients are selectable, positions among the candidates are clients.
        if view.selectable.all():
            if len(modular) <= self._per_round:
                return np.arange(len(modular))
            return np.sort(self._search(terms, view.rng))
        able = np.flatnonzero(view.selectable)
        if len(able) <= self._per_round:
            return able
        positions = self._search(Terms(*(term[able] for term in terms)), view.rng)
        return np.sort(able[positions])

    def _explore(self, fresh: IntArray, able: IntArray, rng: np.random.Generator) -> IntArray:
        """Return m clients of `able`, ascending, for `unexplored` "random".

        Clients never selected (`fresh`) are drawn first, uniformly; if they are too few, the rest is drawn from the others.
        """
        explored = rng.choice(fresh, min(self._per_round, len(fresh)), replace=False)
        others = np.setdiff1d(able, fresh)
        missing = min(self._per_round - len(explored), len(others))
        return np.sort(np.concatenate([explored, rng.choice(others, missing, replace=False)]))

    def observe(self, outcome: Outcome) -> None:
        """Count the selections of the round, and learn from the latencies of all its clients."""
        clients = outcome.clients
        self._rewards.count(clients)
        self._latency.observe(outcome.round, clients, latency_ratio(self._tau_min_s, outcome.latency_s))
        self._refresh(clients)

    @property
    def restarts(self) -> list[tuple[int, int]]:
        """(round, client) of every declared change of a client's latency; a copy."""
        return self._latency.restarts.copy()

    def on_load(self) -> None:
        """Recompute the ucb of all clients from the restored means."""
        self._refresh(np.arange(len(self._exploit)))

    def _refresh(self, clients: IntArray) -> None:
        """Recompute the two parts of the ucb of `clients` from their running means."""
        mean, width = self._latency.summarise(clients)
        self._width[clients] = width
        self._exploit[clients] = np.where(width > 0.0, self._zeta * mean, math.inf)

    @abstractmethod
    def _search(self, terms: Terms, rng: np.random.Generator) -> IntArray:
        """Return positions of m of the n > m candidates in `terms`; distinct, in any order."""

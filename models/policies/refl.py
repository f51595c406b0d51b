"""REFL's selection: resource-efficient federated learning (Abdelmoniem, Sahu, Canini and Fahmy, EuroSys 2023).

Clients are asked for a forecast of their presence in [mu, 2 mu] from now, mu the mean duration of a round. Those of the lowest
forecast come first, ties at random, so that clients that are rarely present take part while they are. mu <- (1 - a) last + a
mu, a = 0.25: the newest round has a weight of 0.75, as in the authors' code. The server (`semi-synchronous`) and the
aggregation handle late updates, which REFL uses.

Adaptive target (as recalled, and in the authors' code): m_t = max(1, m - B) clients are selected, B the updates under way that
are expected within mu from now. The expected latency of a client is its last one; of a client that has delivered nothing yet,
the mean of the others' last latencies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
from annotated_doc import Doc

from models.policies.draws import largest, uniform_draws
from models.policies.protocols import (
    BoolArray,
    FloatArray,
    IntArray,
    NoProbes,
    Outcome,
    Presence,
    View,
    check_at_least,
    check_round,
    check_share,
)
from netsim.core.state import StateFields

_DIGITS = 9
"""Decimals to which forecasts are rounded. They are differences of times, so equal shares would differ in their last digits."""


class Refl(NoProbes, StateFields):
    """Policy that selects clients that will soon be away. A client that did not answer the request is selected only if none did.

    Example:
        >>> import numpy as np
        >>> from models.laws.availability.presence import Always
        >>> from netsim.core.protocols import RoundView
        >>> policy = Refl(clients=4, per_round=2, presence=Always(clients=4), round_s=60.0)
        >>> policy.probe(RoundView(1, 0.0, np.array([True, False, True, True]), np.zeros(4, int), np.random.default_rng(1)))
        array([0, 2, 3])
    """

    state_fields = ("mean_round_s", "_since_s", "_latency_s")
    needs_updates = False
    probes = True
    question: ClassVar[str] = "request"
    uses_late_where: ClassVar[Mapping[str, bool]] = {"adaptive": True}

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        presence: Presence,
        round_s: Annotated[float, Doc("mu before the first round, seconds.")],
        memory: Annotated[float, Doc("a, the weight of the former mu in the new one.")] = 0.25,
        priority: Annotated[
            bool,
            Doc(
                "True, as in the authors' code: clients that are present throughout the next mu seconds, but not throughout the "
                "mu after them, come first, the others at random."
            ),
        ] = False,
        adaptive: Annotated[
            bool,
            Doc(
                "True: the number of selected clients falls, down to one, by the updates under way that are expected within mu "
                "seconds. Needs a server under which late updates count."
            ),
        ] = False,
    ) -> None:
        check_round(clients, per_round)
        check_at_least("round_s", round_s, 0, strict=True)
        check_share("memory", memory)
        self._clients, self._per_round, self._presence = clients, per_round, presence
        self._memory, self._priority, self._adaptive = memory, priority, adaptive
        self.mean_round_s = round_s
        """mu, in seconds."""
        self._since_s: FloatArray = np.full(clients, np.nan)
        """(K,) time at which each client with an update under way was selected; NaN for the other clients."""
        self._latency_s: FloatArray = np.full(clients, np.nan)
        """(K,) last latency of each client; NaN if it has delivered nothing yet."""

    def count_expected(self, now_s: float) -> int:
        """Return B, the number of updates under way that are expected within mu from `now_s`, overdue ones included."""
        under_way = ~np.isnan(self._since_s)
        is_unknown = np.isnan(self._latency_s)
        known_s = self._latency_s[~is_unknown]
        # A client that has delivered nothing counts with the mean of the others, or with mu.
        usual_s = float(known_s.mean()) if len(known_s) else self.mean_round_s
        latency_s = np.where(is_unknown, usual_s, self._latency_s)
        expected_end_s = self._since_s[under_way] + latency_s[under_way]
        return int(np.count_nonzero(expected_end_s <= now_s + self.mean_round_s))

    def probe(self, view: View) -> IntArray:
        """Return all selectable clients."""
        return np.flatnonzero(view.selectable)

    def select(self, view: View) -> IntArray:
        """Return min(m_t, answered) clients, ascending; shape (n,)."""
        chosen = self._choose(view)
        self._since_s[chosen] = view.time_s
        return chosen

    def _choose(self, view: View) -> IntArray:
        """Return the clients (n,) to select: the first by rank of those that answered, or random ones if none answered.

        Clients that are selectable are no longer counted among those with an update under way.
        """
        selectable, probed = view.selectable, view.probed
        self._since_s[selectable] = np.nan  # a selectable client has no update under way
        wanted = self._per_round
        if self._adaptive:
            wanted = max(1, wanted - self.count_expected(view.time_s))
        answered = np.zeros(self._clients, np.bool_)
        answered[probed.clients[probed.answered]] = True
        answered &= selectable
        if not answered.any():
            return uniform_draws(selectable, wanted, view.rng)
        return largest(-self._rank(view.time_s), answered, wanted, view.rng)

    def _rank(self, now_s: float) -> FloatArray:
        """Return the ranks (K,) of the clients, the least is selected first: their forecasts, or 0 and 1 with `priority`."""
        mu_s = self.mean_round_s
        second_mu = np.round(self._presence.forecast(now_s + mu_s, now_s + 2 * mu_s), _DIGITS)
        if not self._priority:
            return second_mu
        first_mu = np.round(self._presence.forecast(now_s, now_s + mu_s), _DIGITS)
        leaves: BoolArray = (first_mu == 1.0) & (second_mu < 1.0)
        return np.where(leaves, 0.0, 1.0)

    def observe(self, outcome: Outcome) -> None:
        """Update mu by the duration of the round, and store the latencies of the updates that arrived."""
        self.mean_round_s = (1 - self._memory) * (outcome.end_s - outcome.start_s) + self._memory * self.mean_round_s
        self._since_s[outcome.clients] = np.nan
        arrived = ~outcome.censored
        self._latency_s[outcome.clients[arrived]] = outcome.latency_s[arrived]

"""PAUSE's rewards of single clients (eq. 7, 8) and the modular score made of them, computed from running counts.

Shared by the policies of the PAUSE family, by the genie, and by the meter of regret. `T_k` is the count before the round, `t`
the number of the round: the paper's index t-1 is undefined in the first round, and its authors compute it this way.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from models.policies.pause.parameters import RewardParameters
from models.policies.protocols import FloatArray, IntArray, check_at_least, check_round, data_shares
from netsim.core.state import StateFields


class Schedule(Protocol):
    """Part of a schedule of privacy budgets that the privacy reward needs (`models.privacy`)."""

    @property
    def total(self) -> float:
        """Sum of all budgets; inf without a privacy mechanism."""

    def leak(self, T: IntArray) -> FloatArray:
        """Return the composed leak after `T` releases; same shape."""


def latency_ratio(tau_min_s: float, latency_s: FloatArray) -> FloatArray:
    """Return tau_min/tau of eq. 9 and 11 for latencies in seconds; same shape, in (0, 1].

    The paper assumes tau >= tau_min with probability one. A shorter latency counts as `tau_min_s`, so that the ratio stays in
    the [0, 1] on which the confidence bound (eq. 13, A.9) rests.
    """
    ratio: FloatArray = tau_min_s / np.maximum(latency_s, tau_min_s)
    return ratio


class Rewards(StateFields):
    """Generalization rewards g_k, privacy rewards p_k, and modular scores (alpha g_k + gamma p_k)/m of all clients.

    It counts selections itself (`count`); `update` takes the releases. Privacy rewards are recomputed only for clients whose
    releases changed. Returned arrays are buffers that the next `update` overwrites. `per_model`: m of eq. 8, where a round
    takes more clients than are selected at once (None: `per_round`).
    """

    state_fields = ("counts",)

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        data_sizes: FloatArray,
        schedule: Schedule,
        parameters: RewardParameters,
        per_model: int | None = None,
    ) -> None:
        check_round(clients, per_round)
        if per_model is not None:
            check_at_least("per_model", per_model, 1)
        self._target = (per_round if per_model is None else per_model) * data_shares(data_sizes, clients)
        """(K,) m n_k / n: share of the rounds in which a client would take part by its data."""
        self._schedule = schedule
        self._alpha = parameters.alpha / per_round
        self._beta = parameters.beta
        self._gamma = parameters.gamma / per_round
        self.counts: FloatArray = np.zeros(clients)
        """(K,) T_k; floats, because they are only ever divided."""
        self.generalization: FloatArray = np.zeros(clients)
        """(K,) g_k of the last `update`."""
        self.privacy: FloatArray = np.ones(clients)
        """(K,) p_k of the last `update`."""
        self._releases: IntArray = np.zeros(clients, np.int64)
        self._weighted_privacy = np.full(clients, self._gamma)
        # p_k by number of releases. Each entry is computed alone, so that its last digits do not depend on the other counts.
        self._privacy_by_count = np.ones(1)
        self._modular: FloatArray = np.empty(clients)

    def update(self, round: int, releases: IntArray) -> FloatArray:
        """Return the modular scores (K,) of round `round` (from 1), given all `releases` (K,) so far."""
        changed = np.flatnonzero(releases != self._releases)
        if len(changed):
            new_releases = releases[changed]
            self._releases[changed] = new_releases
            self.privacy[changed] = self._privacy_of(new_releases)
            self._weighted_privacy[changed] = self._gamma * self.privacy[changed]
        # g = sign(d) |d|^beta with d = target - T_k / t (eq. 8), written into buffers, because K is large: `g` holds d first, and
        # `score` |d|. beta = 2 needs no power, which costs far more than a product.
        g, score = self.generalization, self._modular
        np.divide(self.counts, round, out=g)
        np.subtract(self._target, g, out=g)
        np.abs(g, out=score)
        if self._beta == 2.0:
            g *= score
        else:
            np.power(score, self._beta, out=score)
            np.copysign(score, g, out=g)
        np.multiply(g, self._alpha, out=score)
        score += self._weighted_privacy
        return score

    def update_by_counts(self, round: int) -> FloatArray:
        """Return the modular scores (K,) of round `round`, where every selection is a release, as in the paper."""
        return self.update(round, self.counts.astype(np.int64))

    def count(self, clients: IntArray) -> None:
        """Count one more selection of each of `clients` (n,), distinct."""
        self.counts[clients] += 1.0

    def _privacy_of(self, releases: IntArray) -> FloatArray:
        """Return p_k (n,) of eq. 7 after these numbers of `releases` (n,), from a table that grows as needed."""
        known = len(self._privacy_by_count)
        most = int(releases.max())
        if most >= known:
            total = self._schedule.total
            # One call for each count: see `_privacy_by_count`.
            leaks = [float(self._schedule.leak(np.array([T]))[0]) for T in range(known, most + 1)]
            new_rewards = [1.0 - leak / total for leak in leaks]
            self._privacy_by_count = np.concatenate((self._privacy_by_count, new_rewards))
        privacy: FloatArray = self._privacy_by_count[releases]
        return privacy

"""Distributions over clients, one client drawn from each: the common part of both clustered samplings (Fraboni et al. 2021).

Distribution k gives client i probability r_{k,i}; each sums to 1, and over the distributions those of client i sum to m p_i,
where p_i is its share of the data. So the client is drawn m p_i times in expectation (their Proposition 1, unbiased).

Our reading where the paper's draws meet a simulator: the clients of a round are a set and must be free. A draw of a client that
is not selectable or was drawn already is repeated within the same distribution, among its selectable and yet undrawn clients.
If it has none, the draw is among all such clients, in proportion to their data. So m distinct clients come out wherever m are
selectable. Nothing is repeated if all clients are selectable and none is in two distributions. The paper gives each draw the
weight 1/m in the aggregation; here the aggregation weighs by data (FedAvg), as for every policy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from models.policies.protocols import BoolArray, FloatArray, IntArray

# Masses are sums of shares that add up to whole numbers only up to rounding.
ROUNDING = 1e-9


class Distribution(NamedTuple):
    """Distribution over clients: each has an interval of [0, 1], as long as its probability."""

    clients: IntArray
    """(n,)"""
    upper: FloatArray
    """(n,) upper ends of the intervals, ascending; the last is 1."""

    def probabilities(self) -> FloatArray:
        """Return r_{k,i} of `clients`; shape (n,)."""
        return np.diff(self.upper, prepend=0.0)

    def pick(self, u: float) -> int:
        """Return the client whose interval holds `u` in [0, 1)."""
        return int(self.clients[np.searchsorted(self.upper, u, side="right")])


def make_distribution(clients: IntArray, masses: FloatArray) -> Distribution:
    """Return the distribution over `clients` (n,) in proportion to `masses` (n,), >= 0 and not all 0."""
    upper = np.cumsum(masses)
    upper /= upper[-1]
    return Distribution(clients, upper)


def fill_distributions(order: IntArray, masses: FloatArray) -> list[Distribution]:
    """Pour the `masses` (n,) of the clients `order` (n,) into distributions of mass 1, one after the other.

    A client that does not fit whole is split between two neighbours. The masses add up to a whole number (up to rounding),
    the number of distributions returned.
    """
    upper = np.cumsum(masses)
    count = round(float(upper[-1]))
    upper *= count / upper[-1]
    # Client `order[i]` has the interval from upper[i - 1] to upper[i], distribution k that from k to k + 1.
    filled = []
    for k in range(count):
        # The first and the last client whose interval overlaps that of the distribution.
        first = int(np.searchsorted(upper, k + ROUNDING, side="right"))
        last = min(int(np.searchsorted(upper, k + 1 - ROUNDING, side="left")), len(upper) - 1)
        overlapping = slice(first, last + 1)
        ends = np.minimum(upper[overlapping], k + 1) - k
        filled.append(make_distribution(order[overlapping], np.diff(ends, prepend=0.0)))
    return filled


def draw_set(distributions: list[Distribution], shares: FloatArray, selectable: BoolArray, rng: np.random.Generator) -> IntArray:
    """Draw one distinct selectable client from each distribution (see the head of this file), ascending.

    Returns all selectable clients if they are no more than the distributions. `shares` (K,) of the data weigh the clients where
    a distribution has none left.
    """
    candidates = np.flatnonzero(selectable)
    if len(candidates) <= len(distributions):
        return candidates
    is_free = selectable.copy()
    """(K,) True for clients that are selectable and not drawn yet."""
    drawn: list[int] = []
    to_repeat: list[Distribution] = []
    for distribution, u in zip(distributions, rng.random(len(distributions)).tolist(), strict=True):
        client = distribution.pick(u)
        if is_free[client]:
            is_free[client] = False
            drawn.append(client)
        else:
            to_repeat.append(distribution)
    # Only now, so that a repeated draw takes no client from a distribution that drew it at once.
    for distribution in to_repeat:
        are_free = is_free[distribution.clients]
        clients, masses = distribution.clients[are_free], distribution.probabilities()[are_free]
        if masses.sum() <= 0.0:
            # The distribution has no free client left: draw among all, by their data.
            clients = np.flatnonzero(is_free)
            masses = shares[clients]
        if masses.sum() <= 0.0:
            # No free client has data.
            masses = np.ones(len(clients))
        client = make_distribution(clients, masses).pick(rng.random())
        is_free[client] = False
        drawn.append(client)
    return np.sort(np.array(drawn, np.int64))

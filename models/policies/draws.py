"""Draws of clients without replacement, in one pass over arrays.

Successive draws (draw one, remove it, renormalise, draw the next) have the same law as taking the largest of ln x_k + G_k with
independent standard Gumbel numbers G_k = -ln(-ln u_k) (Efraimidis and Spirakis, Inf. Proc. Letters 97, 2006, for the equivalent
keys u^(1/x)). Weights enter as logarithms, so that nothing overflows. Every client has its own u, also those that cannot be
drawn: the draw of one client does not depend on the presence of others.
"""

from __future__ import annotations

import numpy as np

from models.policies.protocols import BoolArray, FloatArray, IntArray


def successive_draws(log_weights: FloatArray, able: BoolArray, size: int, rng: np.random.Generator) -> IntArray:
    """Draw up to `size` distinct clients of `able` (K,), one after the other; return them in ascending order.

    The next client is drawn with probability proportional to its weight exp(`log_weights`) (K,) among those left. A client of
    log weight -inf is never drawn, so fewer than `size` may be returned; but if all of `able` have it, all are equally likely.
    Clients of log weight inf come before all others, equally likely among themselves.
    """
    u = rng.random(len(log_weights))
    usable = able & (log_weights > -np.inf)
    if not usable.any():
        log_weights, usable = np.zeros(len(able)), able
    clients = np.flatnonzero(usable)
    if len(clients) <= size:
        return clients
    if size < 1:
        return clients[:0]
    # The `size` clients of largest key are drawn. All arrays below have an entry for each of `clients`.
    first_of_drawn = len(clients) - size
    weights = log_weights[clients]
    with np.errstate(divide="ignore"):  # u = 0 is the last to be drawn
        gumbel = -np.log(-np.log(u[clients]))
    infinite = weights == np.inf
    if infinite.any():
        # inf + gumbel would be inf for all of them: sort by (infinite, key) instead.
        keys = np.where(infinite, 0.0, weights) + gumbel
        ascending = np.lexsort((keys, infinite))
    else:
        ascending = np.argpartition(weights + gumbel, first_of_drawn)
    return np.sort(clients[ascending[first_of_drawn:]])


def uniform_draws(able: BoolArray, size: int, rng: np.random.Generator) -> IntArray:
    """Draw `size` distinct clients of `able` (K,), every such set equally likely; return them in ascending order.

    All clients of `able` are returned if there are no more than `size`. K numbers are drawn in any case.
    """
    u = rng.random(len(able))
    clients = np.flatnonzero(able)
    if len(clients) <= size:
        return clients
    if size < 1:
        return clients[:0]
    return np.sort(clients[np.argpartition(u[clients], size - 1)[:size]])


def largest(scores: FloatArray, able: BoolArray, size: int, rng: np.random.Generator) -> IntArray:
    """Return the `size` clients of `able` (K,) with the largest `scores` (K,), in ascending order of their numbers.

    All clients of `able` are returned if there are no more than `size`. Clients that tie for the last places are drawn uniformly.
    """
    u = rng.random(len(scores))
    clients = np.flatnonzero(able)
    if len(clients) <= size:
        return clients
    if size < 1:
        return clients[:0]
    values = scores[clients]
    least_returned = np.partition(values, len(values) - size)[len(values) - size]
    above, tied = clients[values > least_returned], clients[values == least_returned]
    # At least one: the client of score `least_returned` itself.
    places_for_ties = size - len(above)
    if places_for_ties < len(tied):
        tied = tied[np.argpartition(u[tied], places_for_ties - 1)[:places_for_ties]]
    return np.sort(np.concatenate((above, tied)))


def count_explored(wanted: int, share: float, *, one_by_one: bool, rng: np.random.Generator) -> int:
    """Return how many of `wanted` clients to explore, a share of them, rounded up: wanted - floor(wanted (1 - share)).

    With `one_by_one`, each client is explored with probability `share` instead. Otherwise a server that asks for few clients at
    a time would round the share to the same number every time.
    """
    if one_by_one:
        return int(rng.binomial(wanted, share))
    # 5 (1 - 0.8) is 0.99999..98 in doubles: a share of a whole number of clients is meant to be that number.
    return wanted - int(np.floor(wanted * (1.0 - share) + 1e-9))

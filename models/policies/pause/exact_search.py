"""The set of greatest energy, found exactly in O(K log K) (PAUSE eq. 14, 18).

E(S) = min over S of ucb_k + sum over S of modular_k, where modular_k = (alpha g_k + gamma p_k)/m. Take the clients by ucb,
descending, and keep the m largest modular scores seen so far. The ucb of the client just seen plus the kept sum is a lower
bound on the energy of the kept set, and it is attained when that client is the slowest of the best set. So the best value over
the sweep is the optimum.

An infinite ucb (a client never selected) is the limit of an arbitrarily large finite one. A set of unexplored clients only has
infinite energy and beats every other; among such sets the greatest modular sum wins. If fewer than m clients are unexplored,
every set has finite energy, and an unexplored member is never the slowest. Enumeration and annealing use the same definition.

Ties: among the sets that attain the optimum, the greatest minimal ucb wins; among the clients that reach this ucb, equal
modular scores at the m-th place are chosen from uniformly at random.
"""

from __future__ import annotations

import math
from heapq import heapify, heapreplace
from typing import NamedTuple

import numpy as np

from models.policies.protocols import FloatArray, IntArray

# Up to this number of clients it is cheapest to sort them all. Above it, clients that cannot be in a best set are left out first,
# in passes that avoid new arrays of K numbers where they can: fresh memory costs more than the comparisons.
_SMALL = 8192
# Approximate number of promising clients that a pass leaves.
_LEFT = 1024
# Clients that a pass handles at a time.
_BLOCK = 16384


def energy(ucb: FloatArray, modular: FloatArray, members: IntArray) -> float:
    """Return E(S) of eq. 18 of the set S = `members` (m,), from the ucb (K,) and modular scores (K,) of all clients.

    It is inf if all members are unexplored.
    """
    return float(ucb[members].min() + modular[members].sum())


def top_by_score(scores: FloatArray, size: int, rng: np.random.Generator | None) -> IntArray:
    """Return positions (size,) of the largest of `scores` (n,), in any order; all n if they are no more than `size`.

    `rng` breaks ties at the last place uniformly; None: the lowest position wins.
    """
    n = len(scores)
    if size >= n:
        return np.arange(n)
    threshold = _nth_largest(scores, size)
    reached = np.flatnonzero(scores >= threshold)
    if len(reached) == size:
        return reached
    values = scores[reached]
    above = reached[values > threshold]
    tied = reached[values == threshold]
    places = size - len(above)
    if rng is None:
        chosen = tied[:places]
    elif len(tied) > _SMALL:
        chosen = tied[rng.choice(len(tied), places, replace=False, shuffle=False)]
    else:
        # The places go to the smallest of independent uniforms: for the usual handful of ties, a tenth of the cost of
        # rng.choice.
        chosen = tied[rng.random(len(tied)).argpartition(places - 1)[:places]]
    return np.concatenate((above, chosen))


def best_set(ucb: FloatArray, modular: FloatArray, size: int, rng: np.random.Generator | None) -> IntArray:
    """Return positions of a set of `size` clients that maximises E(S); all n if they are no more than `size`.

    `ucb` (n,) finite or +inf, `modular` (n,) finite. `rng` breaks ties; None: lowest position first. Sums are compared in
    double precision, so the energy is the optimum up to rounding. Up to `_SMALL` clients one sweep over all decides; above,
    `_pruned_sweep` gives the same set from fewer clients.
    """
    n = len(ucb)
    if size >= n:
        return np.arange(n)
    highest = _nth_largest(ucb, size)
    if highest == math.inf:
        slowest = highest
    elif n <= _SMALL:
        slowest = _sweep(ucb, modular, size).slowest_ucb
    else:
        slowest = _pruned_sweep(ucb, modular, size, highest)
    # The best set holds the largest modular scores among the clients that are no slower than its slowest member.
    fast_enough = ucb >= slowest
    if np.count_nonzero(fast_enough) > _SMALL:
        # Leave out clients of low score first, if enough others remain: the same set from fewer numbers.
        stride = len(ucb) // _SMALL
        sample = modular[::stride][fast_enough[::stride]]
        promising = fast_enough & (modular >= _level(sample, stride, size))
        if np.count_nonzero(promising) >= size:
            fast_enough = promising
    candidates = np.flatnonzero(fast_enough)
    return candidates[top_by_score(modular[candidates], size, rng)]


def _nth_largest(values: FloatArray, n: int) -> float:
    """Return the `n`-th largest of `values`, n >= 1.

    Many values are first reduced to those above a level that a sample suggests. The answer does not depend on the sample.
    """
    if len(values) > _SMALL:
        stride = len(values) // _SMALL
        level = _level(values[::stride], stride, n)
        above = values > level
        if np.count_nonzero(above) >= n:
            values = values[above]
        elif np.count_nonzero(values >= level) >= n:
            return level
    return float(np.partition(values, len(values) - n)[len(values) - n])


def _level(sample: FloatArray, stride: int, n: int) -> float:
    """Return a level that about max(_LEFT, 4 n) numbers reach, estimated from a `sample` of one number in `stride`.

    It is -inf if the sample is too small.
    """
    rank = max(_LEFT, 4 * n) // stride + 1
    if rank > len(sample):
        return -math.inf
    return float(np.partition(sample, len(sample) - rank)[len(sample) - rank])


class _BestSet(NamedTuple):
    """Best set that a sweep has found."""

    slowest_ucb: float
    """Least ucb of its members."""
    energy: float


def _sweep(ucb: FloatArray, modular: FloatArray, size: int, ceiling: float = math.inf) -> _BestSet:
    """Find the best set by the sweep in the head of this file.

    `ceiling` bounds the modular sum of all sets: the sweep ends where no client to come can make a better set.
    """
    # Clients of greatest ucb first: each next one is the slowest of a set.
    order = np.argsort(ucb)[::-1]
    kept_scores: list[float] = modular[order[:size]].tolist()
    heapify(kept_scores)
    least_score = kept_scores[0]
    total = sum(kept_scores)
    slowest = ucb.item(order[size - 1])
    best = slowest + total
    for start in range(size, len(order), _BLOCK):
        block = order[start : start + _BLOCK]
        if ucb[block[0]] + ceiling <= best:
            break
        # The energy can only rise where the kept set changes.
        for client_ucb, score in zip(ucb[block].tolist(), modular[block].tolist(), strict=True):
            if score > least_score:
                total += score - heapreplace(kept_scores, score)
                least_score = kept_scores[0]
                if client_ucb + total > best:
                    best = client_ucb + total
                    slowest = client_ucb
    return _BestSet(slowest, best)


def _pruned_sweep(ucb: FloatArray, modular: FloatArray, size: int, highest: float) -> float:
    """Return the least ucb of the best set, as `_sweep` finds it, from a sweep over the clients that can belong to a best set.

    No set has a minimum above `highest`, the size-th largest ucb. So E(S) <= min(ucb_k, highest) + modular_k + the size - 1
    largest modular scores, for every member k of S. A client whose bound is below the energy of some set is in no best set.
    That energy comes from a first sweep over the clients of highest bound.
    """
    least = _nth_largest(modular, size)
    top = modular[modular > least]
    others = float(top.sum()) + (size - 1 - len(top)) * least  # sum of the size - 1 largest modular scores
    stride = len(ucb) // _SMALL
    level = _level(np.minimum(ucb[::stride], highest) + modular[::stride], stride, size)
    of_highest_bound = _bound_reaches(ucb, modular, highest, level)
    if len(of_highest_bound) < size:
        return _sweep(ucb, modular, size).slowest_ucb
    guess = _sweep(ucb[of_highest_bound], modular[of_highest_bound], size)
    # A margin for rounding, so that no member of a best set is left out.
    cutoff = guess.energy - others - 1e-9 * (1.0 + abs(guess.energy) + abs(others))
    if cutoff >= level:
        # The first sweep saw all clients whose bound reaches the cutoff.
        return guess.slowest_ucb
    possible = _bound_reaches(ucb, modular, highest, cutoff)
    return _sweep(ucb[possible], modular[possible], size, ceiling=others + least).slowest_ucb


def _bound_reaches(ucb: FloatArray, modular: FloatArray, highest: float, level: float) -> IntArray:
    """Return positions of the clients with min(ucb, `highest`) + modular >= `level`, computed in blocks."""
    better = []
    for start in range(0, len(ucb), _BLOCK):
        bound = np.minimum(ucb[start : start + _BLOCK], highest)
        bound += modular[start : start + _BLOCK]
        better.append(np.flatnonzero(bound >= level) + start)
    return np.concatenate(better)

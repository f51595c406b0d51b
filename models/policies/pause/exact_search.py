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
    """Return E(S) of eq. 18 of the set `members`, from the ucb and modular scores of all clients (K,); inf if all are
    unexplored.
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
        return np.concatenate((above, tied[:places]))
    if len(tied) > _SMALL:
        return np.concatenate((above, tied[rng.choice(len(tied), places, replace=False, shuffle=False)]))
    # The places go to the smallest of independent uniforms: for the usual handful of ties, a tenth of the cost of rng.choice.
    return np.concatenate((above, tied[rng.random(len(tied)).argpartition(places - 1)[:places]]))


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
        slowest = _sweep(ucb, modular, size)[0]
    else:
        slowest = _pruned_sweep(ucb, modular, size, highest)
    reaching = ucb >= slowest
    if np.count_nonzero(reaching) > _SMALL:
        stride = len(ucb) // _SMALL
        good = reaching & (modular >= _level(modular[::stride][reaching[::stride]], stride, size))
        if np.count_nonzero(good) >= size:
            reaching = good
    reached = np.flatnonzero(reaching)
    return reached[top_by_score(modular[reached], size, rng)]


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
    """Return a level that about max(_LEFT, 4 n) numbers reach, estimated from a `sample` of one in `stride`; -inf if that is
    too small.
    """
    rank = max(_LEFT, 4 * n) // stride + 1
    return float(np.partition(sample, len(sample) - rank)[len(sample) - rank]) if rank <= len(sample) else -math.inf


def _sweep(ucb: FloatArray, modular: FloatArray, size: int, ceiling: float = math.inf) -> tuple[float, float]:
    """Return the minimal ucb of the best set, and its energy. `ceiling` bounds the modular sum of all sets and ends the sweep
    early.
    """
    order = np.argsort(ucb)[::-1]
    kept: list[float] = modular[order[:size]].tolist()
    heapify(kept)
    least = kept[0]
    total = sum(kept)
    slowest = ucb.item(order[size - 1])
    best = slowest + total
    for start in range(size, len(order), _BLOCK):
        block = order[start : start + _BLOCK]
        if ucb[block[0]] + ceiling <= best:
            break
        # The energy can only rise where the kept set changes.
        for value, score in zip(ucb[block].tolist(), modular[block].tolist(), strict=True):
            if score > least:
                total += score - heapreplace(kept, score)
                least = kept[0]
                if value + total > best:
                    best = value + total
                    slowest = value
    return slowest, best


def _pruned_sweep(ucb: FloatArray, modular: FloatArray, size: int, highest: float) -> float:
    """Return what `_sweep` returns first, the minimal ucb of the best set, from a sweep over the clients that can belong to
    one.

    No set has a minimum above `highest`, the size-th largest ucb. So E(S) <= min(ucb_k, highest) + modular_k + the size - 1
    largest modular scores, for every member k of S. A client whose bound is below the energy of some set is in no best set.
    That energy comes from a first sweep over the clients of highest bound.
    """
    least = _nth_largest(modular, size)
    top = modular[modular > least]
    others = float(top.sum()) + (size - 1 - len(top)) * least
    stride = len(ucb) // _SMALL
    level = _level(np.minimum(ucb[::stride], highest) + modular[::stride], stride, size)
    guess = _bound_reaches(ucb, modular, highest, level)
    if len(guess) < size:
        return _sweep(ucb, modular, size)[0]
    slowest, reached = _sweep(ucb[guess], modular[guess], size)
    cutoff = reached - others - 1e-9 * (1.0 + abs(reached) + abs(others))
    if cutoff >= level:
        return slowest
    alive = _bound_reaches(ucb, modular, highest, cutoff)
    return _sweep(ucb[alive], modular[alive], size, others + least)[0]


def _bound_reaches(ucb: FloatArray, modular: FloatArray, highest: float, level: float) -> IntArray:
    """Return positions of the clients with min(ucb, `highest`) + modular >= `level`, computed in blocks."""
    better = []
    for start in range(0, len(ucb), _BLOCK):
        bound = np.minimum(ucb[start : start + _BLOCK], highest)
        bound += modular[start : start + _BLOCK]
        better.append(np.flatnonzero(bound >= level) + start)
    return np.concatenate(better)

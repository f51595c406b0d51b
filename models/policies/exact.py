"""The set of greatest energy, found exactly in O(K log K) (PAUSE eq. 14, 18).

E(S) = min over S of ucb_k + sum over S of modular_k, where modular_k = (alpha g_k + gamma p_k)/m. Take the clients by ucb,
descending, and keep the m largest modular scores seen so far: the ucb of the client just seen plus the kept sum is a lower
bound on the energy of the kept set, and it is attained when that client is the slowest of the best set. So the best value over
the sweep is the optimum.

Infinite ucb (a client never selected) is the limit of an arbitrarily large finite one: a set of unexplored clients only has
infinite energy and beats every other, among such sets the greatest modular sum wins; where fewer than m are unexplored every
set has finite energy, and an unexplored member is simply never the slowest. Enumeration and annealing use the same definition.

Ties: among the sets that attain the optimum, the greatest minimal ucb wins; among the clients that reach this ucb, equal
modular scores at the m-th place are chosen from uniformly at random.
"""

from __future__ import annotations

import math
from heapq import heapify, heapreplace

import numpy as np

from models.policies.protocols import FloatArray, IntArray

# Below this number of clients sorting them all is cheaper than three passes that leave few to sort.
_PRUNE_ABOVE = 8192
# How many of the most promising clients the first guess of the optimum is made from.
_GUESS = 1024
_BLOCK = 4096


def energy(ucb: FloatArray, modular: FloatArray, members: IntArray) -> float:
    """E(S) of eq. 18 for the set `members`, from the ucb and modular scores of all clients (K,); inf if all are unexplored."""
    return float(ucb[members].min() + modular[members].sum())


def top_by_score(scores: FloatArray, size: int, rng: np.random.Generator | None) -> IntArray:
    """Positions of the `size` largest of `scores` (n,); ties at the last place by `rng`, uniformly, or lowest position first if
    None."""
    n = len(scores)
    if size >= n:
        return np.arange(n)
    threshold = np.partition(scores, n - size)[n - size]
    reached = np.flatnonzero(scores >= threshold)
    if len(reached) == size:
        return reached
    values = scores[reached]
    above = reached[values > threshold]
    tied = reached[values == threshold]
    places = size - len(above)
    if rng is None:
        return np.concatenate((above, tied[:places]))
    # The places go to the smallest of independent uniforms: for the usual handful of ties, a tenth of the cost of rng.choice.
    return np.concatenate((above, tied[rng.random(len(tied)).argpartition(places - 1)[:places]]))


def best_set(ucb: FloatArray, modular: FloatArray, size: int, rng: np.random.Generator | None) -> IntArray:
    """Positions of a set of `size` clients that maximises E(S), see above; all of them where there are no more than `size`.

    `ucb` (n,) finite or +inf, `modular` (n,) finite. `rng` breaks ties; None: lowest position first. Sums are compared in double
    precision: the energy is the optimum up to rounding.
    """
    n = len(ucb)
    if size >= n:
        return np.arange(n)
    unexplored = np.flatnonzero(ucb == math.inf)
    if len(unexplored) >= size:
        return unexplored[top_by_score(modular[unexplored], size, rng)]
    slowest = _sweep(ucb, modular, size)[0] if n <= _PRUNE_ABOVE else _pruned_sweep(ucb, modular, size)
    reached = np.flatnonzero(ucb >= slowest)
    return reached[top_by_score(modular[reached], size, rng)]


def _sweep(ucb: FloatArray, modular: FloatArray, size: int, ceiling: float = math.inf) -> tuple[float, float]:
    """Minimal ucb of the best set, and its energy. `ceiling`: no set has a larger modular sum; it ends the sweep early."""
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


def _pruned_sweep(ucb: FloatArray, modular: FloatArray, size: int) -> float:
    """The sweep over those clients only that can belong to a best set: minimal ucb of that set."""
    n = len(ucb)
    top = np.partition(modular, n - size)[n - size :]
    ceiling = float(top.sum())
    others = ceiling - float(top.min())
    # No set has a higher minimum than the size-th largest ucb: E(S) <= bound_k + others for every member k of S.
    bound = np.minimum(ucb, np.partition(ucb, n - size)[n - size])
    bound += modular
    count = max(_GUESS, 2 * size)
    guess = np.argpartition(bound, n - count)[n - count :] if count < n else np.arange(n)
    reached = _sweep(ucb[guess], modular[guess], size)[1]
    slack = 1e-9 * (1.0 + abs(reached) + abs(others))
    alive = np.flatnonzero(bound >= reached - others - slack)
    return _sweep(ucb[alive], modular[alive], size, ceiling)[0]

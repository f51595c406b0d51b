"""The set of greatest energy by enumeration (PAUSE eq. 14 as the paper computes it), for tests and comparisons.

Cost grows as C(K, m). The definition of the optimum, infinite ucb included, is that of `models.policies.pause.exact_search`.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from models.errors import ParameterError
from models.policies.protocols import FloatArray, IntArray

MOST_SETS = 5_000_000
"""Largest number of sets that are enumerated: a few seconds for one selection."""
_CHUNK = 1 << 16


def check_count(clients: int, size: int) -> None:
    """Raise ParameterError if `clients` choose `size` is more than `MOST_SETS`."""
    count = math.comb(clients, size)
    if count > MOST_SETS:
        reason = (
            f"{clients} clients make {count:.3g} sets, enumeration is allowed up to {MOST_SETS:.3g}; use the exact selector, "
            "which finds the same optimum"
        )
        raise ParameterError("per_round", size, reason)


def best_by_enumeration(ucb: FloatArray, modular: FloatArray, size: int, rng: np.random.Generator | None) -> IntArray:
    """Return positions (size,) of a set of greatest energy, found by comparing all C(n, size) sets.

    `ucb` (n,) finite or +inf, `modular` (n,) finite. `rng` chooses uniformly among sets of exactly equal energy; None: the
    first. Sets are compared in blocks of `_CHUNK`, which bounds the memory. Raises ParameterError above `MOST_SETS` sets.
    """
    n = len(ucb)
    if size >= n:
        return np.arange(n)
    check_count(n, size)
    flat = itertools.chain.from_iterable(itertools.combinations(range(n), size))
    best = (-math.inf, -math.inf)
    winners: list[IntArray] = []
    left = math.comb(n, size)
    while left:
        rows = min(left, _CHUNK)
        left -= rows
        sets = np.fromiter(flat, np.int64, rows * size).reshape(rows, size)
        lowest = ucb[sets].min(axis=1)
        sums = modular[sets].sum(axis=1)
        values = lowest + sums
        top = values.max()
        # Infinite energies are compared by what is added to the infinity.
        keys = np.where(lowest == math.inf, sums, -math.inf) if top == math.inf else values
        key = (float(top), float(keys.max()))
        if key >= best:
            found = sets[keys == key[1]]
            winners = [*winners, found] if key == best else [found]
            best = key
    tied = np.concatenate(winners)
    return np.asarray(tied[0] if rng is None else tied[rng.integers(len(tied))])

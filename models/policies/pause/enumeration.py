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
    # Members of all sets, one set after the other: NumPy reads single numbers only.
    members = itertools.chain.from_iterable(itertools.combinations(range(n), size))
    best_key = (-math.inf, -math.inf)
    """Greatest energy so far, and the score of its set."""
    winners: list[IntArray] = []
    sets_left = math.comb(n, size)
    while sets_left:
        rows = min(sets_left, _CHUNK)
        sets_left -= rows
        sets = np.fromiter(members, np.int64, rows * size).reshape(rows, size)
        lowest = ucb[sets].min(axis=1)
        sums = modular[sets].sum(axis=1)
        energies = lowest + sums
        greatest = energies.max()
        # Infinite energies are compared by their modular sums, which are added to the infinity.
        scores = np.where(lowest == math.inf, sums, -math.inf) if greatest == math.inf else energies
        best_score = scores.max()
        key = (float(greatest), float(best_score))
        if key >= best_key:
            best_sets = sets[scores == best_score]
            winners = [*winners, best_sets] if key == best_key else [best_sets]
            best_key = key
    tied = np.concatenate(winners)
    chosen = 0 if rng is None else rng.integers(len(tied))
    return np.asarray(tied[chosen])

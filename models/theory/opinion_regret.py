"""Regret of selecting clients by opinions, and the paper's bounds on it (Tong et al. 2024, eq. 12, 14 to 16, 20 to 22)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.errors import ParameterError

FloatArray = NDArray[np.float64]
_CONSTANT = math.pi**2 / 3 + 1
"""Factor of the terms of the bounds that do not grow with T."""


def regret(best: FloatArray, rewards: FloatArray) -> FloatArray:
    """Return the regret (T,) after each slot: the sum of best - reward so far (eq. 12).

    `rewards` (T,): average opinion of all clients in each slot; `best` (T,): that of the best set.
    """
    if best.shape != rewards.shape:
        raise ParameterError("best", best, f"must be {rewards.shape}, that of the rewards", shown=f" has shape {best.shape}")
    return np.cumsum(best - rewards)


class Gaps(NamedTuple):
    """Differences of expected reward between the best set of clients and the others."""

    least: float
    """Rmin, the least difference above 0 (eq. 14)."""
    greatest: float
    """Rmax (eq. 15)."""


def gaps(values: FloatArray, per_round: int) -> Gaps:
    """Return Rmin and Rmax, the least and the greatest gap in expected reward between the best set and a worse one.

    Sets have `per_round` clients; the reward of a set is the mean of `values` (K,) over its members. The sets need not be made:
    the least gap comes from exchanging one member of the best set. Eq. 20 and 21, over all clients, give the same two numbers.
    Raises ParameterError if no set is worse than another.

    Example:
        >>> import numpy as np
        >>> gaps(np.array([0.9, 0.5, 0.1]), per_round=1)
        Gaps(least=0.4, greatest=0.8)
    """
    ordered = np.sort(np.asarray(values, np.float64))[::-1]
    if not 1 <= per_round <= len(ordered):
        raise ParameterError("per_round", per_round, f"must be between 1 and the number of clients, {len(ordered)}")
    # Losses of value if one member of the best set is exchanged for one other client.
    exchanges = ordered[:per_round, None] - ordered[None, per_round:]
    losses = exchanges[exchanges > 0]
    if not losses.size:
        reason = f"all sets of {per_round} clients are equally good; the bounds need one that is worse"
        raise ParameterError("values", values, reason, shown="")
    best, worst = ordered[:per_round].sum(), ordered[-per_round:].sum()
    return Gaps(least=float(losses.min()) / per_round, greatest=float(best - worst) / per_round)


def theorem1_upper(
    slots: FloatArray | float, *, arms: float, gap_min: float, gap_max: float, mu: float = math.sqrt(2.0)
) -> FloatArray:
    """Return the upper bound of Theorem 1 on the expected regret of Quick-Init UCB after T = `slots`, a number or a curve (n,).

    It is 4 mu^2 A ln T / Rmin + (pi^2/3 + 1) A Rmax, A = `arms` = C(K, m); shape () or (n,). Eq. 16 has mu = sqrt(2), that of
    UCB1 (Auer et al. 2002, Theorem 1), whose proof it cites. With a greater `mu` that proof needs more observations of an arm:
    its l has mu^2 in the place of 2. With a smaller one its sum of probabilities exceeds pi^2/3: ParameterError. For small T the
    bound is above T Rmax, which no policy's regret exceeds.
    """
    if not arms >= 1:
        raise ParameterError("arms", arms, "must be >= 1")
    log_t = _log_slots(slots, gap_min, gap_max)
    return np.asarray(_observations_factor(mu) * arms * log_t / gap_min + _CONSTANT * arms * gap_max)


def theorem3_upper(
    slots: FloatArray | float, *, clients: int, gap_min: float, gap_max: float, mu: float = math.sqrt(2.0)
) -> FloatArray:
    """Return the upper bound of Theorem 3 on the expected regret of BP-UCB after T = `slots`, a number or a curve (n,).

    It is 4 mu^2 K Rmax ln T / Rmin^2 + (pi^2/3 + 1) K Rmax, K = `clients`; shape () or (n,). Eq. 22 has mu = sqrt(2). The proof
    assumes settled beliefs and a consensus phase that takes no time. It asks for mu^2 >= 3/2 only, but its sum (40), that of
    2 t^(2 - 2 mu^2) over t, stays below pi^2/3 only for mu^2 >= 2.

    Raises:
        ParameterError: mu^2 < 2, or another parameter out of range.
    """
    if clients < 1:
        raise ParameterError("clients", clients, "must be >= 1")
    log_t = _log_slots(slots, gap_min, gap_max)
    return np.asarray(_observations_factor(mu) * clients * gap_max * log_t / gap_min**2 + _CONSTANT * clients * gap_max)


def _observations_factor(mu: float) -> float:
    """Return 4 mu^2. The proofs need l = 4 mu^2 ln T / R^2 observations of an arm of gap R: then its index is R / 2 wide at most.

    Raises ParameterError for mu < sqrt(2).
    """
    if not 2.0 - 1e-12 <= mu * mu < math.inf:
        raise ParameterError("mu", mu, "must be at least sqrt(2) = 1.41422, and finite; nothing is proved for a narrower index")
    return 4.0 * mu * mu


def _log_slots(slots: FloatArray | float, gap_min: float, gap_max: float) -> FloatArray:
    """Return ln T of T = `slots`. Raises ParameterError for T < 1 or gaps that are not 0 < gap_min <= gap_max < inf."""
    horizon = np.asarray(slots, np.float64)
    if not (horizon >= 1).all():
        raise ParameterError("slots", slots, "must be >= 1")
    if not 0 < gap_min < math.inf:
        raise ParameterError("gap_min", gap_min, "must be > 0 and finite")
    if not gap_min <= gap_max < math.inf:
        raise ParameterError("gap_max", gap_max, f"must be >= gap_min = {gap_min!r} and finite")
    return np.log(horizon)

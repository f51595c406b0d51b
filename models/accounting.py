"""Joint leak of several releases of one client, tighter than the sum of their budgets.

By Renyi divergences (Mironov, "Renyi Differential Privacy", 2017), converted at the given delta, or by privacy loss
distributions (Koskela, Jalkoe and Honkela 2020; Zhu, Dong and Wang 2022), rounded up to a grid: both are upper bounds. The
library is dp-accounting (extra `privacy`), which is imported where it is used.

Release i is the mechanism that was calibrated to its budget epsilon_i: Laplace noise of scale Delta/epsilon_i, or Gaussian
noise of `gaussian_scale(epsilon_i, delta)` Delta, at the sensitivity Delta, the distance of any two clipped updates. Gaussian
noise on a vector of L2 sensitivity Delta leaks as much as on one number of that sensitivity. Laplace noise on a vector of L1
sensitivity Delta leaks at most as much. At distances s_1 + s_2 = Delta in two coordinates the privacy loss is Delta - 2 (U_1 +
U_2), U_j = min(X_j, s_j), where X_j is 0 or standard exponential with probability 1/2 each; in one coordinate it is Delta - 2
min(X, Delta). For z < Delta/2, U_1 + U_2 exceeds z at least as often as the U_j of the larger distance, which exceeds it as
often as X. So the hockey-stick divergence is smaller at every e^a >= 1, by symmetry at every other one, and so on, coordinate
by coordinate.

There is no amplification by sampling. It would need an observer who does not know the participants; the server sees the sender
of each update, and the guarantee is against the server.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from models.errors import ParameterError

Accountant: TypeAlias = Literal["rdp", "pld"]
Noise: TypeAlias = Literal["laplace", "gaussian"]
_SMALL = 1e-6
"""Budget below which Laplace releases are added up, because there may be very many."""
_GRID = 1e-4
"""Least step of the grid of privacy losses."""
_MOST_STEPS = 100_000
"""Most steps of that grid up to the composed epsilon."""


@lru_cache(maxsize=4096)
def gaussian_scale(epsilon: float, delta: float) -> float:
    """Return the least standard deviation that gives (epsilon, delta)-DP at L2 sensitivity 1 (Balle and Wang 2018, Theorem 8).

    The sigma at which Phi(1/(2 sigma) - epsilon sigma) - e^epsilon Phi(-1/(2 sigma) - epsilon sigma) falls to `delta`, found by
    bisection to a relative 1e-12. It is finite for every epsilon >= 0, because delta > 0.
    """
    from scipy.special import log_ndtr, ndtr

    def delta_at(sigma: float) -> float:
        """Return the least delta of noise with deviation `sigma`: the formula above."""
        # In logarithms, because e^epsilon may overflow.
        log_below = float(log_ndtr(-0.5 / sigma - epsilon * sigma))
        return float(ndtr(0.5 / sigma - epsilon * sigma)) - math.exp(min(0.0, epsilon + log_below))

    # delta falls as sigma rises: first find an upper end, then bisect.
    low, high = 0.0, 1.0
    while delta_at(high) > delta:
        low, high = high, 2.0 * high
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        if delta_at(middle) > delta:
            low = middle
        else:
            high = middle
    return high


def composed_epsilon(
    accountant: Accountant, noise: Noise, budgets: Sequence[float], *, total_delta: float, delta: float | None = None
) -> float:
    """Return the epsilon that holds with `total_delta` for all releases of these `budgets` together.

    It is 0 without releases, and inf if no epsilon is found. `delta`: the delta that each Gaussian release was calibrated to.
    For Laplace noise the result is at most the sum of the budgets, which holds with a delta of 0.

    Raises:
        ParameterError: a budget that is not finite and > 0, or a delta outside (0, 1).
        ImportError: dp-accounting is not installed.
    """
    for name, value in (("total_delta", total_delta), ("delta", delta)):
        if value is not None and not 0 < value < 1:
            raise ParameterError(name, value, "must be in (0, 1)")
    for budget in budgets:
        if not 0 < budget < math.inf:
            raise ParameterError("budgets", budget, "must be finite and > 0")
    if not budgets:
        return 0.0
    if noise == "gaussian":
        if delta is None:
            raise ParameterError("delta", None, "must be given for Gaussian noise", shown="")
        scales = [gaussian_scale(budget, delta) for budget in budgets]
        return _compose(accountant, noise, scales, total_delta, magnitude=sum(budgets))
    total = math.fsum(budgets)
    large = [budget for budget in budgets if budget >= _SMALL]
    if not large:
        return total
    small_total = math.fsum(budget for budget in budgets if budget < _SMALL)
    composed = _compose(accountant, noise, [1.0 / budget for budget in large], total_delta, magnitude=total)
    # Neither is always the smaller.
    return min(total, small_total + composed)


def _compose(accountant: Accountant, noise: Noise, scales: Sequence[float], total_delta: float, magnitude: float) -> float:
    """Return the composed epsilon of releases with noise of these `scales` at sensitivity 1.

    `magnitude`: order of magnitude of the result, which sets the grid of loss distributions.
    """
    import dp_accounting

    # Sensitivity 1 is that between any two updates, which includes the library's factor for replacing a record.
    books: Any
    if accountant == "rdp":
        from dp_accounting import rdp

        books = rdp.RdpAccountant()
    else:
        from dp_accounting import pld

        books = pld.PLDAccountant(value_discretization_interval=max(_GRID, magnitude / _MOST_STEPS))
    event = dp_accounting.LaplaceDpEvent if noise == "laplace" else dp_accounting.GaussianDpEvent
    counts: dict[float, int] = {}
    for scale in scales:
        counts[scale] = counts.get(scale, 0) + 1
    for scale, count in counts.items():
        books.compose(event(scale), count)
    return float(books.get_epsilon(total_delta))

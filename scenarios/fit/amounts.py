"""Durations that grow with an amount: seconds per sample of training, seconds per byte of a transfer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from scenarios.fit.durations import LEVEL, BoolArray, Estimate, FloatArray, curvature

_LEAST_RATIO = 1.2
"""Least ratio of the largest amount to the smallest. Below it an overhead cannot be told from a speed."""


@dataclass(frozen=True, slots=True)
class FittedSpeed:
    """Fit of seconds = overhead + amount x seconds per unit x noise, with log-normal noise of mean 1."""

    overhead_s: Estimate
    seconds_per_unit: Estimate
    sigma: Estimate
    """Standard deviation of the noise's logarithm."""
    number: int
    """Number of durations."""
    censored: int
    """Number of durations that were cut off."""


def amounts_differ(amounts: FloatArray) -> bool:
    """Return True if amounts (n,) differ enough to tell a speed from an overhead; False if any is unknown or not above 0."""
    known = np.isfinite(amounts) & (amounts > 0)
    return bool(known.all() and len(amounts) > 2 and amounts.max() >= _LEAST_RATIO * amounts.min())


def fit_speed(seconds: FloatArray, censored: BoolArray, amounts: FloatArray) -> FittedSpeed:
    """Return the most likely overhead, speed and noise of durations `seconds` (n,) with these `amounts` (n,), in any order.

    `censored` (n,): True where the duration is only known to exceed `seconds`. The overhead lies between 0 and the shortest
    complete duration. Intervals come from the curvature of the likelihood in the unbounded numbers that are searched.

    >>> rng = np.random.default_rng(2)
    >>> samples = rng.integers(20, 200, 300).astype(float)
    >>> times = 0.5 + samples * 0.01 * np.exp(0.2 * rng.standard_normal(300) - 0.02)
    >>> fit = fit_speed(times, np.zeros(300, bool), samples)
    >>> abs(fit.seconds_per_unit.value - 0.01) < 0.001
    True
    """
    shortest = float(seconds[~censored].min())
    rough_unit = float(np.median((seconds - 0.5 * shortest)[~censored] / amounts[~censored]))

    # Duration = overhead + amount x unit x noise, with log-normal noise of mean 1. A censored duration adds the probability of a
    # longer one. The search runs over unbounded numbers: the logit of overhead / shortest, and the logarithms of unit and sigma.
    def loss(logs: FloatArray) -> float:
        """Return the negative log-likelihood at the point `logs` (3,) of the search; inf far out, where it would overflow."""
        if np.abs(logs).max() > 60.0:
            return np.inf
        overhead = shortest / (1.0 + np.exp(-logs[0]))  # between 0 and the shortest duration
        unit, sigma = np.exp(logs[1]), np.exp(logs[2])
        factor = np.maximum(seconds - overhead, 1e-300) / (amounts * unit)
        score = (np.log(factor) + 0.5 * sigma**2) / sigma
        complete = stats.norm.logpdf(score) - np.log(sigma) - np.log(np.maximum(seconds - overhead, 1e-300))
        value = -float(complete[~censored].sum() + stats.norm.logsf(score[censored]).sum())
        return value if np.isfinite(value) else np.inf

    start = np.array([0.0, np.log(rough_unit), np.log(0.3)])
    solution = optimize.minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-8, "maxiter": 800}).x
    half_width = stats.norm.ppf((1 + LEVEL) / 2) * np.sqrt(np.maximum(np.diag(np.linalg.pinv(curvature(loss, solution))), 0.0))
    low, high = solution - half_width, solution + half_width

    def estimate(index: int, value_at: Callable[[float], float]) -> Estimate:
        """Return a parameter and its interval: `value_at` of the number `index` of the search, and of its bounds."""
        return Estimate(*(float(value_at(np.clip(point[index], -60, 60))) for point in (solution, low, high)))

    overhead = estimate(0, lambda logit: shortest / (1.0 + np.exp(-logit)))
    return FittedSpeed(overhead, estimate(1, np.exp), estimate(2, np.exp), len(seconds), int(censored.sum()))

"""Intervals that hold at all numbers of seeds together, so that seeds may be added until an interval is small enough.

A Student-t interval covers as often as it claims at a number of seeds that is fixed beforehand. To look after every seed and to
stop at the first interval that is small enough picks those that happen to be small, and covers less often. A confidence sequence
holds at all n together: P(for some n: the mean is outside of interval n) <= 1 - confidence, for any stopping rule.

This one is for means of normal values of unknown mean mu and deviation sigma. With t_n = sqrt(n) (mean_n - mu) / s_n,

    E_n(mu) = (1 + n g)^(-1/2) ((1 + t_n^2 / (n - 1)) / (1 + t_n^2 / ((1 + n g) (n - 1))))^(n / 2)

is the Bayes factor of the effect size delta = (mean - mu) / sigma being N(0, g) against it being 0, under the right Haar prior
1 / sigma. It depends on the values by their ratios only, and is a nonnegative martingale of mean 1 for the true mu and any sigma,
so that P(some E_n >= 1 / alpha) <= alpha (Ville's inequality); interval n holds the mu with E_n(mu) < 1 / alpha. Sources: Lai
1976, "On confidence sequences"; Rouder et al. 2009 (the Bayes factor); Lindon et al. 2022, "Anytime-valid linear models and
regression adjusted causal inference in randomized experiments"; Wang and Ramdas 2025, "Anytime-valid t-tests and confidence
sequences for Gaussian means with unknown variance". For values that are not normal it holds for large n, like a Student-t
interval, as the asymptotic confidence sequences of Waudby-Smith et al. 2024 do; how often it covers is simulated in
tests/analysis/statistics/test_sequential.py.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from analysis.statistics.intervals import Interval

EFFECT_VARIANCE = 1.0
"""g: intervals are 1.6 to 1.8 times as wide as Student's of a fixed n, from 8 to 400 values; a smaller g needs more values."""


def always_valid_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the interval of the confidence sequence after all of `values`; NaN and infinite ones are left out.

    The half-width is inf if there are too few values to exclude any mean (fewer than 5 at 95 %), and NaN without values.
    ValueError: `confidence` outside of (0, 1).
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence = {confidence!r}: must be in (0, 1)")
    array = np.asarray(values, np.float64).ravel()
    array = array[np.isfinite(array)]
    n = array.size
    if n == 0:
        return Interval(math.nan, math.nan, 0)
    if n == 1:
        return Interval(float(array[0]), math.inf, 1)
    shrink = 1.0 / (1.0 + n * EFFECT_VARIANCE)
    # E_n < 1 / alpha, solved for u = t^2 / (n - 1): (1 + u) / (1 + shrink u) < bound. The left side grows with u towards
    # 1 / shrink: if that is below the bound, no mean is excluded.
    bound = math.exp(-2.0 / n * math.log((1.0 - confidence) * math.sqrt(shrink)))
    if bound * shrink >= 1.0:
        return Interval(float(array.mean()), math.inf, n)
    u = (bound - 1.0) / (1.0 - bound * shrink)
    return Interval(float(array.mean()), float(array.std(ddof=1)) * math.sqrt(u * (n - 1) / n), n)

"""Laws of durations fitted to measured times, some of which are only known to exceed a bound.

A time that a deadline or a departure cut off is right-censored. Its likelihood is the probability S(d) to exceed the bound d;
that of a complete time is the density f(t). To leave out the cut times, or to take their bounds for times, makes a mean too
small: with log-normal times of mean 4.79 s and a deadline that cuts 34 % of them, it becomes 3.01 s or 3.71 s.

More than 50,000 times are rounded to 0.1 % first, so that equal ones can be counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from scenarios.schema.section import Tables

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

LEVEL = 0.95
"""Confidence of every interval."""
_MOST_EXACT = 50_000
"""Number of durations above which they are rounded."""
_STEPS = 1e3
"""Steps of rounding per unit of the logarithm: 0.1 % each, less than the standard error of that many durations."""
_CONSTANT_SPREAD = 1e-9
"""Relative spread below which durations count as constant."""


class UnfitError(ValueError):
    """The durations do not determine a law; the message says why."""


class SurvivalCurve(NamedTuple):
    """Kaplan-Meier estimate of a survival function, a step at each time."""

    times: FloatArray
    """(m,) different complete times in seconds, ascending."""
    survival: FloatArray
    """(m,) estimated probability of a duration longer than each time."""


@dataclass(frozen=True, slots=True)
class Durations:
    """Measured durations of one phase, sorted by time.

    Attributes:
        seconds: (n,) complete times, and the bounds that the others exceed.
        censored: (n,) True where only the bound is known.
        counts: (n,) number of such durations in the log.
    """

    seconds: FloatArray
    censored: BoolArray
    counts: FloatArray

    @classmethod
    def sort(cls, seconds: FloatArray, censored: BoolArray) -> Durations:
        """Return durations from `seconds` (m,), sorted; more than 50,000 are rounded and equal ones counted.

        `censored` (m,): True where `seconds` is a bound that the duration exceeds.
        """
        if len(seconds) <= _MOST_EXACT:
            order = np.lexsort((censored, seconds))
            return cls(seconds[order], censored[order], np.ones(len(order)))
        # A key is twice the rounded logarithm, plus 1 for a bound: sorting keys sorts by time, complete times first.
        steps = np.round(np.log(np.maximum(seconds, 1e-300)) * _STEPS).astype(np.int64)
        keys, counts = np.unique(2 * steps + censored, return_counts=True)
        return cls(np.exp((keys >> 1) / _STEPS), (keys & 1).astype(bool), counts.astype(np.float64))

    @property
    def number(self) -> int:
        """Number of durations, censored ones included."""
        return int(self.counts.sum())

    @property
    def complete(self) -> int:
        """Number of durations that were seen to their end."""
        return int(self.counts[~self.censored].sum())

    @property
    def censored_share(self) -> float:
        """Share of durations that were cut off."""
        return 1.0 - self.complete / self.number

    def survival(self) -> SurvivalCurve:
        """Return the Kaplan-Meier estimate of the probability to exceed each complete time.

        At equal times a complete duration comes before a bound: a duration that is cut off at t has not ended at t.
        """
        at_risk = np.cumsum(self.counts[::-1])[::-1]
        times, first = np.unique(self.seconds[~self.censored], return_index=True)
        complete = np.flatnonzero(~self.censored)
        ended = np.add.reduceat(self.counts[complete], first)
        return SurvivalCurve(times, np.asarray(np.cumprod(1.0 - ended / at_risk[complete[first]]), np.float64))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A parameter with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class FittedLaw:
    """A law of a scenario with estimated parameters.

    Attributes:
        kind: name of the law in scenario files.
        parameters: estimates by key.
        log_likelihood: log-likelihood of all durations; NaN for the empirical law.
        deviation: largest distance between the law and the Kaplan-Meier estimate of the distribution.
        beyond: probability that the law gives to times above the longest observation, where it extrapolates.
    """

    kind: str
    parameters: dict[str, Estimate]
    log_likelihood: float
    deviation: float
    beyond: float
    values_s: tuple[float, ...] = ()
    """Durations of the empirical law, seconds."""

    @property
    def aic(self) -> float:
        """Akaike's criterion, 2 (number of parameters - log-likelihood); smaller is better."""
        return 2.0 * (len(self.parameters) - self.log_likelihood)

    def table(self) -> Tables:
        """Return the law as a table of a scenario file."""
        if self.values_s:
            return {"kind": self.kind, "values_s": list(self.values_s)}
        return {"kind": self.kind, **{key: round_digits(estimate.value) for key, estimate in self.parameters.items()}}

    def quantile(self, u: FloatArray) -> FloatArray:
        """Return the quantiles (n,) at the probabilities `u` (n,) in [0, 1)."""
        if self.values_s:
            return np.asarray(np.quantile(np.array(self.values_s), u, method="inverted_cdf"))
        return np.asarray(_FAMILIES[self.kind].distribution(*(e.value for e in self.parameters.values())).ppf(u))


def round_digits(value: float) -> float:
    """Return the value with six significant digits."""
    return float(f"{value:.6g}")


class _Distribution:
    """A SciPy distribution with its parameters.

    Equal to SciPy's frozen distribution, but fast to create: a search creates hundreds, and a frozen one takes longer than the
    likelihood of a thousand durations.
    """

    def __init__(self, generic: Any, *shapes: float, loc: float = 0.0, scale: float = 1.0) -> None:
        self._generic = generic
        self._parameters = (*shapes, loc, scale)

    def logpdf(self, seconds: FloatArray) -> FloatArray:
        return np.asarray(self._generic.logpdf(seconds, *self._parameters))

    def logsf(self, seconds: FloatArray) -> FloatArray:
        return np.asarray(self._generic.logsf(seconds, *self._parameters))

    def sf(self, seconds: FloatArray | float) -> FloatArray:
        return np.asarray(self._generic.sf(seconds, *self._parameters))

    def ppf(self, u: FloatArray) -> FloatArray:
        return np.asarray(self._generic.ppf(u, *self._parameters))


@dataclass(frozen=True, slots=True)
class _Family:
    """Law with two parameters above 0, so that the search runs over their logarithms."""

    keys: tuple[str, str]
    """Names of the parameters in scenario files."""
    distribution: Callable[..., _Distribution]
    """Function that returns the distribution with two parameters."""
    start: Callable[[FloatArray, FloatArray], tuple[float, float]]
    """Function that returns starting values of the search, from complete times (n,) and their counts (n,)."""


def _log_moments(seconds: FloatArray, counts: FloatArray) -> tuple[float, float]:
    """Return mean and standard deviation of the logarithms of durations (n,), weighted by `counts` (n,)."""
    logs = np.log(seconds)
    mean = np.average(logs, weights=counts)
    return float(mean), float(np.sqrt(max(np.average((logs - mean) ** 2, weights=counts), 1e-12)))


def _start_log_normal(seconds: FloatArray, counts: FloatArray) -> tuple[float, float]:
    """Return starting values of the search: median and sigma."""
    mean, deviation = _log_moments(seconds, counts)
    return float(np.exp(mean)), deviation


def _start_gamma(seconds: FloatArray, counts: FloatArray) -> tuple[float, float]:
    """Return starting values of the search: mean and shape."""
    mean = float(np.average(seconds, weights=counts))
    variance = float(np.average((seconds - mean) ** 2, weights=counts))
    return mean, float(np.clip(mean**2 / max(variance, 1e-12 * mean**2), 0.05, 1e6))


def _start_weibull(seconds: FloatArray, counts: FloatArray) -> tuple[float, float]:
    """Return starting values of the search: scale and shape."""
    # The logarithm of a Weibull variable has the standard deviation pi / (sqrt(6) shape).
    _, deviation = _log_moments(seconds, counts)
    return float(np.average(seconds, weights=counts)), float(np.clip(1.2825 / deviation, 0.05, 1e6))


_FAMILIES: dict[str, _Family] = {
    "log-normal": _Family(
        ("median_s", "sigma"), lambda median, sigma: _Distribution(stats.lognorm, sigma, scale=median), _start_log_normal
    ),
    "gamma": _Family(
        ("mean_s", "shape"), lambda mean, shape: _Distribution(stats.gamma, shape, scale=mean / shape), _start_gamma
    ),
    "weibull": _Family(
        ("scale_s", "shape"), lambda scale, shape: _Distribution(stats.weibull_min, shape, scale=scale), _start_weibull
    ),
    "shifted-exponential": _Family(
        ("shift_s", "mean_excess_s"),
        lambda shift, excess: _Distribution(stats.expon, loc=shift, scale=excess),
        lambda seconds, counts: (0.0, 1.0),  # not used: `_shifted_exponential` has a closed form
    ),
}
KINDS = ("constant", "shifted-exponential", "log-normal", "gamma", "weibull", "empirical")
"""Laws that `fit_laws` tries, by their names in scenario files."""


def fit_laws(durations: Durations) -> list[FittedLaw]:
    """Fit all laws that the durations admit. Return them by Akaike's criterion, the best first; the empirical law is the last.

    >>> rng = np.random.default_rng(1)
    >>> times = rng.weibull(4.0, 400) * 3.0
    >>> cut = times > 3.5                                   # a deadline of 3.5 s
    >>> best, *others = fit_laws(Durations.sort(np.minimum(times, 3.5), cut))
    >>> best.kind, round(best.parameters["scale_s"].value, 1)
    ('weibull', 3.0)

    Raises:
        UnfitError: fewer than two complete durations, all of them censored, or one that is not above 0.
    """
    complete = durations.seconds[~durations.censored]
    if durations.complete == 0:
        raise UnfitError(f"all {durations.number} durations are cut off: no law can be told; give a log without a deadline")
    if durations.complete < 2:
        raise UnfitError(f"a law needs at least 2 complete durations, there is 1 of {durations.number}")
    longest = float(durations.seconds.max())
    if complete.max() - complete.min() <= _CONSTANT_SPREAD * max(complete.max(), 1e-12):
        value = float(complete.mean())
        return [FittedLaw("constant", {"value_s": Estimate(value, value, value)}, 0.0, 0.0, 0.0)]
    kaplan_meier = durations.survival()
    laws = [_shifted_exponential(durations, kaplan_meier)]
    if complete.min() > 0.0:
        laws += [_most_likely(kind, durations, kaplan_meier) for kind in ("log-normal", "gamma", "weibull")]
    laws.sort(key=lambda law: law.aic)
    return [*laws, _empirical(durations, kaplan_meier, longest)]


def _deviation(distribution: _Distribution, kaplan_meier: SurvivalCurve) -> float:
    """Return the largest distance between the survival functions of a distribution and of the Kaplan-Meier estimate.

    The estimate is a step function, so the distance is largest just before or just after a step: both are compared.
    """
    times, survival = kaplan_meier
    if not len(times):
        return 0.0
    expected = distribution.sf(times)
    before_step = np.concatenate([[1.0], survival[:-1]])
    return float(max(np.abs(expected - survival).max(), np.abs(expected - before_step).max()))


def _make_law(
    kind: str, estimates: Sequence[Estimate], durations: Durations, kaplan_meier: SurvivalCurve
) -> FittedLaw:
    """Return the law of `kind` with the parameters `estimates`, in the order of the family's keys.

    It holds the likelihood of the durations, and the distance to their Kaplan-Meier estimate.
    """
    distribution = _FAMILIES[kind].distribution(*(estimate.value for estimate in estimates))
    parameters = dict(zip(_FAMILIES[kind].keys, estimates, strict=True))
    likelihood = _log_likelihood(distribution, durations)
    beyond = float(distribution.sf(durations.seconds.max()))
    return FittedLaw(kind, parameters, likelihood, _deviation(distribution, kaplan_meier), beyond)


def _log_likelihood(distribution: _Distribution, durations: Durations) -> float:
    """Return the log-likelihood of durations: log-densities of complete ones, log-survival probabilities of censored ones."""
    cut = durations.censored
    complete = durations.counts[~cut] @ distribution.logpdf(durations.seconds[~cut])
    return float(complete + (durations.counts[cut] @ distribution.logsf(durations.seconds[cut]) if cut.any() else 0.0))


def _shifted_exponential(durations: Durations, kaplan_meier: SurvivalCurve) -> FittedLaw:
    """Return the law of a shift and an exponential excess, in closed form.

    With c complete of n durations, first complete time t1 and S the sum of all times beyond t1 (bounds before t1 count 0), the
    excess is S / (c - 1) and the shift t1 - excess / n, both without bias. 2 S / excess is chi-square with 2 (c - 1) degrees of
    freedom, n (t1 - shift) over the estimated excess is F(2, 2 (c - 1)) (Lawless 2003, section 4.4).
    """
    complete, number = durations.complete, durations.number
    first = float(durations.seconds[~durations.censored].min())
    total = float(durations.counts @ np.maximum(durations.seconds - first, 0.0))
    excess = total / (complete - 1)
    freedom = 2 * (complete - 1)
    upper, lower = (float(stats.chi2.ppf(p, freedom)) for p in ((1 + LEVEL) / 2, (1 - LEVEL) / 2))
    half_width = stats.f.ppf(LEVEL, 2, freedom) * excess / number
    shift = Estimate(max(0.0, first - excess / number), max(0.0, first - float(half_width)), first)
    mean = Estimate(excess, 2 * total / upper, 2 * total / lower)
    return _make_law("shifted-exponential", [shift, mean], durations, kaplan_meier)


def _most_likely(kind: str, durations: Durations, kaplan_meier: SurvivalCurve) -> FittedLaw:
    """Return the law of `kind` with the largest likelihood.

    The search runs over the logarithms of the two parameters, so that both stay above 0. The curvature of the log-likelihood
    there gives the intervals, as for a normal estimator; their ends are then taken back from the logarithms.
    """
    family, complete = _FAMILIES[kind], ~durations.censored

    def loss(logs: FloatArray) -> float:
        """Return the negative log-likelihood at the point `logs` (2,) of the search; inf far out, where it would overflow."""
        if np.abs(logs).max() > 60.0:
            return np.inf
        value = -_log_likelihood(family.distribution(*np.exp(logs)), durations)
        return value if np.isfinite(value) else np.inf

    # Under a law that fits complete times which lie close together, the likelihood of a much longer censored one may be 0 in
    # floating-point numbers. Then the search begins at a wider law, of all times as if none were censored.
    starts = (
        np.log(family.start(durations.seconds[complete], durations.counts[complete])),
        np.log(family.start(durations.seconds, durations.counts)),
    )
    start = next((start for start in starts if np.isfinite(loss(start))), starts[-1])
    solution = optimize.minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-9, "maxiter": 400})
    covariance = np.linalg.pinv(curvature(loss, solution.x))
    half_width = stats.norm.ppf((1 + LEVEL) / 2) * np.sqrt(np.maximum(np.diag(covariance), 0.0))
    values, lows, highs = (np.exp(solution.x + sign * half_width).tolist() for sign in (0.0, -1.0, 1.0))
    estimates = [Estimate(*three) for three in zip(values, lows, highs, strict=True)]
    return _make_law(kind, estimates, durations, kaplan_meier)


def curvature(loss: Callable[[FloatArray], float], point: FloatArray, step: float = 1e-3) -> FloatArray:
    """Return the matrix of second derivatives (d, d) of `loss` at `point` (d,), by central differences of width `step`."""
    size = len(point)
    shifts = np.eye(size) * step
    matrix = np.empty((size, size))
    for i in range(size):
        for j in range(i, size):
            a, b = shifts[i], shifts[j]
            value = (loss(point + a + b) - loss(point + a - b) - loss(point - a + b) + loss(point - a - b)) / (4.0 * step**2)
            matrix[i, j] = matrix[j, i] = value
    return matrix


def _empirical(durations: Durations, kaplan_meier: SurvivalCurve, longest: float, size: int = 200) -> FittedLaw:
    """Return the empirical law: at most `size` quantiles at equal steps of the Kaplan-Meier estimate.

    Probability above the last complete time goes to the `longest` observation, so that nothing is extrapolated.
    """
    times, survival = kaplan_meier
    count = min(size, max(2, durations.number))
    probabilities = (np.arange(count) + 0.5) / count
    # The first complete time that the probability has reached; `searchsorted` needs ascending values, hence the signs.
    indexes = np.searchsorted(-survival, -(1.0 - probabilities), side="left")
    values = np.where(indexes < len(times), times[np.minimum(indexes, len(times) - 1)], longest)
    beyond = float(survival[-1]) if durations.censored.any() else 0.0
    return FittedLaw("empirical", {}, np.nan, 0.0, beyond, tuple(round_digits(value) for value in values))

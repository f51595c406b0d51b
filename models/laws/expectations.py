"""Exact expectations under laws of delay: mean latency, mean of tau_min over latency (PAUSE eq. 10), mean of a maximum.

Only `quantile` and `mean_s` of a law are used. Integrals over u run in its normal score z, u = Phi(z), where quantile functions
are smooth out to both ends. The range of z is cut into panels, and each panel is integrated by a Gauss-Legendre rule. The
places where an integrand bends are found by bisection and become ends of panels, which get shorter towards them. A measured
sample is summed over exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from models.errors import ParameterError
from models.laws.delays import ByGroup, DelayLaw, Empirical, FloatArray, IntArray, Plus, pick
from models.laws.work import Mixture

LawT = TypeVar("LawT", covariant=True)

_LARGEST_U = 1.0 - 2.0**-53
# Integrals end at this normal score; 1e-16 of the probability is beyond.
_END = 8.2
_POINTS = 12  # of the Gauss-Legendre rule on a panel
# Distances from a bend, in normal scores, at which panels end.
_GRADES = 2.0 * 5.0 ** -np.arange(6)
_COARSE = np.linspace(-_END, _END, 13)  # ends of panels away from bends
_SOBOL_POINTS = 1 << 14
# Numbers that an integral holds at once: 4 million, 32 MB an array.
_BLOCK = 1 << 22
_KEPT = 8  # answers of `Truth` that are kept


class Timeline(Protocol[LawT]):
    """Law that may change: `at` returns the law in force, and the time up to which it is."""

    def at(self, round: int, time_s: float) -> tuple[LawT, float]: ...


class Truth:
    """True expectations of the clients' latencies, for genies and for policies that know the true means.

    `phases` are the timelines of the independent phases of an update (download, training, upload), whose durations add up;
    `kinds` are their names, in the same order; `clients` is K. Answers are for the laws in force at the given round and time,
    shape (K,), and read only. The last few are kept, by the laws in force.

    Example:
        >>> import numpy as np
        >>> from models.laws.changes import Unchanging
        >>> from models.laws.delays import Constant
        >>> truth = Truth(clients=2, phases=[Unchanging(Constant(value_s=np.array([3.0, 1.0])))], kinds=["compute"])
        >>> truth.mean_latency_s(1, 0.0)
        array([3., 1.])
    """

    def __init__(
        self, *, phases: Sequence[Timeline[DelayLaw]], clients: int, kinds: Sequence[str] = ("download", "compute", "upload")
    ) -> None:
        if not phases:
            raise ParameterError("phases", [], "must hold at least one timeline of delay laws")
        if clients < 1:
            raise ParameterError("clients", clients, "must be >= 1")
        self._phases = list(phases)
        self._kinds = list(kinds)
        self._entities = np.arange(clients)
        self._cache: dict[tuple[float | None, ...], _CachedAnswer] = {}
        """Answers, by tau_min (None: mean latency) and the ids of the laws."""

    def mean_latency_s(self, round: int, time_s: float) -> FloatArray:
        """Return the expected total duration of each client's phases, in seconds; (K,)."""
        return self._answer(None, round, time_s)

    def mean_ratio(self, tau_min_s: float, round: int, time_s: float) -> FloatArray:
        """Return E[min(1, tau_min / latency)] of each client, (K,): mu_k of PAUSE eq. 10 if no latency is below `tau_min_s`.

        The error is below 1e-8 if at most one phase is random. With more, 2^14 Sobol points are used: the largest errors seen
        are 3e-6 with Gaussian phases and 4e-5 with exponential ones.
        """
        if not (math.isfinite(tau_min_s) and tau_min_s > 0):
            raise ParameterError("tau_min_s", tau_min_s, "must be finite and > 0 seconds")
        return self._answer(tau_min_s, round, time_s)

    def mean_phase_s(self, phase: str, round: int, time_s: float) -> FloatArray:
        """Return the expected duration of each client's phase `phase`, one of `kinds`, in seconds; (K,). It is not kept.

        Zeros if no phase has this name.
        """
        laws = []
        for timeline, kind in zip(self._phases, self._kinds, strict=False):
            if kind == phase:
                law, _ = timeline.at(round, time_s)
                laws.append(law)
        return _mean_sum_s(laws, self._entities)

    def round_s(self, clients: IntArray, round: int, time_s: float) -> float:
        """Return the expected latency in seconds of a round that waits for all of `clients` (n,) (PAUSE eq. 3).

        NaN if several phases are random: the expected maximum is known for one random phase only.
        """
        random, fixed_s = _split_random(self._laws_at(round, time_s), clients)
        if not random:
            return float(fixed_s.max())
        if len(random) > 1:
            return math.nan
        return expected_max_s(random[0], clients, fixed_s)

    def _laws_at(self, round: int, time_s: float) -> list[DelayLaw]:
        """Return the law of each phase that is in force at that round and time."""
        return [timeline.at(round, time_s)[0] for timeline in self._phases]

    def _answer(self, tau_min_s: float | None, round: int, time_s: float) -> FloatArray:
        """Return mean latencies (`tau_min_s` None) or mean ratios tau_min / tau (K,) under the laws in force; cached by laws."""
        laws = self._laws_at(round, time_s)
        key = (tau_min_s, *map(id, laws))
        cached = self._cache.get(key)
        if cached is not None:
            return cached.values
        values = _mean_sum_s(laws, self._entities) if tau_min_s is None else mean_ratio(laws, tau_min_s, self._entities)
        values.setflags(write=False)
        if len(self._cache) >= _KEPT:
            oldest = next(iter(self._cache))
            del self._cache[oldest]
        # The entry keeps its laws alive, so that no later law can get the id of one of them.
        self._cache[key] = _CachedAnswer(laws, values)
        return values


class _CachedAnswer(NamedTuple):
    """Answer of `Truth`, with the laws that it holds for: while they are kept, no other law can get one of their ids."""

    laws: list[DelayLaw]
    values: FloatArray
    """(K,) read only."""


def _mean_sum_s(laws: Sequence[DelayLaw], entities: IntArray) -> FloatArray:
    """Return the mean of the sum of durations under `laws` of each of `entities` (n,), in seconds; (n,)."""
    return sum((law.mean_s(entities) for law in laws), np.zeros(len(entities)))


def mean_ratio(laws: Sequence[DelayLaw], tau_min_s: float, entities: IntArray) -> FloatArray:
    """Return E[min(1, tau_min_s / total)] of `entities`, the total being the sum of independent durations under `laws`; (n,).

    Errors as in `Truth.mean_ratio`, if a user's own law is smooth above its least duration.
    """
    for place, law in enumerate(laws):
        if isinstance(law, Mixture):
            # Integrate part by part: only the parts of a mixture are smooth.
            ratios = np.zeros(len(entities))
            for shares, part in law.parts:
                with_part = [*laws[:place], part, *laws[place + 1 :]]
                ratios += shares[entities] * mean_ratio(with_part, tau_min_s, entities)
            return ratios
    random, fixed_s = _split_random(laws, entities)
    if not random:
        return _ratio(tau_min_s, fixed_s)
    if len(random) > 1:
        return _sobol_ratio(random, tau_min_s, fixed_s, entities)
    ratios = np.empty(len(entities))
    for leaf, places, shift_s in _leaves(random[0], entities):
        offset_s = fixed_s[places] + shift_s
        if isinstance(leaf, Empirical):
            for block in _blocks(len(places), len(leaf.values_s)):
                ratios[places[block]] = np.mean(_ratio(tau_min_s, offset_s[block, None] + leaf.values_s), axis=1)
        else:
            # `_smooth_ratio` holds the points of about 40 panels for each client.
            for block in _blocks(len(places), _POINTS * 40):
                ratios[places[block]] = _smooth_ratio(leaf, tau_min_s, offset_s[block], entities[places[block]])
    return ratios


def _split_random(laws: Sequence[DelayLaw], entities: IntArray) -> tuple[list[DelayLaw], FloatArray]:
    """Return the laws whose durations are random, and the sum of the other durations for each of `entities`, in seconds (n,)."""
    fixed = np.zeros(len(entities))
    random = []
    for law in laws:
        if law.constant:
            fixed += law.mean_s(entities)
        else:
            random.append(law)
    return random, fixed


def expected_max_s(law: DelayLaw, entities: IntArray, fixed_s: FloatArray | None = None) -> float:
    """Return E[max of independent durations of `entities`] in seconds (PAUSE eq. 3).

    It is the integral over x of 1 - product of the clients' distribution functions at x, by quadrature. `fixed_s` (n,) seconds
    are added to each duration (None: nothing). Relative error below 1e-9, except for heavy tails (log-normal: 1e-9 at sigma =
    2, 1e-7 at 3). 30 clients take a second, and time grows with the square of their number.
    """
    if not len(entities):
        raise ParameterError("entities", [], "must hold at least one client")
    fixed = np.zeros(len(entities)) if fixed_s is None else fixed_s
    # The maximum is at least the largest of the least durations: the integrand is 1 up to there.
    total_s = float(np.max(law.quantile(np.zeros(len(entities)), entities) + fixed))
    edges = _panel_edges(law, entities, fixed)
    edges = np.concatenate(([total_s], edges[edges > total_s]))
    middle, half = 0.5 * (edges[1:] + edges[:-1]), 0.5 * np.diff(edges)
    nodes, weights = _gauss_legendre()
    for block in _blocks(len(middle), _POINTS * len(entities)):
        x = (middle[block, None] + half[block, None] * nodes).ravel()
        integrand = 1.0 - _probability_all_below(law, entities, fixed, x)
        total_s += float((integrand.reshape(-1, _POINTS) @ weights) @ half[block])
    return total_s


def _panel_edges(law: DelayLaw, entities: IntArray, fixed_s: FloatArray) -> FloatArray:
    """Return ends of panels for the integral of `expected_max_s`, ascending: quantiles of the clients' durations, seconds."""
    from scipy.special import ndtr

    # Quantiles of many clients interleave, so that each client needs fewer.
    count = min(max(1000 // len(entities), 10), 66)
    us = ndtr(np.linspace(-_END, _END, count))
    us[0], us[-1] = 0.0, _LARGEST_U
    points: list[FloatArray] = []
    for leaf, places, shift_s in _leaves(law, entities):
        shifts_s = shift_s + fixed_s[places]
        if isinstance(leaf, Empirical):
            points.append(np.add.outer(np.unique(shifts_s), leaf.values_s).ravel())
            continue
        clients = entities[places]
        # These include the least duration, where a distribution function may jump.
        for _, simple in _parts(leaf):
            durations = simple.quantile(np.tile(us, len(clients)), np.repeat(clients, len(us)))
            points.append(durations + np.repeat(shifts_s, len(us)))
    return np.unique(np.concatenate(points))


def _probability_all_below(law: DelayLaw, entities: IntArray, fixed_s: FloatArray, x: FloatArray) -> FloatArray:
    """Return P(all durations of `entities` <= x) for each of `x` (m,), `fixed_s` (n,) being added to the durations."""
    all_below = np.ones(len(x))
    for leaf, places, shift_s in _leaves(law, entities):
        # One entry for each pair of a number of `x` and a client of the leaf.
        clients = np.tile(entities[places], len(x))
        limits_s = x[:, None] - (shift_s + fixed_s[places])
        durations_s = np.broadcast_to(limits_s, (len(x), len(places))).ravel()
        below_of_parts = [_share_of(shares, clients) * _last_u(part, durations_s, clients) for shares, part in _parts(leaf)]
        below = sum(below_of_parts[1:], below_of_parts[0]).reshape(len(x), -1)
        all_below *= below.prod(axis=1)
    return all_below


def _ratio(tau_min_s: float, total_s: FloatArray) -> FloatArray:
    """Return tau_min over the total durations `total_s`, at most 1; the shape of `total_s`."""
    return tau_min_s / np.maximum(total_s, tau_min_s)


def _blocks(count: int, each: int) -> Iterator[slice]:
    """Yield slices over `count` items. An item needs `each` numbers, and a slice as many as fit into memory at once."""
    step = max(_BLOCK // max(each, 1), 1)
    return (slice(start, start + step) for start in range(0, count, step))


class _Leaf(NamedTuple):
    """Simple law inside a law that is composed of others."""

    law: DelayLaw
    places: IntArray
    """Positions (m,) of its followers in the list of clients."""
    shift_s: float | FloatArray
    """Seconds added to its durations; (m,), or one for all followers."""


def _leaves(law: DelayLaw, entities: IntArray) -> Iterator[_Leaf]:
    """Yield the laws inside `law` that `entities` (n,) follow: groups are taken apart, fixed times become shifts.

    Mixtures stay whole (`_parts` takes them apart).
    """
    if isinstance(law, ByGroup):
        for inner, followers in law.followers(entities):
            for leaf, places, shift_s in _leaves(inner, entities[followers]):
                yield _Leaf(leaf, followers[places], shift_s)
    elif isinstance(law, Plus):
        fixed_s = pick(law.fixed_s, entities)
        for leaf, places, shift_s in _leaves(law.delay, entities):
            yield _Leaf(leaf, places, shift_s + pick(fixed_s, places))
    else:
        yield _Leaf(law, np.arange(len(entities)), 0.0)


def _parts(law: DelayLaw) -> Sequence[tuple[FloatArray | None, DelayLaw]]:
    """Return the laws of a mixture with their probabilities (K,), or the law itself with None, which stands for 1."""
    return law.parts if isinstance(law, Mixture) else [(None, law)]


def _share_of(shares: FloatArray | None, entities: IntArray) -> FloatArray | float:
    """Return the probabilities (n,) of `entities`, 1 for None."""
    return 1.0 if shares is None else shares[entities]


def _last_u(law: DelayLaw, x: FloatArray, entities: IntArray) -> FloatArray:
    """Return P(duration <= x) (n,): the largest u with a quantile of at most x, by bisection down to one step of a uniform."""
    low, high = np.zeros(len(x)), np.ones(len(x))
    for _ in range(54):
        middle = np.minimum(0.5 * (low + high), _LARGEST_U)
        below = law.quantile(middle, entities) <= x
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.where(law.quantile(np.zeros(len(x)), entities) > x, 0.0, high)


@cache
def _gauss_legendre() -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights (12,) of the Gauss-Legendre rule on [-1, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(_POINTS)
    return nodes, weights


def _normal_scores(u: FloatArray) -> FloatArray:
    """Return the normal scores of `u` (n,), within the ends of the integrals."""
    from scipy.special import ndtri

    return np.clip(ndtri(u), -_END, _END)


def _smooth_ratio(law: DelayLaw, tau_min_s: float, offset_s: FloatArray, entities: IntArray) -> FloatArray:
    """Return E[min(1, tau / (offset + duration))] (n,) under a law that is smooth above its least duration.

    The integrand bends at two normal scores: where the duration leaves its least value, and where the minimum leaves 1.
    """
    from scipy.special import ndtr

    count = len(entities)
    nodes, weights = _gauss_legendre()
    # The integrand bends where durations leave their least value, and where the latency reaches tau_min.
    least_s = law.quantile(np.zeros(count), entities)
    bends = [_normal_scores(_last_u(law, limit_s, entities))[:, None] for limit_s in (least_s, tau_min_s - offset_s)]
    # Ends of the panels of Gauss-Legendre quadrature over normal scores: even ones, and finer ones around each bend.
    coarse = np.broadcast_to(_COARSE, (count, len(_COARSE)))
    graded = [np.clip(bend + _GRADES, -_END, _END) for bend in bends]
    edges = np.sort(np.concatenate((coarse, *bends, *graded), axis=1), axis=1)
    half = 0.5 * np.diff(edges, axis=1)
    # Points of all panels; axes: clients, panels, points of a panel.
    scores = (edges[:, :-1] + half)[:, :, None] + half[:, :, None] * nodes
    u = np.minimum(ndtr(scores), _LARGEST_U).reshape(count, -1)
    score_weights = (half[:, :, None] * weights * np.exp(-0.5 * scores * scores)).reshape(count, -1)
    durations_s = law.quantile(u.ravel(), np.repeat(entities, u.shape[1])).reshape(u.shape)
    ratios = _ratio(tau_min_s, offset_s[:, None] + durations_s)
    # Dividing by the sum of weights makes the rule exact for constants, although it stops at finite ends.
    return np.asarray((score_weights * ratios).sum(axis=1) / score_weights.sum(axis=1))


def _sobol_ratio(laws: Sequence[DelayLaw], tau_min_s: float, fixed_s: FloatArray, entities: IntArray) -> FloatArray:
    """Return E[tau_min / latency], at most 1, of each of `entities` (n,), by the mean over 2^14 Sobol points.

    The latency is `fixed_s` (n,) plus a duration under each of `laws`. A point has a coordinate for each law, which the quantile
    function of the law turns into a duration.
    """
    # Imported here: loading this package takes longer than most calls of this function.
    from scipy.stats.qmc import Sobol

    # The sequence starts at the origin; half a step moves it to the middles of its cells.
    points: NDArray[np.float64] = Sobol(len(laws), scramble=False).random(_SOBOL_POINTS) + 0.5 / _SOBOL_POINTS
    ratios = np.empty(len(entities))
    for block in _blocks(len(entities), _SOBOL_POINTS):
        clients = np.repeat(entities[block], _SOBOL_POINTS)
        total_s = np.repeat(fixed_s[block], _SOBOL_POINTS)
        for law, u in zip(laws, points.T, strict=True):
            total_s += law.quantile(np.tile(u, len(entities[block])), clients)
        ratios[block] = _ratio(tau_min_s, total_s).reshape(-1, _SOBOL_POINTS).mean(axis=1)
    return ratios

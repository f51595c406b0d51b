"""Exact expectations under laws of delay: mean latency, mean of tau_min over latency (PAUSE eq. 10), mean of a maximum.

Only `quantile` and `mean_s` of a law are used. Integrals over u run in its normal score z, u = Phi(z), where quantile functions
are smooth out to both ends, by Gauss-Legendre rules on panels. The places where an integrand bends are found by bisection and
become ends of panels, which get shorter towards them. A measured sample is summed over exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from models.errors import ParameterError
from models.laws.delays import ByGroup, DelayLaw, Empirical, FloatArray, IntArray, Plus, pick
from models.laws.work import Mixture

LawT = TypeVar("LawT", covariant=True)

_LARGEST_U = 1.0 - 2.0**-53
# Integrals end at this normal score; 1e-16 of the probability is beyond.
_END = 8.2
_POINTS = 12
# Distances from a bend, in normal scores, at which panels end.
_GRADES = 2.0 * 5.0 ** -np.arange(6)
_COARSE = np.linspace(-_END, _END, 13)
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
    `clients` is K, `kinds` names the part of each timeline. Answers are for the laws in force at the given round and time,
    shape (K,), and read only; they are kept for the last few combinations of laws.

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
        # The laws are kept with the answer: an id in a key would otherwise be reused for another law.
        self._known: dict[tuple[float | None, ...], tuple[list[DelayLaw], FloatArray]] = {}

    def mean_latency_s(self, round: int, time_s: float) -> FloatArray:
        """Return the expected total duration of each client's phases, in seconds; (K,)."""
        return self._answer(None, round, time_s)

    def mean_ratio(self, tau_min_s: float, round: int, time_s: float) -> FloatArray:
        """Return E[min(1, tau_min / total duration)] of each client, (K,): mu_k of PAUSE eq. 10 if no latency is below
        `tau_min_s`.

        The error is below 1e-8 if at most one phase is random. With more, 2^14 Sobol points are used: the largest errors seen
        are 3e-6 with Gaussian phases and 4e-5 with exponential ones.
        """
        if not (math.isfinite(tau_min_s) and tau_min_s > 0):
            raise ParameterError("tau_min_s", tau_min_s, "must be finite and > 0 seconds")
        return self._answer(tau_min_s, round, time_s)

    def mean_phase_s(self, phase: str, round: int, time_s: float) -> FloatArray:
        """Return the expected duration of one phase of each client's update, download, compute or upload, in seconds; (K,), not
        kept.
        """
        laws = [law.at(round, time_s)[0] for law, kind in zip(self._phases, self._kinds, strict=False) if kind == phase]
        return sum((law.mean_s(self._entities) for law in laws), np.zeros(len(self._entities)))

    def round_s(self, clients: IntArray, round: int, time_s: float) -> float:
        """Return the expected latency of a round that waits for `clients` (n,) (PAUSE eq. 3); NaN if several phases are random.
        """
        random, fixed = _split_random([phase.at(round, time_s)[0] for phase in self._phases], clients)
        if len(random) > 1:
            return math.nan
        return expected_max_s(random[0], clients, fixed) if random else float(fixed.max())

    def _answer(self, tau_min_s: float | None, round: int, time_s: float) -> FloatArray:
        """Return mean latencies (`tau_min_s` None) or mean ratios, kept by the laws in force."""
        laws = [phase.at(round, time_s)[0] for phase in self._phases]
        key = (tau_min_s, *map(id, laws))
        known = self._known.get(key)
        if known is None:
            if tau_min_s is None:
                value = sum((law.mean_s(self._entities) for law in laws), np.zeros(len(self._entities)))
            else:
                value = mean_ratio(laws, tau_min_s, self._entities)
            value.setflags(write=False)
            if len(self._known) >= _KEPT:
                del self._known[next(iter(self._known))]
            known = self._known[key] = (laws, value)
        return known[1]


def mean_ratio(laws: Sequence[DelayLaw], tau_min_s: float, entities: IntArray) -> FloatArray:
    """Return E[min(1, tau_min_s / total)] of `entities`, the total being the sum of independent durations under `laws`; (n,).

    Errors as in `Truth.mean_ratio`, if a user's own law is smooth above its least duration.
    """
    for place, law in enumerate(laws):
        if isinstance(law, Mixture):
            # The duration of each part of the mixture is smooth.
            ratios = np.zeros(len(entities))
            for shares, chosen in law.parts:
                ratios += shares[entities] * mean_ratio([*laws[:place], chosen, *laws[place + 1 :]], tau_min_s, entities)
            return ratios
    random, fixed = _split_random(laws, entities)
    if not random:
        return _ratio(tau_min_s, fixed)
    if len(random) > 1:
        return _sobol_ratio(random, tau_min_s, fixed, entities)
    out = np.empty(len(entities))
    for leaf, where, shift in _leaves(random[0], entities):
        offset = fixed[where] + shift
        if isinstance(leaf, Empirical):
            size = len(leaf.values_s)
            for part in _blocks(len(where), size):
                out[where[part]] = np.mean(_ratio(tau_min_s, offset[part, None] + leaf.values_s), axis=1)
        else:
            for part in _blocks(len(where), _POINTS * 40):
                out[where[part]] = _smooth_ratio(leaf, tau_min_s, offset[part], entities[where[part]])
    return out


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
    """Return E[max of independent durations of `entities`], by quadrature of 1 - product of distribution functions (PAUSE eq.
    3).

    `fixed_s` (n,) seconds are added to each duration (None: nothing). Relative error below 1e-9, except for heavy tails
    (log-normal: 1e-9 at sigma = 2, 1e-7 at 3). 30 clients take a second, and time grows with the square of their number.
    """
    if not len(entities):
        raise ParameterError("entities", [], "must hold at least one client")
    from scipy.special import ndtr

    # The panels of many clients interleave, so that each client needs fewer.
    scores = ndtr(np.linspace(-_END, _END, min(max(1000 // len(entities), 10), 66)))
    scores[0], scores[-1] = 0.0, _LARGEST_U
    points: list[FloatArray] = []
    fixed = np.zeros(len(entities)) if fixed_s is None else fixed_s
    for leaf, where, shift in _leaves(law, entities):
        shifts = shift + fixed[where]
        if isinstance(leaf, Empirical):
            points.append(np.add.outer(np.unique(shifts), leaf.values_s).ravel())
            continue
        who = entities[where]
        # These include the least duration, where a distribution function may jump.
        for _, simple in _parts(leaf):
            reached = simple.quantile(np.tile(scores, len(who)), np.repeat(who, len(scores)))
            points.append(reached + np.repeat(shifts, len(scores)))
    edges = np.unique(np.concatenate(points))
    # The maximum is at least the largest of the least durations.
    total = float(np.max(law.quantile(np.zeros(len(entities)), entities) + fixed))
    nodes, weights = _rule()
    edges = np.concatenate(([total], edges[edges > total]))
    middle, half = 0.5 * (edges[1:] + edges[:-1]), 0.5 * np.diff(edges)
    for part in _blocks(len(middle), _POINTS * len(entities)):
        x = (middle[part, None] + half[part, None] * nodes).ravel()
        below = np.ones(len(x))
        for leaf, where, shift in _leaves(law, entities):
            who = np.tile(entities[where], len(x))
            durations = np.broadcast_to(x[:, None] - (shift + fixed[where]), (len(x), len(where))).ravel()
            under = [_share_of(shares, who) * _last_u(simple, durations, who) for shares, simple in _parts(leaf)]
            below *= sum(under[1:], under[0]).reshape(len(x), -1).prod(axis=1)
        total += float(((1.0 - below).reshape(-1, _POINTS) @ weights) @ half[part])
    return total


def _ratio(tau_min_s: float, total_s: FloatArray) -> FloatArray:
    """Return tau_min over the total duration, at most 1."""
    return tau_min_s / np.maximum(total_s, tau_min_s)


def _blocks(count: int, each: int) -> Iterator[slice]:
    """Yield slices over `count` items such that a slice holds about `_BLOCK` numbers, `each` for one item."""
    step = max(_BLOCK // max(each, 1), 1)
    return (slice(start, start + step) for start in range(0, count, step))


def _leaves(law: DelayLaw, entities: IntArray) -> Iterator[tuple[DelayLaw, IntArray, float | FloatArray]]:
    """Yield the simple laws inside `law`, with the positions in `entities` that follow each, and seconds that are added to it."""
    if isinstance(law, ByGroup):
        for inner, members in law.members(entities):
            for leaf, where, shift in _leaves(inner, entities[members]):
                yield leaf, members[where], shift
    elif isinstance(law, Plus):
        fixed = pick(law.fixed_s, entities)
        for leaf, where, shift in _leaves(law.delay, entities):
            yield leaf, where, shift + pick(fixed, where)
    else:
        yield law, np.arange(len(entities)), 0.0


def _parts(law: DelayLaw) -> Sequence[tuple[FloatArray | None, DelayLaw]]:
    """Return the laws of a mixture with their probabilities (K,), or the law itself with None, which stands for 1."""
    return law.parts if isinstance(law, Mixture) else [(None, law)]


def _share_of(shares: FloatArray | None, entities: IntArray) -> FloatArray | float:
    """Return the probabilities (n,) of `entities`, 1 for None."""
    return 1.0 if shares is None else shares[entities]


def _last_u(law: DelayLaw, x: FloatArray, entities: IntArray) -> FloatArray:
    """Return P(duration <= x), the largest u whose quantile is not above x, by bisection to the resolution of a uniform; (n,)."""
    low, high = np.zeros(len(x)), np.ones(len(x))
    for _ in range(54):
        middle = np.minimum(0.5 * (low + high), _LARGEST_U)
        under = law.quantile(middle, entities) <= x
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    return np.where(law.quantile(np.zeros(len(x)), entities) > x, 0.0, high)


@cache
def _rule() -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights (12,) of the Gauss-Legendre rule on [-1, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(_POINTS)
    return nodes, weights


def _score(u: FloatArray) -> FloatArray:
    """Return the normal scores of `u` (n,), within the ends of the integrals."""
    from scipy.special import ndtri

    return np.clip(ndtri(u), -_END, _END)


def _smooth_ratio(law: DelayLaw, tau_min_s: float, offset: FloatArray, entities: IntArray) -> FloatArray:
    """Return E[min(1, tau / (offset + duration))] for a law that is smooth except for a bend where it leaves its least value."""
    from scipy.special import ndtr

    count = len(entities)
    nodes, weights = _rule()
    bends = (
        _score(_last_u(law, law.quantile(np.zeros(count), entities), entities)),
        _score(_last_u(law, tau_min_s - offset, entities)),
    )
    graded = [np.clip(bend[:, None] + _GRADES, -_END, _END) for bend in bends]
    coarse = np.broadcast_to(_COARSE, (count, len(_COARSE)))
    edges = np.sort(np.concatenate((coarse, *(bend[:, None] for bend in bends), *graded), axis=1), axis=1)
    half = 0.5 * np.diff(edges, axis=1)
    z = (edges[:, :-1] + half)[:, :, None] + half[:, :, None] * nodes
    u = np.minimum(ndtr(z), _LARGEST_U).reshape(count, -1)
    weight = (half[:, :, None] * weights * np.exp(-0.5 * z * z)).reshape(count, -1)
    x = law.quantile(u.ravel(), np.repeat(entities, u.shape[1])).reshape(u.shape)
    # Dividing by the sum of weights makes the rule exact for constants, although it stops at finite ends.
    return np.asarray((weight * _ratio(tau_min_s, offset[:, None] + x)).sum(axis=1) / weight.sum(axis=1))


def _sobol_ratio(laws: Sequence[DelayLaw], tau_min_s: float, fixed: FloatArray, entities: IntArray) -> FloatArray:
    # Imported here: loading this package takes longer than most calls of this function.
    """Return E[min(1, tau / total)] for several random laws, by 2^14 Sobol points; (n,)."""
    from scipy.stats.qmc import Sobol

    # The sequence starts at the origin; half a step moves it to the middles of its cells.
    points: NDArray[np.float64] = Sobol(len(laws), scramble=False).random(_SOBOL_POINTS) + 0.5 / _SOBOL_POINTS
    out = np.empty(len(entities))
    for part in _blocks(len(entities), _SOBOL_POINTS):
        who = np.repeat(entities[part], _SOBOL_POINTS)
        total = np.repeat(fixed[part], _SOBOL_POINTS)
        for law, u in zip(laws, points.T, strict=True):
            total += law.quantile(np.tile(u, len(entities[part])), who)
        out[part] = _ratio(tau_min_s, total).reshape(-1, _SOBOL_POINTS).mean(axis=1)
    return out

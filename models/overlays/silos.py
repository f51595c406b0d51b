"""Silos on an underlay, and the delay of an arc of an overlay where each path has fixed shares (`by-degree`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.errors import ParameterError
from models.overlays.underlay import Underlay, Way

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
_MOST_BITS, _LONGEST_MS = 1e15, 1e15
"""Bounds beyond which a number is hardly meant."""


@dataclass(frozen=True, slots=True)
class Arc:
    """A message of an overlay, from one silo to another. `via`: all silos that it passes, if others relay it."""

    source: int
    target: int
    via: tuple[int, ...] = ()

    @property
    def stops(self) -> tuple[int, ...]:
        """Silos in order, source and target among them."""
        return self.via or (self.source, self.target)


class RouteTimes(NamedTuple):
    """Times of the routes of some arcs, each (m,) in ms."""

    latencies_ms: FloatArray
    cores_ms: FloatArray
    """Time of a model on the cables of a route."""


@dataclass(frozen=True)
class Silos:
    """Sites of `underlay`, each of which trains: `steps` local steps of `compute_ms` each on a model of `model_bits`.

    `up_bits_per_s`, `down_bits_per_s`: access of every silo; `core_bits_per_s`: of every cable that names none. Raises
    ParameterError for numbers out of bounds.
    """

    underlay: Underlay
    model_bits: float
    compute_ms: float
    steps: int = 1
    up_bits_per_s: float = 1e10
    down_bits_per_s: float = 1e10
    core_bits_per_s: float = 1e9

    def __post_init__(self) -> None:
        for name in ("model_bits", "up_bits_per_s", "down_bits_per_s", "core_bits_per_s"):
            value = getattr(self, name)
            if not 0.0 < value <= _MOST_BITS:
                raise ParameterError(name, value, "must be > 0, and at most 1e15 bits or bits/s; look at the units")
        if not 0.0 <= self.compute_ms <= _LONGEST_MS:
            raise ParameterError("compute_ms", self.compute_ms, f"must be >= 0, and at most {_LONGEST_MS:g}")
        if not 1 <= self.steps <= _LONGEST_MS:
            raise ParameterError("steps", self.steps, f"must be at least 1, and at most {_LONGEST_MS:g}")

    @property
    def count(self) -> int:
        """Number of silos."""
        return len(self.underlay.sites)

    @property
    def work_ms(self) -> float:
        """Time of the local training of a round, s T_c."""
        return self.steps * self.compute_ms

    @property
    def up_ms(self) -> float:
        """Time of a model on the whole way up, M / C_up."""
        return self.model_bits / self.up_bits_per_s * 1e3

    @property
    def down_ms(self) -> float:
        """Time of a model on the whole way down, M / C_down."""
        return self.model_bits / self.down_bits_per_s * 1e3

    @cached_property
    def latency_ms(self) -> FloatArray:
        """(n, n) latencies of the shortest routes."""
        return self._of_routes(lambda way: way.latency_ms)

    @cached_property
    def core_ms(self) -> FloatArray:
        """Time (n, n) in ms in which a model crosses the cables of a route one after the other: M / A with A = C_core / hops."""
        # Keep the order of operations, that of the code behind the published table: routes over the same cables make exact ties
        # between tours of a ring, which the last digits decide.
        return self._of_routes(lambda way: self.model_bits / self._path_bits_per_s(way) * 1e3)

    def _of_routes(self, measure: Callable[[Way], float]) -> FloatArray:
        """Return the `measure` of the route between each two silos; (n, n)."""
        return np.array([list(map(measure, routes)) for routes in self.underlay.ways])

    def _path_bits_per_s(self, way: Way) -> float:
        """Return the rate of a route: its cables carry the message one after the other, so that their times per bit add up.

        inf for a route without cables, from a silo to itself.
        """
        if not way.cables:
            return math.inf
        # A cable that names no capacity has that of all others.
        capacities = [self.underlay.cables[cable].bits_per_s or self.core_bits_per_s for cable in way.cables]
        if len(set(capacities)) == 1:
            # The same as below without its rounding.
            return capacities[0] / len(capacities)
        return 1.0 / sum(1.0 / capacity for capacity in capacities)

    @property
    def share_ms(self) -> FloatArray:
        """(n, n) time of a model that a silo sends or gets alone, max(M / C_up, M / C_down, M / A)."""
        return np.asarray(np.maximum(max(self.up_ms, self.down_ms), self.core_ms))

    @cached_property
    def path_ms(self) -> FloatArray:
        """(n, n) weights by which overlays are built: s T_c + l + M / A, A the bandwidth of the path."""
        return self.work_ms + self.latency_ms + self.core_ms

    def route_ms(self, arcs: Sequence[Arc]) -> RouteTimes:
        """Return the times in ms of the routes of `arcs` (m,): latency, and bits over the cables of the core.

        A relayed arc has the latencies of all its hops, but the core time of its last hop alone, as in Marfoq's published star.
        """
        sources, targets = _ends(arcs)
        times = RouteTimes(self.latency_ms[sources, targets], self.core_ms[sources, targets])
        for place, arc in enumerate(arcs):
            if arc.via:
                times.latencies_ms[place] = sum(float(self.latency_ms[a, b]) for a, b in pairwise(arc.stops))
                times.cores_ms[place] = self.core_ms[arc.stops[-2], arc.stops[-1]]
        return times

    def message_ms(self, arcs: Sequence[Arc]) -> FloatArray:
        """Return the times (m,) in ms of the messages of `arcs`, which are under way together: latency, and bits at fixed shares.

        A time is d - s T_c of Marfoq et al. 2020, eq. 3: l + max(outdeg M / C_up, indeg M / C_down, M hops / C_core), with the
        degrees of `arcs`. A path's share of the core is its own, whatever else crosses the same cables.
        """
        if not arcs:
            return np.zeros(0)
        sources, targets = _ends(arcs)
        outgoing = np.bincount(sources, minlength=self.count)[sources]
        incoming = np.bincount(targets, minlength=self.count)[targets]
        latencies_ms, cores_ms = self.route_ms(arcs)
        access_ms = np.maximum(outgoing * self.up_ms, incoming * self.down_ms)
        return np.asarray(latencies_ms + np.maximum(access_ms, cores_ms))


def _ends(arcs: Sequence[Arc]) -> tuple[IntArray, IntArray]:
    """Return the sources (m,) and the targets (m,) of `arcs`."""
    return np.array([arc.source for arc in arcs], np.int64), np.array([arc.target for arc in arcs], np.int64)


def both_ways(pairs: Iterable[tuple[int, int]]) -> tuple[Arc, ...]:
    """Return an arc in each direction for every pair, pair by pair."""
    arcs: list[Arc] = []
    for a, b in pairs:
        arcs += [Arc(a, b), Arc(b, a)]
    return tuple(arcs)

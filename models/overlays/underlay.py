"""The network below an overlay: sites joined by links, and the shortest routes between them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import Any, Literal, NamedTuple

from models.errors import ParameterError

MS_PER_KM = 0.0085
ROUTE_MS = 4.0
"""Latency of a route of d km: 0.0085 d + 4 ms (Marfoq et al. 2020, Section 4)."""
_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Cable:
    """A link between two sites, by their numbers; each direction has the capacity.

    Either `km` or `delay_ms` is given. `bits_per_s`: None for the capacity that all links of the network have.
    """

    a: int
    b: int
    km: float | None = None
    delay_ms: float | None = None
    bits_per_s: float | None = None

    @property
    def length(self) -> float:
        """Length by which routes are compared: km, or ms where delays are given."""
        if self.km is not None:
            return self.km
        return 0.0 if self.delay_ms is None else self.delay_ms


@dataclass(frozen=True, slots=True)
class Way:
    """The shortest route between two sites: sites and cables in order, and its latency."""

    sites: tuple[int, ...]
    cables: tuple[int, ...]
    latency_ms: float


class _Hop(NamedTuple):
    """Hop over a cable, from one site to a neighbour."""

    site: int
    """Site at the other end."""
    cable: int
    """Number of the cable."""
    length: float
    """`Cable.length`."""


@dataclass(frozen=True)
class Underlay:
    """Sites with names, and cables between them.

    `ties`: of several shortest routes, take the one over the sites that come first, or that over the cables that come first. The
    latter is the rule of the published tables of overlays, where cables within a town have 0 km and many routes are equally long.

    Raises ParameterError for fewer than two sites, names twice, a cable from a site to itself or to a site that does not exist,
    two cables between the same sites, a length that is negative or infinite, and sites that no route joins.

    >>> line = Underlay("line", ("Lyon", "Nice", "Turin"), (Cable(0, 1, km=300.0), Cable(1, 2, km=200.0)))
    >>> line.ways[0][2].sites, line.ways[0][2].latency_ms
    ((0, 1, 2), 8.25)
    """

    name: str
    sites: tuple[str, ...]
    cables: tuple[Cable, ...]
    ties: Literal["sites", "cables"] = "cables"

    def __post_init__(self) -> None:
        count = len(self.sites)
        for number, name in enumerate(self.sites):
            if name in self.sites[:number]:
                raise ParameterError("nodes", name, "stands twice; give each node a name of its own")
        seen = set()
        for cable in self.cables:
            ends = (min(cable.a, cable.b), max(cable.a, cable.b))
            shown = f" between {self._site_name(cable.a)} and {self._site_name(cable.b)}"
            if not (ends[0] >= 0 and ends[1] < count):
                raise ParameterError("link", ends, f"names a node that does not exist; there are {count}", shown=shown)
            if cable.a == cable.b:
                raise ParameterError("link", ends, "is a loop; leave it out", shown=shown)
            if ends in seen:
                raise ParameterError("link", ends, "stands twice; keep one", shown=shown)
            seen.add(ends)
            if not 0.0 <= cable.length < _NEVER:
                raise ParameterError("link", cable.length, "must have a length or a delay >= 0", shown=shown)
            if cable.bits_per_s is not None and not 0.0 < cable.bits_per_s <= 1e15:
                reason = "must have a bandwidth > 0 and at most 1e15 bits/s; look at the units"
                raise ParameterError("link", cable.bits_per_s, reason, shown=f"{shown} = {cable.bits_per_s / 8:g} bytes/s")
        if count < 2:
            raise ParameterError("nodes", count, "must be at least 2")
        for site in range(1, count):
            if self.ways[0][site].latency_ms == _NEVER:
                reason = f"no route joins {self.sites[0]} and {self.sites[site]}; add a link"
                raise ParameterError("links", len(self.cables), reason, shown="")

    def _site_name(self, site: int) -> str:
        """Return the name of a site for messages, also of one that does not exist."""
        return self.sites[site] if 0 <= site < len(self.sites) else f"node {site}"

    @cached_property
    def ways(self) -> Sequence[Sequence[Way]]:
        """Shortest routes, by source and target. Found for a source when it is asked for."""
        return _Ways(self)

    @cached_property
    def _hops(self) -> list[list[_Hop]]:
        """Hops from each site, in the order of the cables."""
        hops: list[list[_Hop]] = [[] for _ in self.sites]
        for number, cable in enumerate(self.cables):
            hops[cable.a].append(_Hop(cable.b, number, cable.length))
            hops[cable.b].append(_Hop(cable.a, number, cable.length))
        return hops

    def ways_from(self, source: int) -> list[Way]:
        """Return the shortest route from a site to each site, by Dijkstra's algorithm; `ties` decides between equal lengths."""
        hops = self._hops
        # Of each site reached: the length of its shortest route so far, and the site and cable before it on that route.
        lengths = {source: 0.0}
        before: dict[int, tuple[int, int]] = {}
        # Entries (length, tie, site). Of sites at one distance, the one reached first is settled first with `ties` "cables", the
        # first in order with "sites".
        reached = itertools.count(1)
        queue, settled = [(0.0, 0, source)], set()
        while queue:
            length, _, site = heappop(queue)
            if site in settled:
                continue
            settled.add(site)
            for hop in hops[site]:
                new_length = length + hop.length
                if new_length < lengths.get(hop.site, _NEVER):
                    lengths[hop.site], before[hop.site] = new_length, (site, hop.cable)
                    tie = next(reached) if self.ties == "cables" else 0
                    heappush(queue, (new_length, tie, hop.site))
        return [self._way(source, target, before) for target in range(len(self.sites))]

    def _way(self, source: int, target: int, before: dict[int, tuple[int, int]]) -> Way:
        """Return the route from `source` to `target`; if there is none, one without sites and of infinite latency.

        `before`: for each site, the site before it on its route from `source`, and the cable between them.
        """
        # Walk backwards from the target.
        sites, cables = [target], []
        while sites[-1] != source:
            if sites[-1] not in before:
                return Way(sites=(), cables=(), latency_ms=_NEVER)
            site, cable = before[sites[-1]]
            sites.append(site)
            cables.append(cable)
        crossed = [self.cables[cable] for cable in reversed(cables)]
        km = sum(cable.km for cable in crossed if cable.km is not None)
        delays_ms = sum(cable.delay_ms for cable in crossed if cable.delay_ms is not None)
        latency_ms = delays_ms
        # The constant part of the latency counts once a route, if one of its cables has a length; given delays include theirs.
        if any(cable.km is not None for cable in crossed):
            latency_ms = delays_ms + (MS_PER_KM * km + ROUTE_MS)
        return Way(sites=tuple(reversed(sites)), cables=tuple(reversed(cables)), latency_ms=latency_ms)


class _Ways(Sequence[Sequence[Way]]):
    """Routes by source: those of a source are found once."""

    def __init__(self, underlay: Underlay) -> None:
        self._underlay = underlay
        self._known: dict[int, list[Way]] = {}

    def __len__(self) -> int:
        return len(self._underlay.sites)

    def __getitem__(self, source: Any) -> Any:
        if not 0 <= source < len(self):
            raise IndexError(source)
        if source not in self._known:
            self._known[source] = self._underlay.ways_from(source)
        return self._known[source]

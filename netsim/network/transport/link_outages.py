"""Links between clients that are down: by a schedule, by a script, or because a client at an end is cut off or away.

Each of these is one of `Cuts`; `AllCuts` combines them. They are looked up when a message ends, and have no events of their own.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from netsim.core.errors import ParameterError
from netsim.core.intervals import Intervals
from netsim.core.state import StateFields
from netsim.network.outages import check_bounds
from netsim.network.scripted_outages import ScriptedOutages
from netsim.network.transport.messages import link_ends, links_of_edges

if TYPE_CHECKING:
    from netsim.core.protocols import BoolArray, IntArray, State
    from netsim.network.outages import ClientOutage, ClientOutages
    from netsim.network.transport.messages import PeerGraph


def link_between(graph: PeerGraph, a: int, b: int) -> int:
    """Return the number of the link between `a` and `b`; raises ValueError if they are not neighbours."""
    edge = np.flatnonzero((graph.source == a) & (graph.target == b))
    if not edge.size:
        raise ParameterError("links", (a, b), "these two are not neighbours; name a link of the graph", shown=f" has {(a, b)}")
    return int(links_of_edges(graph)[edge[0]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Links that are down over [start_s, end_s), both ways; end_s inf: no end.

    Either `links`, pairs of neighbours, or `groups` of clients: then every link between two groups is down (a partition).
    Clients in no group form one further group.
    """

    start_s: float
    end_s: float = math.inf
    links: Sequence[tuple[int, int]] = ()
    groups: Sequence[Sequence[int]] = ()

    def __post_init__(self) -> None:
        check_bounds(self.start_s, self.end_s)
        if bool(self.links) == bool(self.groups):
            raise ParameterError("links", list(self.links), "give either links or groups")
        if not all(len(group) for group in self.groups):
            raise ParameterError("groups", list(self.groups), "holds a group of nobody; name the clients of each group")


class Cuts(Protocol):
    """Outages of links between clients."""

    def __bool__(self) -> bool:
        """Return True if a link is ever down."""

    def cause(self, link: int, start_s: float, end_s: float) -> str | None:
        """Return the cause by which a message over `link` during [start_s, end_s), or at one instant, is lost; None if it is
        not.
        """

    def quiet_until(self, time_s: float) -> float:
        """Return the time until which surely no link is down, if no round opens before; -inf: a link is down now."""

    def next_return_s(self, time_s: float) -> float:
        """Return the next time after `time_s` at which a link comes back; inf: never, or not before a round opens."""

    def returning(self, time_s: float) -> list[int]:
        """Return the links, ascending, for which one of these outages ends at exactly `time_s`."""

    def down_indefinitely(self, time_s: float) -> set[int]:
        """Return the links that are down at `time_s` without a known end before the next round opens."""

    def down_for_ever(self, time_s: float) -> set[int]:
        """Return the links that are down at `time_s` and stay so, unless another round opens: nothing planned restores them."""

    def state_dict(self) -> State:
        """Return the state of the parts of the schedule that are not known beforehand."""

    def load_state_dict(self, state: State) -> None:
        """Go on from a saved state."""


def links_down(graph: PeerGraph, outage: Outage) -> list[int]:
    """Return the links that an outage takes down; raises ValueError for an unknown link, or a client that is named twice."""
    if not outage.groups:
        return [link_between(graph, a, b) for a, b in outage.links]
    # Clients that no group names keep -1, and so form one further group.
    group_of = np.full(graph.clients, -1)
    for group, members in enumerate(outage.groups):
        for client in members:
            if not 0 <= client < graph.clients:
                reason = f"clients must lie in 0..{graph.clients - 1}"
                raise ParameterError("groups", client, reason, shown=f" has {client!r}")
            if group_of[client] >= 0:
                raise ParameterError("groups", client, "each client belongs to one group", shown=f" has {client!r} twice")
            group_of[client] = group
    is_between_groups = group_of[graph.source] != group_of[graph.target]
    return sorted(set(links_of_edges(graph)[is_between_groups].tolist()))


class Outages(StateFields):
    """Outages of the links of a graph. Raises ValueError for an unknown link, or a client named twice."""

    def __init__(self, *, graph: PeerGraph, outages: Sequence[Outage] = ()) -> None:
        # Merge the outages of each link first: a link comes back only when the last of those that overlap ends.
        intervals: dict[int, list[tuple[float, float]]] = {}
        for outage in outages:
            for link in links_down(graph, outage):
                intervals.setdefault(link, []).append((outage.start_s, outage.end_s))
        self._intervals = {link: Intervals(bounds) for link, bounds in intervals.items()}
        """Intervals during which each link is down."""
        returns: dict[float, list[int]] = {}
        for link, merged in self._intervals.items():
            for _, end_s in merged:
                returns.setdefault(end_s, []).append(link)
        self._returns = {time: sorted(links) for time, links in sorted(returns.items()) if time < math.inf}
        """Links that come back, by time, ascending."""
        self._return_times = list(self._returns)
        self._all = sorted(interval for merged in self._intervals.values() for interval in merged)
        """Intervals of all links, ascending."""

    def __bool__(self) -> bool:
        return bool(self._intervals)

    def cause(self, link: int, start_s: float, end_s: float) -> str | None:
        """Return "cut" if the link is down within [start_s, end_s), or at one instant; None otherwise."""
        intervals = self._intervals.get(link)
        return "cut" if intervals is not None and intervals.overlap(start_s, end_s) else None

    def quiet_until(self, time_s: float) -> float:
        """Return the next time at which any link goes down; -inf if one is down now."""
        # Every interval is looked at: the one that began last may be over while an earlier one still lasts.
        next_start_s = math.inf
        for start_s, end_s in self._all:
            if start_s <= time_s < end_s:
                return -math.inf
            if start_s > time_s:
                next_start_s = min(next_start_s, start_s)
        return next_start_s

    def next_return_s(self, time_s: float) -> float:
        """Return the next time after `time_s` at which a link comes back; inf: never."""
        place = bisect_right(self._return_times, time_s)
        return self._return_times[place] if place < len(self._return_times) else math.inf

    def returning(self, time_s: float) -> list[int]:
        """Return the links for which an outage ends at exactly `time_s`."""
        return self._returns.get(time_s, [])

    def down_indefinitely(self, time_s: float) -> set[int]:
        """Return the links that are down at `time_s` and never come back."""
        return {
            link
            for link, intervals in self._intervals.items()
            if intervals.overlap(time_s, time_s) and intervals.next_end(time_s) == math.inf
        }

    def down_for_ever(self, time_s: float) -> set[int]:
        """Return the same as `down_indefinitely`: all times are known."""
        return self.down_indefinitely(time_s)


class _Unforeseen:
    """Base of `Cuts` at unknown times: they can begin at any time, and no message waits for their ends."""

    def __bool__(self) -> bool:
        return True

    def quiet_until(self, time_s: float) -> float:
        """Return -inf: a link may go down at any time."""
        return -math.inf

    def next_return_s(self, time_s: float) -> float:
        """Return inf: no return is known beforehand."""
        return math.inf

    def returning(self, time_s: float) -> list[int]:
        """Return no link: returns are reported by callbacks."""
        return []


class ScriptedCuts(_Unforeseen, ScriptedOutages):
    """Links that a script cuts and heals."""

    def cause(self, link: int, start_s: float, end_s: float) -> str | None:
        """Return "cut" if the script has the link down within [start_s, end_s), or at one instant; None otherwise."""
        return "cut" if self.destroys(link, start_s, end_s) else None

    def down_indefinitely(self, time_s: float) -> set[int]:
        """Return all links that are cut now: the time of their return is unknown."""
        return self.down()


class Presence(Protocol):
    """Presence of clients, such as that of a pool."""

    def reachable(self) -> BoolArray:
        """Return True (K,) for clients that are present."""

    def ever_present(self) -> BoolArray:
        """Return True (K,) for clients that are present, or may come back."""


class Absences(_Unforeseen, StateFields):
    """Links of clients that are away when a message arrives; `presence` knows them.

    No message waits for the return of a client, which gets only messages that arrive later.
    """

    def __init__(self, *, graph: PeerGraph, presence: Presence) -> None:
        self._presence = presence
        self._ends: IntArray = link_ends(graph)
        """The two clients (links, 2) of each link."""
        self._pairs: list[list[int]] = self._ends.tolist()

    def cause(self, link: int, start_s: float, end_s: float) -> str | None:
        """Return "away" if a client at an end is away now; None otherwise."""
        reachable = self._presence.reachable()
        a, b = self._pairs[link]
        return None if reachable[a] and reachable[b] else "away"

    def down_indefinitely(self, time_s: float) -> set[int]:
        """Return the links of clients that are away now."""
        return self._links_without(self._presence.reachable())

    def down_for_ever(self, time_s: float) -> set[int]:
        """Return the links of clients that will never come back."""
        return self._links_without(self._presence.ever_present())

    def _links_without(self, clients: BoolArray) -> set[int]:
        """Return the links of which not both ends are among `clients` (K,)."""
        has_both_ends = clients[self._ends].all(axis=1)
        return set(np.flatnonzero(~has_both_ends).tolist())


class CutOff(StateFields):
    """Links of clients that outages of `clients` cut off: these clients neither send nor receive.

    The state of the outages is saved elsewhere.
    """

    def __init__(self, *, graph: PeerGraph, clients: ClientOutages) -> None:
        self._clients = clients
        ends = link_ends(graph)
        self._ends: list[tuple[int, int]] = [(a, b) for a, b in ends.tolist()]
        self._links_of: list[tuple[ClientOutage, list[int]]] = []
        """Outages that hit a link, each with the links that are down while it is on."""
        for outage in clients:
            has_end_hit = outage.hits[ends].any(axis=1)
            if has_end_hit.any():
                self._links_of.append((outage, np.flatnonzero(has_end_hit).tolist()))

    def __bool__(self) -> bool:
        return bool(self._clients)

    def cause(self, link: int, start_s: float, end_s: float) -> str | None:
        """Return the name of the outage that hits a client at either end within [start_s, end_s), or None."""
        a, b = self._ends[link]
        return self._clients.cause(a, start_s, end_s) or self._clients.cause(b, start_s, end_s)

    def quiet_until(self, time_s: float) -> float:
        """Return the next time at which an outage begins; -inf if one is on, or if times are unknown."""
        if not self._clients.foreseeable:
            return -math.inf
        return min((outage.quiet_until(time_s) for outage, _ in self._links_of), default=math.inf)

    def next_return_s(self, time_s: float) -> float:
        """Return the next end of an outage after `time_s`; inf if unknown."""
        return min((outage.next_return_s(time_s) for outage, _ in self._links_of), default=math.inf)

    def returning(self, time_s: float) -> list[int]:
        """Return the links that outages release at exactly `time_s`."""
        return [link for outage, links in self._links_of if outage.when.intervals.ends_at(time_s) for link in links]

    def down_indefinitely(self, time_s: float) -> set[int]:
        """Return the links of clients that are cut off without a known end."""
        return self._links(self._clients.down_indefinitely(time_s))

    def down_for_ever(self, time_s: float) -> set[int]:
        """Return the links of clients that stay cut off."""
        return self._links(self._clients.down_for_ever(time_s))

    def _links(self, clients: set[int]) -> set[int]:
        """Return the links with an end among `clients`."""
        return {link for link, ends in enumerate(self._ends) if not clients.isdisjoint(ends)}


class AllCuts(StateFields):
    """`Cuts` of several `kinds` together. If a message meets several, the cause of the first kind counts."""

    state_fields = ("_kinds",)

    def __init__(self, kinds: Sequence[Cuts]) -> None:
        self._kinds = [cuts for cuts in kinds if cuts]

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def cause(self, link: int, start_s: float, end_s: float) -> str | None:
        """Return the cause of the first kind that a message meets, or None."""
        for cuts in self._kinds:
            cause = cuts.cause(link, start_s, end_s)
            if cause is not None:
                return cause
        return None

    def quiet_until(self, time_s: float) -> float:
        """Return the time until which all kinds are quiet."""
        return min((cuts.quiet_until(time_s) for cuts in self._kinds), default=math.inf)

    def next_return_s(self, time_s: float) -> float:
        """Return the first return of any kind."""
        return min((cuts.next_return_s(time_s) for cuts in self._kinds), default=math.inf)

    def returning(self, time_s: float) -> list[int]:
        """Return the links that come back at exactly `time_s`, ascending, without links that another outage keeps down."""
        released = {link for cuts in self._kinds for link in cuts.returning(time_s)}
        return sorted(link for link in released if self.cause(link, time_s, time_s) is None)

    def down_indefinitely(self, time_s: float) -> set[int]:
        """Return the links that some kind keeps down without a known end."""
        return {link for cuts in self._kinds for link in cuts.down_indefinitely(time_s)}

    def down_for_ever(self, time_s: float) -> set[int]:
        """Return the links that some kind keeps down for ever."""
        return {link for cuts in self._kinds for link in cuts.down_for_ever(time_s)}

"""Links between clients that are down because an outage cuts one of the two clients off."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from netsim.core.state import StateFields
from netsim.network.transport.messages import link_ends

if TYPE_CHECKING:
    from netsim.network.outages import ClientOutage, ClientOutages
    from netsim.network.transport.link_outages import Cuts
    from netsim.network.transport.messages import PeerGraph


class CutOff(StateFields):
    """`Cuts` of `schedule`, and of outages of `clients`: a client that is cut off neither sends nor receives."""

    state_fields = ("_schedule",)

    def __init__(self, *, graph: PeerGraph, schedule: Cuts, clients: ClientOutages) -> None:
        self._schedule, self._clients = schedule, clients
        ends = link_ends(graph)
        self._ends: list[tuple[int, int]] = [(a, b) for a, b in ends.tolist()]
        self._links_of: list[tuple[ClientOutage, list[int]]] = [
            (outage, np.flatnonzero(outage.hits[ends].any(axis=1)).tolist()) for outage in clients
        ]
        """Each outage, and the links that are down while it is on."""

    def __bool__(self) -> bool:
        return True

    def cause(self, link: int, start_s: float, end_s: float) -> str | None:
        """Return "cut" or the outage's name if the link is down within [start_s, end_s); None otherwise."""
        cut = self._schedule.cause(link, start_s, end_s)
        if cut is not None:
            return cut
        a, b = self._ends[link]
        return self._clients.cause(a, start_s, end_s) or self._clients.cause(b, start_s, end_s)

    def quiet_until(self, time_s: float) -> float:
        if not self._clients.foreseeable:
            return -math.inf
        quiet_s = self._schedule.quiet_until(time_s)
        return min((quiet_s, *(outage.quiet_until(time_s) for outage, links in self._links_of if links)))

    def next_return_s(self, time_s: float) -> float:
        following = self._schedule.next_return_s(time_s)
        return min((following, *(outage.next_return_s(time_s) for outage, links in self._links_of if links)))

    def returning(self, time_s: float) -> list[int]:
        back = set(self._schedule.returning(time_s))
        for outage, links in self._links_of:
            if outage.when.intervals.ends_at(time_s):
                back.update(links)
        return sorted(link for link in back if self.cause(link, time_s, time_s) is None)

    def down_indefinitely(self, time_s: float) -> set[int]:
        clients = self._clients.down_indefinitely(time_s)
        return self._schedule.down_indefinitely(time_s) | {
            link for link, ends in enumerate(self._ends) if not clients.isdisjoint(ends)
        }

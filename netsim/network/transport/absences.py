"""Links between clients that carry nothing because the client at an end is away."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from netsim.core.state import StateFields
from netsim.network.transport.messages import link_ends

if TYPE_CHECKING:
    from netsim.core.protocols import BoolArray
    from netsim.network.transport.link_outages import Cuts
    from netsim.network.transport.messages import PeerGraph


class Absences(StateFields):
    """`Cuts` of `schedule`, and of clients that are away as a message would arrive.

    `here` returns (K,) True for clients that are present.
    """

    state_fields = ("_schedule",)

    def __init__(self, *, graph: PeerGraph, schedule: Cuts, here: Callable[[], BoolArray]) -> None:
        self._schedule, self._here = schedule, here
        self._ends: list[list[int]] = link_ends(graph).tolist()

    def __bool__(self) -> bool:
        return True

    def cause(self, link: int, start_s: float, end_s: float) -> str | None:
        """Return the outage's cause, or "away" if a client at an end is away now; None otherwise."""
        cut = self._schedule.cause(link, start_s, end_s)
        if cut is not None:
            return cut
        here = self._here()
        a, b = self._ends[link]
        return None if here[a] and here[b] else "away"

    def quiet_until(self, time_s: float) -> float:
        return -math.inf

    def next_return_s(self, time_s: float) -> float:
        return self._schedule.next_return_s(time_s)

    def returning(self, time_s: float) -> list[int]:
        return self._schedule.returning(time_s)

    def down_indefinitely(self, time_s: float) -> set[int]:
        return self._schedule.down_indefinitely(time_s)

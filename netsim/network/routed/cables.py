"""Cables of a network with their laws, and the links of each cable: one for each direction, or one shared by both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from netsim.core.protocols import BandwidthLaw, BandwidthTimeline, DelayLaw, IntArray, Timeline
    from netsim.network.draws import Survivals

Duplex = Literal["full-duplex", "half-duplex", "fat-pipe"]
_NEVER = float("inf")
_CABLE: IntArray = np.zeros(1, np.int64)
"""Entities of a cable's laws: each has exactly one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cable:
    """A cable between two nodes, by their names.

    `delay_s`: propagation delay. `bandwidth`: bytes/s over time; None if no bytes cross the cable. `wait`: seconds beside the
    propagation delay, drawn for each transfer. `survivals`: the transfers that get through.
    """

    name: str
    a: str
    b: str
    delay_s: float = 0.0
    duplex: Duplex = "full-duplex"
    bandwidth: BandwidthTimeline | None = None
    wait: Timeline[DelayLaw] | None = None
    survivals: Survivals | None = None

    def link(self, target: str) -> str:
        """Return the name of the link that leads to the node `target`."""
        return self.name if self.duplex == "half-duplex" else f"{self.name}>{target}"

    @property
    def links(self) -> list[str]:
        """Names of the links that flows use."""
        return list(dict.fromkeys([self.link(self.a), self.link(self.b)]))


class Capacity:
    """Bandwidth of a cable over time."""

    __slots__ = ("_law", "_timeline", "_until_s", "bytes_per_s", "next_s", "stops_s")

    def __init__(self, timeline: Timeline[BandwidthLaw]) -> None:
        self._timeline = timeline
        self._law: BandwidthLaw | None = None
        """Law in force as of the last `update`."""
        self._until_s = -_NEVER
        """Time until which the law is in force."""
        self.bytes_per_s = 0.0
        """Bandwidth as of the last `update`."""
        self.next_s = -_NEVER
        """Time of the next known change; inf if there is none."""
        self.stops_s = _NEVER
        """Time from which on the cable never carries anything again; inf: never."""

    def update(self, round: int, now_s: float) -> bool:
        """Update the bandwidth to that in force in `round` at `now_s`; return True if it has changed."""
        law, self._until_s = self._timeline.at(round, now_s)
        # Ask for the end of a law once, not at every change of the bandwidth: it may need a search over a trace.
        if law is not self._law:
            self._law = law
            self.stops_s = float(law.stops_s(_CABLE)[0])
        old_bytes_per_s = self.bytes_per_s
        self.bytes_per_s = float(law.rate(now_s, _CABLE)[0])
        self.next_s = min(self._until_s, float(law.next_change_s(now_s, _CABLE)[0]))
        return old_bytes_per_s != self.bytes_per_s

    def rate_at(self, round: int, time_s: float) -> tuple[float, float]:
        """Return (bandwidth at `time_s` in bytes/s, time of the next change) under the laws in force in `round`."""
        law, until_s = self._timeline.at(round, time_s)
        bytes_per_s = float(law.rate(time_s, _CABLE)[0])
        next_change_s = float(law.next_change_s(time_s, _CABLE)[0])
        return bytes_per_s, min(until_s, next_change_s)

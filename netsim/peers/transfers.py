"""Messages between clients over a bandwidth that changes in time: when each comes to its end."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from netsim.core.protocols import BandwidthLaw, FloatArray, Timeline
    from netsim.peers.messages import PeerGraph


class Transfers:
    """A message has all of its sender's bandwidth: it takes its delay, its bytes, its flight.

    The `law` in force as it is sent is known to its end.
    """

    def __init__(self, *, graph: PeerGraph, law: Timeline[BandwidthLaw], propagation_s: FloatArray) -> None:
        self._law, self._source, self._propagation_s = law, graph.source, propagation_s
        self._seconds: FloatArray = np.zeros(graph.edges)

    def ends(
        self, slot: int, now_s: float, edges: list[int], size_bytes: int, delays: Iterable[float], goods: Iterable[bool]
    ) -> list[tuple[float, bool | None]]:
        """When messages sent now over `edges` (n,) end, and whether they arrive (None: no, the bandwidth ended under them)."""
        law, _ = self._law.at(slot, now_s)
        senders, count = self._source[edges], len(edges)
        starts_s = now_s + np.fromiter(islice(delays, count), np.float64, count)
        ends_s = law.ends_s(starts_s, np.full(count, float(size_bytes)), senders)
        stopped = ends_s == math.inf
        ends_s = np.where(stopped, np.maximum(law.stops_s(senders), starts_s), ends_s)
        np.add.at(self._seconds, edges, ends_s - starts_s)
        dues_s = np.where(stopped, ends_s, ends_s + self._propagation_s[edges])
        arrive = [None if stops else good for stops, good in zip(stopped.tolist(), goods, strict=False)]
        return list(zip(dues_s.tolist(), arrive, strict=True))

    def seconds(self) -> FloatArray:
        """(E,) how long bytes have taken over each edge since this was last asked for."""
        seconds, self._seconds = self._seconds, np.zeros(len(self._seconds))
        return seconds

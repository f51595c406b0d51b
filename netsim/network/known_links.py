"""Clients' own links whose bandwidth over time is known beforehand: the time of the bytes is part of the phase's duration.

How long a message takes is settled as its phase begins, like any other duration, and nobody needs to be carried; it is worked out
for all clients of a round in one call where it can be foreseen when they will begin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from netsim.network.carriers import Carrier, NoCarrier, check_sizes

if TYPE_CHECKING:
    from netsim.core.protocols import BandwidthLaw, FloatArray, IntArray, State, Timeline
    from netsim.network.draws import Draw, Durations, Phases


class KnownLinks(NoCarrier):
    """Own links whose bandwidth follows the `law` in force as a message is drawn, to its end; it ends every message.

    `size_bytes`: of the messages, a number or one a client (K,). Raises ValueError for a size that is not > 0.
    """

    steady = False

    def __init__(
        self, *, clients: int, law: Timeline[BandwidthLaw], size_bytes: float | FloatArray | IntArray
    ) -> None:
        self.law = law
        self.sizes = check_sizes(size_bytes, clients)

    def resize(self, size_bytes: float | None) -> Carrier:
        sizes = self.sizes if size_bytes is None else np.full(len(self.sizes), size_bytes)
        return KnownLinks(clients=len(sizes), law=self.law, size_bytes=sizes)

    def add_times(self, delays: Durations) -> Phases:
        return Transfers(delays=delays, links=self)

    def alone_s(self, round: int, start_s: FloatArray, clients: IntArray) -> FloatArray:
        law, _ = self.law.at(round, float(start_s.min(initial=np.inf)))
        return law.ends_s(start_s, self.sizes[clients], clients) - start_s


class Transfers:
    """Durations of a delay, and then of the bytes."""

    def __init__(self, *, delays: Durations, links: KnownLinks) -> None:
        self._delays = delays
        self._links = links

    def draw(self, round: int, time_s: float, clients: IntArray) -> Draw[float]:
        return self._drawn(round, time_s, clients, self._delays.draw(round, time_s, clients))

    def redraw(self, round: int, time_s: float, clients: IntArray, state: State) -> Draw[float]:
        return self._drawn(round, time_s, clients, self._delays.redraw(round, time_s, clients, state))

    def _drawn(self, round: int, time_s: float, clients: IntArray, delays: Draw[float]) -> Draw[float]:
        law, _ = self._links.law.at(round, time_s)
        return TransferDraw(law, self._links.sizes[clients], clients, delays, time_s)

    def delays_s(self, round: int, time_s: float, clients: IntArray) -> list[float]:
        return self._delays.delays_s(round, time_s, clients)


class TransferDraw:
    """The transfers of the clients of a round: a delay that is drawn, and the time of the bytes after it."""

    certain = False
    __slots__ = ("_begins_s", "_clients", "_delays", "_drawn_s", "_law", "_sizes", "_together")

    def __init__(
        self, law: BandwidthLaw, sizes: FloatArray, clients: IntArray, delays: Draw[float], drawn_s: float
    ) -> None:
        self._law = law
        self._sizes = sizes
        self._clients = clients
        self._delays = delays
        self._drawn_s = drawn_s
        self._begins_s = np.nan
        self._together: list[tuple[float, float]] = []
        """Of each client the delay and the duration of a transfer that begins at `_begins_s`."""

    def at(self, place: int, time_s: float) -> float:
        """Return the seconds of a transfer of the client at `place` that begins now."""
        # Transfers often begin together: those of the first instant are worked out in one call.
        if not self._together:
            delays_s = self._delays.values_at(time_s, len(self._clients))
            durations_s = self._durations(np.full(len(self._clients), time_s), np.array(delays_s))
            self._begins_s, self._together = time_s, list(zip(delays_s, durations_s.tolist(), strict=True))
        delay_s = self._delays.at(place, time_s)
        if time_s == self._begins_s and delay_s == self._together[place][0]:
            return self._together[place][1]
        return float(self._durations(np.array([time_s]), np.array([delay_s]), slice(place, place + 1))[0])

    def after(self, place: int, time_s: float, first_s: float) -> float:
        # The delay's law is that in force at the beginning, as of every phase; the bytes pass at the bandwidth of their own time.
        waits_s = np.array([first_s + self._delays.at(place, time_s)])
        return float(self._durations(np.array([time_s]), waits_s, slice(place, place + 1))[0])

    def values_at(self, time_s: float, count: int) -> list[float]:
        """(n,) the durations of phases that all begin now."""
        durations_s: list[float] = self._durations(
            np.full(count, time_s), np.array(self._delays.values_at(time_s, count))
        ).tolist()
        return durations_s

    def each(self, times_s: FloatArray) -> NDArray[Any] | None:
        """(n,) the durations of phases that begin at `times_s` (n,)."""
        delays_s = self._delays.each(times_s)
        if delays_s is None:
            return None
        # Whatever becomes of those that never begin.
        starts_s = np.where(np.isnan(times_s), self._drawn_s, times_s)
        return self._durations(starts_s, delays_s)

    def expire(self) -> bool:
        """Return False: the delays are drawn again, and durations with them."""
        return False

    def _durations(self, starts_s: FloatArray, delays_s: FloatArray, places: slice = slice(None)) -> FloatArray:
        bytes_s = starts_s + delays_s
        return self._law.ends_s(bytes_s, self._sizes[places], self._clients[places]) - starts_s

    def state_dict(self) -> State:
        """The delays as drawn; all else follows from them."""
        return self._delays.state_dict()

"""Clients' own links whose bandwidth over time is known beforehand: the time of the bytes is part of the phase's duration.

The end of a message is computed as its phase begins, without a carrier and its events. One call computes the messages of a round
that begin together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from netsim.network.bandwidth.arrival import arrival_s
from netsim.network.bandwidth.carriers import Carrier, NoCarrier, check_sizes

if TYPE_CHECKING:
    from netsim.core.protocols import BandwidthLaw, FloatArray, IntArray, State, Timeline
    from netsim.network.draws import Certain, Durations, Ends, Phases, RoundDraw

    Delays = RoundDraw[float] | Certain[float]


class KnownLinks(NoCarrier):
    """Own links whose bandwidth over time follows `law`: the law in force when a message is drawn, up to the end of the message.

    Under it every message must come to an end. `size_bytes`: bytes of a message, a number or one for each client (K,). Raises
    ValueError for a size that is not > 0.
    """

    steady = False

    def __init__(self, *, clients: int, law: Timeline[BandwidthLaw], size_bytes: float | FloatArray | IntArray) -> None:
        self.law = law
        self.sizes = check_sizes(size_bytes, clients)

    def resize(self, size_bytes: float | None) -> Carrier:
        """Return links of the same bandwidth for messages of `size_bytes`; None: of the present sizes."""
        sizes = self.sizes if size_bytes is None else np.full(len(self.sizes), size_bytes)
        return KnownLinks(clients=len(sizes), law=self.law, size_bytes=sizes)

    def add_times(self, delays: Durations) -> Phases:
        """Return phases of a delay, and then of the bytes at the bandwidth of the time."""
        return DelaysThenBytes(delays, self._ends_after)

    def _ends_after(self, round: int, time_s: float, clients: IntArray, delays: Delays) -> Ends:
        """Return the ends of messages of `clients` (n,) whose `delays` are drawn, under the law in force at `time_s`."""
        law, _ = self.law.at(round, time_s)
        return TransferDraw(law, self.sizes[clients], clients, delays)

    def alone_s(self, round: int, start_s: FloatArray, clients: IntArray) -> FloatArray:
        """Return the seconds (n,) that messages which begin at `start_s` (n,) take under the law at the first of these times."""
        law, _ = self.law.at(round, float(start_s.min(initial=np.inf)))
        return law.ends_s(start_s, self.sizes[clients], clients) - start_s


class FixedLinks(NoCarrier):
    """Own links with constant bandwidths `bytes_per_s` (K,): the time of the bytes is a constant for each client.

    `size_bytes`: bytes of a message, a number or one for each client (K,). Raises ValueError for a size that is not > 0.
    """

    def __init__(self, *, clients: int, bytes_per_s: FloatArray, size_bytes: float | FloatArray | IntArray) -> None:
        self._bytes_per_s = bytes_per_s
        self._bytes_s: FloatArray = check_sizes(size_bytes, clients) / bytes_per_s
        """Seconds (K,) of the bytes of each client's message."""

    def resize(self, size_bytes: float | None) -> Carrier:
        """Return links of the same bandwidth for messages of `size_bytes`; None: these links."""
        if size_bytes is None:
            return self
        return FixedLinks(clients=len(self._bytes_s), bytes_per_s=self._bytes_per_s, size_bytes=size_bytes)

    def add_times(self, delays: Durations) -> Phases:
        """Return phases of a delay, and then of a constant time for the bytes."""
        return DelaysThenBytes(delays, lambda round, time_s, clients, drawn: FixedDraw(drawn, self._bytes_s[clients]))

    def alone_s(self, round: int, start_s: FloatArray, clients: IntArray) -> FloatArray:
        """Return the seconds (n,) that the bytes of each client's message take."""
        return self._bytes_s[clients]


class DelaysThenBytes:
    """Phases (`netsim.network.draws`) of a delay, and then the bytes.

    `ends_after`: returns the ends, given a round, a time, clients (n,) and their drawn delays.
    """

    def __init__(self, delays: Durations, ends_after: Callable[[int, float, IntArray, Delays], Ends]) -> None:
        self._delays = delays
        self._ends_after = ends_after

    def draw(self, round: int, time_s: float, clients: IntArray, tries: int = 0) -> Ends:
        """Draw the delays of `clients` (n,) in `round`; return the ends of their bytes."""
        return self._ends_after(round, time_s, clients, self._delays.draw(round, time_s, clients, tries))

    def redraw(self, round: int, time_s: float, clients: IntArray, state: State) -> Ends:
        """Return the ends that `state` was saved from."""
        return self._ends_after(round, time_s, clients, self._delays.redraw(round, time_s, clients, state))

    def delays_s(self, round: int, time_s: float, clients: IntArray) -> list[float]:
        """Return the delays (n,) alone, seconds."""
        return self._delays.delays_s(round, time_s, clients)


class FixedDraw:
    """Transfers of the clients of a round: a drawn delay, and then `bytes_s` (n,) seconds for the bytes."""

    certain = False
    __slots__ = ("_bytes_s", "_delays", "_seconds")

    def __init__(self, delays: Delays, bytes_s: FloatArray) -> None:
        self._delays = delays
        self._bytes_s = bytes_s
        self._seconds: list[float] = bytes_s.tolist()
        """The same as `_bytes_s`, as a list: single entries are read faster."""

    def ends_at(self, place: int, time_s: float, start_s: float | None = None) -> float:
        """Return the end of the bytes of the client at `place`."""
        begun_s = time_s if start_s is None else start_s
        return arrival_s(begun_s, self._delays.at(place, time_s), self._seconds[place])

    def ends_of(self, starts_s: FloatArray) -> FloatArray | None:
        """Return the ends (n,) of transfers that begin at `starts_s` (n,), as `ends_at` does for one; None if a delay is not
        known.
        """
        delays_s = self._delays.each_at(starts_s)
        return None if delays_s is None else arrival_s(starts_s, delays_s, self._bytes_s)

    def expire(self) -> bool:
        """Pass on that the law of the delays was replaced; the bandwidth is constant."""
        return self._delays.expire()

    def state_dict(self) -> State:
        """Return the drawn delays."""
        return self._delays.state_dict()


class TransferDraw:
    """Transfers of the clients of a round: a drawn delay, and then `sizes` (n,) bytes at the bandwidth of `law`, which varies."""

    certain = False
    __slots__ = ("_clients", "_delays", "_law", "_sizes", "_together")

    def __init__(self, law: BandwidthLaw, sizes: FloatArray, clients: IntArray, delays: Delays) -> None:
        self._law = law
        self._sizes = sizes
        self._clients = clients
        self._delays = delays
        self._together: list[tuple[float, float]] = []
        """End of the delay and end of the bytes, by client, as last computed."""

    def ends_at(self, place: int, time_s: float, start_s: float | None = None) -> float:
        """Return the end of the bytes of the client at `place`; `ends_of` does the same for all."""
        # Fast path: transfers often begin together, and most of the cost of the law is that of the call. So the first call
        # computes all ends, as if all transfers began now; one that begins later is computed by itself, below.
        if not self._together:
            delay_ends_s = time_s + np.array(self._delays.values_at(time_s, len(self._clients)))
            ends_s = self._law.ends_s(delay_ends_s, self._sizes, self._clients)
            self._together = list(zip(delay_ends_s.tolist(), ends_s.tolist(), strict=True))
        # The delay follows the law in force at the beginning, as in every phase; the bytes follow the bandwidth of the time at
        # which they pass.
        delay_end_s = self._delays.ends_at(place, time_s, start_s)
        known_delay_end_s, known_end_s = self._together[place]
        if delay_end_s == known_delay_end_s:
            return known_end_s
        entry = slice(place, place + 1)
        return float(self._law.ends_s(np.array([delay_end_s]), self._sizes[entry], self._clients[entry])[0])

    def ends_of(self, starts_s: FloatArray) -> FloatArray | None:
        """Return the ends (n,) of transfers that begin at `starts_s` (n,), NaN for NaN; None if a delay is not known."""
        delay_ends_s = self._delays.ends_of(starts_s)
        if delay_ends_s is None:
            return None
        # NaN: the client does not begin this phase. The law gets 0 in its place.
        never = np.isnan(delay_ends_s)
        ends_s = self._law.ends_s(np.where(never, 0.0, delay_ends_s), self._sizes, self._clients)
        return np.where(never, np.nan, ends_s)

    def expire(self) -> bool:
        """Return False: the delays must be drawn again, and the ends with them."""
        return False

    def state_dict(self) -> State:
        """Return the drawn delays, from which the rest follows."""
        return self._delays.state_dict()

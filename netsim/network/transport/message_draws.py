"""The draws of messages between clients: delay and survival, addressed by (protocol, slot, key, attempt, edge)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from netsim.core.errors import ParameterError
from netsim.network.bandwidth.arrival import arrival_s
from netsim.network.draws import Durations
from netsim.network.transport.messages import ALL_GOOD

if TYPE_CHECKING:
    from netsim.core.protocols import BoolArray, FloatArray, IntArray
    from netsim.core.streams import Streams
    from netsim.network.transport.transport import Transport

_EVER = math.inf
_ALL = slice(None)
SLOT_BITS, KEY_BITS, _ATTEMPT_BITS = 24, 24, 16  # bits of the lower word of the address of a draw
_ATTEMPT_MASK = (1 << _ATTEMPT_BITS) - 1
_CACHED_BYTES = 1 << 27  # memory for kept draws; the oldest are forgotten first, and drawn again with the same values
# Drawing all edges of an address costs about 25 ns an edge. Reading a single edge costs 100 times that, and a call as much as
# two reads. Addresses read twice are usually read often, so a read counts four times.
_READ_COST, _CALL_READS = 400, 2
_NO_DELAYS = repeat(0.0)
_BYTES_AN_EDGE = 9  # of kept draws: delay and survival of one edge at one address


class EdgeDraws:
    """Draws of one protocol: delay and survival of a message at (slot, key, attempt, edge).

    All edges of an address are drawn in one call. Raises ValueError for a graph with more clients than a key can number.
    """

    def __init__(self, links: Transport, name: str, streams: Streams) -> None:
        self._places = links.graph.address
        """Entity (E,) of each edge at an address."""
        if links.graph.clients >= 1 << KEY_BITS:
            shown = f" has {links.graph.clients} clients"
            raise ParameterError("graph", links.graph, f"must be fewer than {1 << KEY_BITS}", shown=shown)
        self.links = links
        self.name = name
        self.label = (name, 0)
        """Name of the protocol, and the slot."""
        self._slot = 0
        edges = links.graph.edges
        self._delays = Durations(clients=links.graph.clients, law=links.delay, draws=streams[f"{name}.delay"], places=edges)
        self._survivals = links.survivals.share_states(streams[f"{name}.loss"], places=edges)
        self._whole_draws: dict[int, tuple[FloatArray | None, bytes | None]] = {}
        """Delays and survivals of all edges, by address, the oldest first."""
        self._read_costs: dict[int, int] = {}
        """Cost of the single reads so far by address, in reads of one edge."""
        self._until_s = -_EVER
        """Time until which the two flags below hold."""
        self._no_delay = False
        """True if no message takes a drawn delay under the law in force."""
        self._no_loss = False
        """True if no message is lost by its channel under the law in force."""

    def open_slot(self, slot: int, time_s: float) -> None:
        """Begin the draws of `slot`, and forget those of the last one. Raises ParameterError for a slot out of range."""
        if not 0 <= slot < 1 << SLOT_BITS:
            raise ParameterError("slot", slot, f"must lie in 0..{(1 << SLOT_BITS) - 1}")
        self.label, self._slot = (self.name, slot), slot
        self._renew(time_s)

    def renew(self) -> None:
        """Evaluate the laws again, at the same draws, before the next message."""
        self._until_s = -_EVER

    def _renew(self, time_s: float) -> None:
        """Forget all draws, and note if the laws in force can take time or lose a message."""
        self._whole_draws.clear()
        self._read_costs.clear()
        no_delay, delay_until_s = self._delays.constant_value(self._slot, time_s)
        no_loss, channel_until_s = self._survivals.constant_value(self._slot, time_s)
        self._until_s = min(delay_until_s, channel_until_s)
        self._no_delay, self._no_loss = no_delay is not None, no_loss is not None

    def lossless_until(self, time_s: float) -> float:
        """Return the time until which surely no message of this slot is lost and no law changes; -inf: one can be lost now."""
        if time_s >= self._until_s:
            self._renew(time_s)
        return self._until_s if self._no_loss else -_EVER

    def latency_s(self, key: int, size_bytes: int) -> FloatArray:
        """Return the seconds that a message of `key` takes over each edge, in parts (parts, E): delay, bytes and flight, without
        a delay that takes no time.
        """
        return np.array([part for part in self._parts_s(key, size_bytes) if part is not None])

    def arrivals_s(self, sent_s: FloatArray, key: int, size_bytes: int) -> FloatArray:
        """Return the arrivals (E,) of the first sendings of `key` over each edge at `sent_s` (E,), under the laws in force."""
        delays_s, bytes_s, flights_s = self._parts_s(key, size_bytes)
        if delays_s is None:
            delays_s = np.zeros(1)
        return arrival_s(sent_s, delays_s, bytes_s, flights_s)

    def _parts_s(self, key: int, size_bytes: int) -> tuple[FloatArray | None, FloatArray, FloatArray]:
        """Return the delays (None: they take no time), bytes and flights of messages over each edge, seconds (E,) each."""
        links = self.links
        delays_s = None
        if not self._no_delay:
            delays_s, _ = self._draw(self._address(key, 0), _ALL, links.clock.now)
        return delays_s, size_bytes / links.bandwidth_bytes_per_s, links.propagation_s

    @property
    def settled(self) -> bool:
        """True if delays and losses depend on addressed numbers alone: no law ever changes or has states."""
        return self.links.delay.fixed and self._survivals.settled

    def foresee(
        self, edges: IntArray, sent_s: FloatArray, key: int, attempt: int, sizes_bytes: IntArray
    ) -> tuple[FloatArray, BoolArray]:
        """Return the arrivals (n,) and survivals (n,) of messages of `sizes_bytes` (n,), sent over `edges` (n,) at `sent_s` (n,).

        Array form of `draws_of` and `Transport.send`, if the draws are `settled`.
        """
        links = self.links
        delays_s, goods = self._draw(self._address(key, attempt), edges, links.clock.now)
        if delays_s is None:
            delays_s = np.zeros(1)
        if goods is None:
            goods = np.ones(len(edges), np.bool_)
        bytes_s = sizes_bytes / links.bandwidth_bytes_per_s[edges]
        dues_s = arrival_s(sent_s, delays_s, bytes_s, links.propagation_s[edges])
        return dues_s, goods

    def draws_of(self, edges: list[int], key: int, attempt: int, time_s: float) -> tuple[Iterable[float], Iterable[bool]]:
        """Return (delays in seconds without the flight, survivals) of messages sent over `edges` at `time_s`, in their order.

        Both may be longer than `edges`, even endless. A few edges of an address are drawn one by one; where many are read, all
        edges are drawn in one call and kept.
        """
        if time_s >= self._until_s:
            self._renew(time_s)
        if self._no_delay and self._no_loss:
            return _NO_DELAYS, ALL_GOOD
        address = self._address(key, attempt)
        whole_draw = self._whole_draws.get(address)
        if whole_draw is None:
            # Every value is addressed, so both ways give the same numbers; only their cost differs.
            cost = self._read_costs[address] = self._read_costs.get(address, 0) + len(edges) + _CALL_READS
            # Read single edges until drawing all edges seems cheaper.
            if cost * _READ_COST <= self.links.graph.edges:
                delays, goods = self._draw(address, edges, time_s)
                return _NO_DELAYS if delays is None else delays.tolist(), ALL_GOOD if goods is None else goods.tolist()
            # Forget the oldest draws until there is memory for this one.
            while len(self._whole_draws) * self.links.graph.edges * _BYTES_AN_EDGE > _CACHED_BYTES:
                del self._whole_draws[next(iter(self._whole_draws))]
            delays, goods = self._draw(address, _ALL, time_s)
            whole_draw = self._whole_draws[address] = delays, None if goods is None else goods.tobytes()
        delays, good_bytes = whole_draw
        return (
            _NO_DELAYS if delays is None else [delays.item(edge) for edge in edges],
            ALL_GOOD if good_bytes is None else [good_bytes[edge] == 1 for edge in edges],
        )

    def _draw(
        self, address: int, edges: list[int] | IntArray | slice, time_s: float
    ) -> tuple[FloatArray | None, BoolArray | None]:
        """Return the delays (n,) and survivals (n,) of messages over `edges`; None in place of delays that are all 0, or
        survivals that are all True.
        """
        slot, places, senders = self._slot, self._places[edges], self.links.graph.source[edges]
        delays, goods = None, None
        if not self._no_delay:
            delays, _ = self._delays.evaluate(slot, time_s, senders, self._delays.uniforms(address, places))
        if not self._no_loss:
            survivals, _ = self._survivals.evaluate(slot, time_s, senders, self._survivals.uniforms(address, places))
            goods = np.asarray(survivals, np.bool_)
        return delays, goods

    def _address(self, key: int, attempt: int) -> int:
        """Return the address of the draws of `key` at an `attempt` (from 0) in the present slot, different for each of them."""
        # A link that comes back often may cause more attempts than the lower word can hold; the rest goes to the upper word.
        high, low = attempt >> _ATTEMPT_BITS, attempt & _ATTEMPT_MASK
        return high << 64 | ((self._slot << KEY_BITS) | key) << _ATTEMPT_BITS | low


class StarDraws(EdgeDraws):
    """Draws of messages from each client to the server: one for each client in a slot, sent at most `attempts` times."""

    def __init__(self, links: Transport, name: str, streams: Streams, attempts: int) -> None:
        super().__init__(links, name, streams)
        self._places = links.graph.source
        self._attempts = attempts

    def _address(self, key: int, attempt: int) -> int:
        """Return the address of the draws at an `attempt` in the present slot. There is one message, so `key` does not matter."""
        return self._slot * self._attempts + attempt

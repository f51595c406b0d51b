"""The draws of messages between clients: delay and survival, addressed by (protocol, slot, key, attempt, edge)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from netsim.core.errors import ParameterError
from netsim.network.draws import Spared, loses_nothing, takes_no_time
from netsim.network.transport.messages import ALL_GOOD

if TYPE_CHECKING:
    from netsim.core.protocols import ChannelLaw, DelayLaw, FloatArray
    from netsim.core.streams import Stream, Streams
    from netsim.network.transport.transport import Transport

_EVER = math.inf
SLOT_BITS, KEY_BITS, _ATTEMPT_BITS = 24, 24, 16  # of the lower word of the address of a draw
_ATTEMPT_MASK = (1 << _ATTEMPT_BITS) - 1
_CACHED_BYTES = 1 << 27  # of the draws of a slot; what is forgotten, the oldest first, is drawn again and is the same
# Of an address, all edges are drawn at about 25 ns an edge; one edge is read at its place in 100 times that, and a call takes as
# much as two reads. What was asked for twice is asked for often: a read counts four times.
_READ_COST, _CALL_READS = 400, 2
_NO_DELAYS = repeat(0.0)
_BYTES = 9  # of one edge at one address: its delay, and whether the message survives


class EdgeDraws:
    """The draws of one protocol: delay and survival of a message at (slot, key, attempt, edge), all edges in one call.

    Raises ValueError where the graph has more clients than a key has numbers.
    """

    def __init__(self, links: Transport, name: str, streams: Streams) -> None:
        self._places = links.graph.address
        """(E,) the entity of each edge at an address."""
        if links.graph.clients >= 1 << KEY_BITS:
            shown = f" has {links.graph.clients} clients"
            raise ParameterError("graph", links.graph, f"must be fewer than {1 << KEY_BITS}", shown=shown)
        self.links = links
        self.name = name
        self.label = (name, 0)
        """The protocol's name, and the slot."""
        self._delay_stream: Stream = streams[f"{name}.delay"]
        self._loss_stream: Stream = streams[f"{name}.loss"]
        self._drawn: dict[int, tuple[FloatArray | None, bytes | None]] = {}
        """Delays and survivals of all edges, by address."""
        self._reads: dict[int, int] = {}
        """Cost of the single reads at each address so far, in edges of a whole evaluation."""
        self._until_s = -_EVER
        self._spared_delay: Spared[DelayLaw] = Spared(takes_no_time, links.graph.clients)
        self._spared_loss: Spared[ChannelLaw] = Spared(loses_nothing, links.graph.clients)
        self._no_delay = False
        self._no_loss = False

    def open_slot(self, slot: int, time_s: float) -> None:
        """Forget the draws of the last slot."""
        if not 0 <= slot < 1 << SLOT_BITS:
            raise ParameterError("slot", slot, f"must lie in 0..{(1 << SLOT_BITS) - 1}")
        self.label = (self.name, slot)
        self._renew(time_s)

    def renew(self) -> None:
        """Evaluate the laws again, at the same draws, before the next message."""
        self._until_s = -_EVER

    def _renew(self, time_s: float) -> None:
        links, slot = self.links, self.label[1]
        self._drawn.clear()
        self._reads.clear()
        delay, delay_until_s = links.delay.at(slot, time_s)
        channel, channel_until_s = links.channel.at(slot, time_s)
        self._until_s = min(delay_until_s, channel_until_s)
        self._no_delay = self._spared_delay.under(delay)
        self._no_loss = self._spared_loss.under(channel)

    def lossless_until(self, time_s: float) -> float:
        """Until when no message of this slot can be lost and no law changes; -inf: one can be lost now."""
        if time_s >= self._until_s:
            self._renew(time_s)
        return self._until_s if self._no_loss else -_EVER

    def latency_s(self, key: int, size_bytes: int) -> FloatArray:
        """Return the delay, the bytes and the flight of the first sendings of `key` over each edge, seconds (parts, E).

        Under the laws in force.
        """
        links = self.links
        parts = [size_bytes / links.bandwidth_bytes_per_s, links.propagation_s]
        return np.array(parts if self._no_delay else [self._draw_delays(self._index(key, 0)), *parts])

    def draws_of(self, edges: list[int], key: int, attempt: int, time_s: float) -> tuple[Iterable[float], Iterable[bool]]:
        """Delays in seconds, without the flight, and survival of messages sent over `edges` at `time_s`, one each, at least."""
        if time_s >= self._until_s:
            self._renew(time_s)
        if self._no_delay and self._no_loss:
            return _NO_DELAYS, ALL_GOOD
        index = self._index(key, attempt)
        drawn = self._drawn.get(index)
        if drawn is None:
            cost = self._reads[index] = self._reads.get(index, 0) + len(edges) + _CALL_READS
            # Single reads, until drawing all edges looks cheaper.
            if cost * _READ_COST <= self.links.graph.edges:
                return self._read(index, edges, time_s)
            drawn = self._draw_all(index, time_s)
        delays, goods = drawn
        return (
            _NO_DELAYS if delays is None else [delays.item(edge) for edge in edges],
            ALL_GOOD if goods is None else [goods[edge] == 1 for edge in edges],
        )

    def _read(self, index: int, edges: list[int], time_s: float) -> tuple[Iterable[float], Iterable[bool]]:
        graph, slot = self.links.graph, self.label[1]
        place, sender = self._places[edges], graph.source[edges]
        delays: Iterable[float] = _NO_DELAYS
        goods: Iterable[bool] = ALL_GOOD
        if not self._no_delay:
            law, _ = self.links.delay.at(slot, time_s)
            delays = law.quantile(self._delay_stream.uniforms_at(index, place, graph.edges), sender).tolist()
        if not self._no_loss:
            u = self._loss_stream.uniforms_at(index, place, graph.edges)
            goods, _ = self.links.survivals.evaluate(slot, time_s, sender, u)
        return delays, goods

    def _draw_all(self, index: int, time_s: float) -> tuple[FloatArray | None, bytes | None]:
        graph = self.links.graph
        while len(self._drawn) * graph.edges * _BYTES > _CACHED_BYTES:
            del self._drawn[next(iter(self._drawn))]
        delays, goods = None, None
        if not self._no_delay:
            delays = self._draw_delays(index)
        if not self._no_loss:
            u = self._loss_stream.uniforms(index, graph.edges)[self._places]
            law, _ = self.links.survivals.current_law(self.label[1], time_s)
            goods = np.asarray(law.good(u, graph.source), np.bool_).tobytes()
        self._drawn[index] = delays, goods
        return delays, goods

    def _index(self, key: int, attempt: int) -> int:
        """Return the address of the draws of `key` at an `attempt` (from 0) in the present slot, different for each of them."""
        # A link that comes back often may count more attempts than have room in the lower word; the rest goes above it.
        high, low = attempt >> _ATTEMPT_BITS, attempt & _ATTEMPT_MASK
        return high << 64 | ((self.label[1] << KEY_BITS) | key) << _ATTEMPT_BITS | low

    def _draw_delays(self, index: int) -> FloatArray:
        graph = self.links.graph
        law, _ = self.links.delay.at(self.label[1], self.links.clock.now)
        return law.quantile(self._delay_stream.uniforms(index, graph.edges)[self._places], graph.source)


class StarDraws(EdgeDraws):
    """The draws of messages from each client to the server, one each in a slot, that are sent at most `attempts` times."""

    def __init__(self, links: Transport, name: str, streams: Streams, attempts: int) -> None:
        super().__init__(links, name, streams)
        self._places = links.graph.source
        self._attempts = attempts

    def _index(self, key: int, attempt: int) -> int:
        return self.label[1] * self._attempts + attempt

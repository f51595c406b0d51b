"""The draws of messages between clients: delay and survival, addressed by (protocol, slot, key, attempt, edge)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import numpy as np

from netsim.interfaces import BoolArray, FloatArray, IntArray
from netsim.streams import Stream, Streams

if TYPE_CHECKING:
    from netsim.topology import PeerLinks

_EVER = math.inf
SLOT_BITS, KEY_BITS, _ATTEMPT_BITS = 24, 24, 16
_CACHED = 1 << 23  # numbers kept of the draws of a slot; what is forgotten is drawn anew, and is the same
_FEW = 8  # resends at one address that are drawn one by one, before all edges are


class PeerGraph(Protocol):
    """Who is whose neighbour: an undirected graph of K clients as E directed edges, sorted by (target, source)."""

    @property
    def clients(self) -> int: ...
    @property
    def edges(self) -> int: ...
    @property
    def source(self) -> IntArray: ...
    @property
    def target(self) -> IntArray: ...
    @property
    def reverse(self) -> IntArray: ...
    @property
    def starts(self) -> IntArray: ...
    @property
    def address(self) -> IntArray:
        """(E,) each edge's number for addressed draws; half of it, rounded down, is the number of its link."""

    @property
    def distance_km(self) -> FloatArray: ...


class PeerDraws:
    """The draws of one protocol: delay and survival of a message at (slot, key, attempt, edge), all edges in one call."""

    def __init__(self, links: PeerLinks, name: str, streams: Streams) -> None:
        self.links = links
        self.name = name
        self.label = (name, 0)
        """The protocol's name, and the slot."""
        self._delay_stream: Stream = streams[f"{name}.delay"]
        self._loss_stream: Stream = streams[f"{name}.loss"]
        self._delays: dict[int, FloatArray] = {}
        self._goods: dict[int, BoolArray] = {}
        self._flights: dict[tuple[int, int], tuple[FloatArray, BoolArray | None]] = {}
        self._asked: dict[int, int] = {}
        self._until_s = -_EVER
        self._no_delay = False
        self._no_loss = False

    def open_slot(self, slot: int, time_s: float) -> None:
        """Forget the draws of the last slot."""
        if not 0 <= slot < 1 << SLOT_BITS:
            raise ValueError(f"slot = {slot!r}: must lie in 0..{(1 << SLOT_BITS) - 1}")
        self.label = (self.name, slot)
        self._renew(time_s)

    def _forget(self) -> None:
        self._delays.clear()
        self._goods.clear()
        self._flights.clear()
        self._asked.clear()

    def _renew(self, time_s: float) -> None:
        links, slot = self.links, self.label[1]
        self._forget()
        delay, delay_until_s = links.delay.at(slot, time_s)
        channel, channel_until_s = links.channel.at(slot, time_s)
        self._until_s = min(delay_until_s, channel_until_s)
        everyone = np.arange(links.graph.clients)
        self._no_delay = not delay.mean_s(everyone).any()
        self._no_loss = bool((channel.success_probability(everyone) == 1.0).all())

    def lossless_until(self, time_s: float) -> float:
        """Until when no message of this slot can be lost and no law changes; -inf: one can be lost now."""
        if time_s >= self._until_s:
            self._renew(time_s)
        return self._until_s if self._no_loss else -_EVER

    def latency_s(self, key: int, size_bytes: int) -> FloatArray:
        """What the first sendings of `key` take over each edge, seconds (E,), with the laws in force."""
        return self._latency_s(self._index(key, 0), size_bytes)

    def _latency_s(self, index: int, size_bytes: int) -> FloatArray:
        links = self.links
        flight = links.propagation_s + size_bytes / links.bandwidth_bytes_per_s
        return flight if self._no_delay else np.asarray(flight + self._draw_delays(index))

    def of_all(self, key: int, size_bytes: int, time_s: float) -> tuple[FloatArray, BoolArray | None]:
        """Latency in seconds and survival (None: all survive) of the first sending of `key` over each edge, at `time_s`; (E,)."""
        if time_s >= self._until_s:
            self._renew(time_s)
        index = self._index(key, 0)
        found = self._flights.get((index, size_bytes))
        if found is None:
            self._make_room()
            latency_s = self._latency_s(index, size_bytes)
            found = (latency_s, None if self._no_loss else self._draw_goods(index, time_s))
            self._flights[index, size_bytes] = found
        return found

    def of(self, edge: int, key: int, attempt: int, time_s: float) -> tuple[float, bool]:
        """Delay in seconds, without the flight, and survival of one message sent at `time_s`."""
        if time_s >= self._until_s:
            self._renew(time_s)
        if self._no_delay and self._no_loss:
            return 0.0, True
        index = self._index(key, attempt)
        if attempt and self._few(index):
            return self._one(index, edge, time_s)
        delay_s, good = 0.0, True
        if not self._no_delay:
            delays = self._delays.get(index)
            if delays is None:
                self._make_room()
                delays = self._delays[index] = self._draw_delays(index)
            delay_s = delays.item(edge)
        if not self._no_loss:
            goods = self._goods.get(index)
            if goods is None:
                self._make_room()
                goods = self._goods[index] = self._draw_goods(index, time_s)
            good = goods.item(edge)
        return delay_s, good

    def _few(self, index: int) -> bool:
        asked = self._asked[index] = self._asked.get(index, 0) + 1
        return asked <= _FEW

    def _one(self, index: int, edge: int, time_s: float) -> tuple[float, bool]:
        graph, slot = self.links.graph, self.label[1]
        place, sender = graph.address[edge : edge + 1], graph.source[edge : edge + 1]
        delay_s, good = 0.0, True
        if not self._no_delay:
            law, _ = self.links.delay.at(slot, time_s)
            delay_s = law.quantile(self._delay_stream.uniforms_at(index, place, graph.edges), sender).item()
        if not self._no_loss:
            u = self._loss_stream.uniforms_at(index, place, graph.edges)
            good = self.links.survivals.evaluate(slot, time_s, sender, u)[0][0]
        return delay_s, good

    def _make_room(self) -> None:
        kept = len(self._delays) + len(self._goods) + len(self._flights)
        if kept * self.links.graph.edges > _CACHED:
            self._forget()

    def _index(self, key: int, attempt: int) -> int:
        return ((self.label[1] << KEY_BITS) | key) << _ATTEMPT_BITS | attempt

    def _draw_delays(self, index: int) -> FloatArray:
        graph = self.links.graph
        law, _ = self.links.delay.at(self.label[1], self.links.clock.now)
        return law.quantile(self._delay_stream.uniforms(index, graph.edges)[graph.address], graph.source)

    def _draw_goods(self, index: int, time_s: float) -> BoolArray:
        graph = self.links.graph
        u = self._loss_stream.uniforms(index, graph.edges)[graph.address]
        goods, _ = self.links.survivals.evaluate(self.label[1], time_s, graph.source, u)
        return np.array(goods, np.bool_)

"""Peer links as a medium: how long a message between two clients takes, whether it gets through, and how often it is sent again.

A message that is lost is sent again, up to a limit; each sending is a message of its own, and ends exactly once, as delivered or
lost. Until then it is in flight, so that at every instant sent = delivered + lost + in flight. Loss is a bad channel, a link that
is down, or jamming. Links are undirected and numbered as the graph addresses them; edges are their two directions.

Reading: a sender notices a loss `resend_after_s` after the message would have arrived (acknowledgements take no time and are not
lost). A link of `outages` that is down for any instant of a message's flight loses it, and so does a client of `client_outages`
that is cut off, at either end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from netsim.network.draws import Survivals
from netsim.network.resending import NEVER_AGAIN, Resending
from netsim.peers.cut_off import CutOff
from netsim.peers.link_laws import UNDISTURBED, Disturbances, LinkLaws
from netsim.peers.link_outages import Cuts, Outages
from netsim.peers.messages import KEPT, Message, MessageDraws, MessageHandler, PeerGraph
from netsim.peers.transfers import Transfers
from netsim.records.sinks import MessageRow, NoRecorder, Recorder

if TYPE_CHECKING:
    from netsim.core.clock import Clock
    from netsim.core.protocols import FloatArray, IntArray, State
    from netsim.core.streams import Streams

_EVER = math.inf


class PeerLinks:
    """All links of `graph` between clients: messages follow `laws`, and what is lost is sent again as `resending` says."""

    def __init__(
        self,
        *,
        clock: Clock,
        graph: PeerGraph,
        laws: LinkLaws,
        streams: Streams,
        resending: Resending = NEVER_AGAIN,
        disturbances: Disturbances = UNDISTURBED,
    ) -> None:
        rates = np.broadcast_to(np.asarray(laws.bandwidth_bytes_per_s, np.float64), (graph.clients,))
        self.clock = clock
        self.graph = graph
        self.delay = laws.delay
        self.channel = laws.channel
        self.max_resends = resending.max_resends
        self.resend_after_s = resending.resend_after_s
        self.cuts: Cuts = Outages(graph=graph) if disturbances.outages is None else disturbances.outages
        """When which link is down."""
        if disturbances.clients:
            self.cuts = CutOff(graph=graph, schedule=self.cuts, clients=disturbances.clients)
            disturbances.clients.remember_from(self._earliest_s)
        self.jammed = jammed = disturbances.jammed
        self.recorder: Recorder = NoRecorder()
        self.recording = False
        """Whether every message is told to the recorder."""
        self.propagation_s: FloatArray = graph.distance_km / laws.speed_km_per_s
        self.bandwidth_bytes_per_s: FloatArray = rates[graph.source]
        self._transfers = (
            None
            if laws.bandwidth is None
            else Transfers(graph=graph, law=laws.bandwidth, propagation_s=self.propagation_s)
        )
        self.survivals = Survivals(
            clients=graph.clients, law=laws.channel, draws=streams["peers.loss"], state_draws=streams["peers.state"]
        )
        self.sent = self.delivered = self.lost = self.resent = 0
        self.sent_bytes = 0
        self.bytes_over: IntArray | None = None
        """(E,) bytes sent over each edge since the last `airtime_s`; None: nobody asks."""
        self.flying: dict[int, Message] = {}
        """Messages in flight, in the order in which they were sent."""
        self.watchers: list[Callable[[set[int]], None]] = []
        """Who is told of links that have come back without anybody's knowing beforehand."""
        self._plain = jammed is None and not self.cuts

    @property
    def in_flight(self) -> int:
        """Messages that were sent and have not ended."""
        return len(self.flying)

    def _earliest_s(self) -> float:
        """When the first of the messages in flight was sent; inf: there is none."""
        return min((message.sent_s for message in self.flying.values()), default=_EVER)

    def tell_of_return(self, links: set[int]) -> None:
        """These links have come back by an act from outside, but for those that something else keeps down."""
        now = self.clock.now
        back = {link for link in links if self.cuts.cause(link, now, now) is None}
        for watch in list(self.watchers) if back else ():
            watch(back)

    def tell_of_reconnection(self, clients: set[int]) -> None:
        """These clients are no longer cut off, by an act from outside."""
        ends = zip(self._link, self.sources, strict=True)
        self.tell_of_return({link for link, client in ends if client in clients})

    def is_back(self, message: Message) -> bool:
        """Whether an outage has cost a message, and its link has come back before the message would have arrived."""
        link, now = self._link[message.edge], self.clock.now
        return self.cuts.cause(link, message.sent_s, now) is not None and self.cuts.cause(link, now, now) is None

    def open_slot(self, slot: int, time_s: float) -> None:
        """Let the channels move on to `slot`."""
        self.survivals.open_round(slot, time_s)

    def quiet_until(self, draws: MessageDraws, time_s: float) -> float:
        """Until when every message of a protocol gets through undisturbed and no law changes; -inf: not even now.

        Up to there the closed forms of `models.peers.wave` hold.
        """
        if not self.undisturbed:
            return -_EVER
        return min(draws.lossless_until(time_s), self.cuts.quiet_until(time_s))

    @property
    def undisturbed(self) -> bool:
        """Whether nothing but losses and outages keeps closed forms from holding."""
        return self.jammed is None and not self.recording and self._transfers is None

    def count(self, messages: IntArray, size_bytes: int) -> None:
        """So many `messages` (E,) that a closed form has sent over each edge: all delivered."""
        total = int(messages.sum())
        self.sent += total
        self.delivered += total
        self.sent_bytes += total * size_bytes
        if self.bytes_over is not None:
            self.bytes_over += messages * size_bytes

    def airtime_s(self) -> tuple[FloatArray, FloatArray]:
        """How long each client (K,) has sent since it was last asked, and how long it has received, every message for itself.

        Bytes over bandwidth alone: the flight and the delay are no time at which a radio is on. To be asked for at all,
        `bytes_over` must be kept.
        """
        assert self.bytes_over is not None
        seconds = self.bytes_over / self.bandwidth_bytes_per_s
        if self._transfers is not None:
            seconds = self._transfers.seconds()
        self.bytes_over[:] = 0
        clients = self.graph.clients
        sent, received = (np.bincount(ends, seconds, clients) for ends in (self.graph.source, self.graph.target))
        return sent.astype(np.float64), received.astype(np.float64)

    def put_in_flight(
        self, draws: MessageDraws, edge: int, key: int, size_bytes: int, content: Any, sent_s: float, due_s: float
    ) -> None:
        """A message that a closed form has sent, and that is still on its way though nobody waits for it."""
        message = Message(None, draws.label, edge, key, 0, 0, size_bytes, content, sent_s, due_s, True, self.sent)
        self.sent += 1
        self.sent_bytes += size_bytes
        if self.bytes_over is not None:
            self.bytes_over[edge] += size_bytes
        self.flying[message.number] = message
        message.order = self.clock.call_at(due_s, self._arrive, message)

    # Lists for one message at a time; closed forms have no use for them.

    @cached_property
    def _propagation(self) -> list[float]:
        values: list[float] = self.propagation_s.tolist()
        return values

    @cached_property
    def _bandwidth(self) -> list[float]:
        values: list[float] = self.bandwidth_bytes_per_s.tolist()
        return values

    @cached_property
    def _link(self) -> list[int]:
        values: list[int] = (self.graph.address >> 1).tolist()
        return values

    @cached_property
    def sources(self) -> list[int]:
        """The sender of each edge."""
        values: list[int] = self.graph.source.tolist()
        return values

    @cached_property
    def targets(self) -> list[int]:
        """The receiver of each edge."""
        values: list[int] = self.graph.target.tolist()
        return values

    @cached_property
    def outgoing(self) -> list[list[int]]:
        """The edges that leave each client, in the order of its neighbours' numbers."""
        reverse, starts = self.graph.reverse.tolist(), self.graph.starts.tolist()
        return [reverse[starts[i] : starts[i + 1]] for i in range(self.graph.clients)]

    def send(
        self,
        handler: MessageHandler,
        edges: list[int],
        key: int,
        size_bytes: int,
        content: Any = None,
        attempt: int = 0,
        tries: int = 0,
    ) -> None:
        """Send one message of `size_bytes` over each of `edges`; what becomes of each is told to `handler`."""
        now, label, propagation, bandwidth = self.clock.now, handler.draws.label, self._propagation, self._bandwidth
        delays, goods = handler.draws.of(edges, key, attempt, now)
        number, flying, jammed = self.sent, self.flying, self.jammed
        arrive, call_at = self._arrive, self.clock.call_at
        if jammed is not None:
            jammed.catch_up()
        ends: Iterable[tuple[float, bool | None]]
        if self._transfers is not None:
            ends = self._transfers.ends(label[1], now, edges, size_bytes, delays, goods)
        else:
            dues_s = [
                now + (propagation[edge] + size_bytes / bandwidth[edge] + delay_s)
                for edge, delay_s in zip(edges, delays, strict=False)
            ]
            ends = zip(dues_s, goods, strict=False)
        for edge, (due_s, good) in zip(edges, ends, strict=True):
            message = Message(handler, label, edge, key, attempt, tries, size_bytes, content, now, due_s, good, number)
            flying[number] = message
            number += 1
            if jammed is not None:
                jammed.begin(message, self._link[edge])
            message.order = call_at(due_s, arrive, message)
        self.sent = number
        self.sent_bytes += size_bytes * len(edges)
        if self.bytes_over is not None:
            np.add.at(self.bytes_over, edges, size_bytes)

    def _arrive(self, message: Message) -> None:
        del self.flying[message.number]
        good = message.good
        if not self._plain:
            good = not self._disturbed(message) and good
        if self.recording:
            self.recorder.message(self._row(message, "delivered" if good else "lost"))
        handler = message.handler
        if good:
            self.delivered += 1
            if handler is not None and handler.live:
                handler.arrived(message)
            return
        self.lost += 1
        if handler is None or not handler.live:
            return
        if message.tries >= self.max_resends:
            handler.given_up(message)
        elif self.resend_after_s > 0:
            self.clock.call_in(self.resend_after_s, self._resend, message)
        else:
            self._send_again(message, handler)

    def _disturbed(self, message: Message) -> bool:
        link = self._link[message.edge]
        if self.jammed is not None:
            self.jammed.end(message, link)
        return bool(message.jammed) or self.cuts.cause(link, message.sent_s, message.due_s) is not None

    def _resend(self, message: Message) -> None:
        if message.handler is not None and message.handler.live:
            self._send_again(message, message.handler)

    def _send_again(self, message: Message, handler: MessageHandler) -> None:
        self.resent += 1
        key, size, content = message.key, message.size_bytes, message.content
        self.send(handler, [message.edge], key, size, content, message.attempt + 1, message.tries + 1)

    def _row(self, message: Message, outcome: str) -> MessageRow:
        edge, graph = message.edge, self.graph
        cause = None
        if outcome == "lost":
            cut = self.cuts.cause(self._link[edge], message.sent_s, message.due_s)
            cause = "jammed" if message.jammed else cut or ("trace-end" if message.good is None else "channel")
        return MessageRow(
            message.label[1],
            message.label[0],
            int(graph.source[edge]),
            int(graph.target[edge]),
            message.key,
            message.tries,
            message.sent_s,
            self.clock.now,
            outcome,
            cause,
            message.size_bytes,
        )

    def record_unfinished(self) -> None:
        """The run is over: record what is still in flight as such."""
        if self.recording:
            for message in self.flying.values():
                self.recorder.message(self._row(message, "in_flight"))

    def state_dict(self) -> State:
        """Counts, the channels' state, and every message in flight. To be taken while no protocol is live."""
        return {
            "sent": self.sent,
            "delivered": self.delivered,
            "lost": self.lost,
            "resent": self.resent,
            "sent_bytes": self.sent_bytes,
            "survivals": self.survivals.state_dict(),
            "cuts": self.cuts.state_dict(),
            "flying": [{name: getattr(m, name) for name in KEPT} | {"label": list(m.label)} for m in self.flying.values()],
        }

    def load_state_dict(
        self, state: State, slot: int, time_s: float, before: Callable[[int], None] = lambda place: None
    ) -> None:
        """Go on from a saved state; what is in flight is put on the clock again.

        `before` is told the place of each message among them before that, and last of their number.
        """
        self.sent, self.delivered, self.lost = state["sent"], state["delivered"], state["lost"]
        self.resent, self.sent_bytes = state["resent"], state["sent_bytes"]
        self.survivals.load_state_dict(state["survivals"], slot, time_s)
        self.cuts.load_state_dict(state["cuts"])
        self.flying = {}
        for place, saved in enumerate(state["flying"]):
            before(place)
            message = Message.__new__(Message)
            message.handler = message.content = None
            for name in KEPT:
                setattr(message, name, saved[name])
            message.label = (saved["label"][0], saved["label"][1])
            self.flying[message.number] = message
            if self.jammed is not None:
                self.jammed.under_way[self._link[message.edge]].append(message)
            message.order = self.clock.call_at(message.due_s, self._arrive, message)
        before(len(state["flying"]))

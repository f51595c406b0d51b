"""The transport of messages between nodes: when each arrives, what it is lost to, and how often it is sent again.

A message takes its delay, its bytes and its flight. One that is lost is sent again, up to a limit; each sending is a message
of its own and ends exactly once, as delivered or lost. Until then it is in flight: at every instant sent = delivered + lost + in
flight. A loss has one cause: an outage of the link or of a client at either end, jamming, a link of the way (a bandwidth that
ended), or a bad channel, in this order, as for updates. Links are undirected and numbered as the graph addresses them; edges are
their two directions.

Reading: a sender notices a loss `resend_after_s` after the message would have arrived (acknowledgements take no time and are not
lost). A link that is down for any instant of a message's flight loses it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from netsim.core.rows import MessageRow
from netsim.network.bandwidth.arrival import arrival_s
from netsim.network.bandwidth.carriers import SERVER, NoCarrier
from netsim.network.draws import Survivals
from netsim.network.losses import cause_of_loss
from netsim.network.resending import NEVER_AGAIN, Resending
from netsim.network.transport.laws import UNDISTURBED, Disturbances, LinkLaws
from netsim.network.transport.link_outages import AllCuts, CutOff
from netsim.network.transport.messages import (
    ALL_GOOD,
    KEPT,
    Batch,
    BatchFields,
    Message,
    MessageDraws,
    MessageHandler,
    PeerGraph,
    Stage,
    links_of_edges,
)
from netsim.records.sinks import NoRecorder, Recorder

if TYPE_CHECKING:
    from netsim.core.clock import Clock
    from netsim.core.protocols import FloatArray, IntArray, State
    from netsim.core.streams import Streams
    from netsim.network.bandwidth.carriers import Carrier

_EVER = math.inf
_COUNTS = ("sent", "delivered", "lost", "resent", "sent_bytes")


class Transport:
    """Messages of one `kind` over the links of `graph`: they follow `laws`, and lost ones are sent again as `resending` says.

    `kind` names the streams of their channels and their place on carriers. `recording`: every message is recorded.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        graph: PeerGraph,
        laws: LinkLaws,
        streams: Streams,
        resending: Resending = NEVER_AGAIN,
        disturbances: Disturbances = UNDISTURBED,
        kind: str = "peers",
        recording: bool = False,
    ) -> None:
        rates = np.broadcast_to(np.asarray(laws.bandwidth_bytes_per_s, np.float64), (graph.clients,))
        self.clock = clock
        self.graph = graph
        self.delay = laws.delay
        self.max_resends = resending.max_resends
        self.resend_after_s = resending.resend_after_s
        self.absences = disturbances.absences
        """Links of clients that are away; None: none ever is."""
        self.cuts = self._combine_cuts(disturbances)
        """Outages of links."""
        self.jammed, self.jammers = disturbances.jammed, disturbances.jammers
        self.recorder: Recorder = NoRecorder()
        self.recording = recording
        self.propagation_s: FloatArray = graph.distance_km / laws.speed_km_per_s
        """Seconds (E,) of the flight over each edge."""
        self.bandwidth_bytes_per_s: FloatArray = rates[graph.source]
        """Bandwidth (E,) of each edge, that of its sender."""
        self.carrier: Carrier = NoCarrier() if laws.carrier is None else laws.carrier
        """Carrier of the bytes, where their time is not known as they begin."""
        self._port = self.carrier.port(kind)
        self._port.listen(self._start_flight)
        self._carries = self.carrier.carries
        """True if a carrier moves the bytes."""
        self._carried_s: FloatArray = np.zeros(graph.edges if self._carries else 0)
        """(E,) seconds that the carrier took over each edge since the last `airtime_s`."""
        self.survivals = Survivals(
            clients=graph.clients, law=laws.channel, draws=streams[f"{kind}.loss"], state_draws=streams[f"{kind}.state"]
        )
        """Channels of the links, by which messages are lost."""
        self.sent = self.delivered = self.lost = self.resent = 0
        self.sent_bytes = 0
        self.bytes_over: IntArray | None = None
        """(E,) bytes sent over each edge since the last `airtime_s`; None if they are not counted."""
        self.flying: dict[int, Message] = {}
        """Messages in flight by number, but for those of batches."""
        self.batches: dict[int, Batch] = {}
        """Batches with messages in flight, by the number of their first message."""
        self.paused: dict[int, Message] = {}
        """Messages that were lost and will be sent again after a pause, by number."""
        self.copies: Callable[[], list[Message]] = list
        """Callback that returns copies of messages that are computed as arrays, numbered by their next calls."""
        self.handlers: dict[str, MessageHandler] = {}
        """Handlers that take over messages of a saved state, by protocol."""
        self._on_message_end: Callable[[Message], None] = lambda message: None
        """Callback for each message that has ended."""
        self.watchers: list[Callable[[set[int]], None]] = []
        """Callbacks for links that come back at a time that was not known beforehand."""
        self._only_channels_lose = self.jammed is None and not self.cuts
        """True if neither jammers nor outages can lose a message."""
        self._one_by_one = self.jammed is not None or self._carries
        """True if messages cannot share entries of the clock."""

    def _combine_cuts(self, disturbances: Disturbances) -> AllCuts:
        """Return the outages of links: their own, then absences and outages of clients at their ends."""
        # If a message meets several, the first in this list is the recorded cause.
        cuts = list(disturbances.outages)
        if disturbances.absences is not None:
            cuts.append(disturbances.absences)
        if disturbances.clients:
            cuts.append(CutOff(graph=self.graph, clients=disturbances.clients))
            disturbances.clients.remember_from(self._earliest_s)
        return AllCuts(cuts)

    def listen(self, on_end: Callable[[Message], None]) -> None:
        """Call `on_end` with each message at its end, however it ended, with `due_s` the time of that."""
        self._on_message_end = on_end

    def count_bytes(self) -> None:
        """Count the bytes sent over each edge from now on, for `airtime_s`."""
        self.bytes_over = np.zeros(self.graph.edges, np.int64)

    @property
    def in_flight(self) -> int:
        """Number of messages that were sent and have not ended."""
        return self.sent - self.delivered - self.lost

    @property
    def waiting(self) -> int:
        """Number of messages that may still arrive: in flight, or to be sent again."""
        return self.in_flight + len(self.paused)

    def is_futile(self, *, anywhere: bool) -> bool:
        """Return True if no message can arrive any more, because all links that matter are down or jammed for ever.

        `anywhere`: True if further messages may be sent, over any link. False if only the messages in flight and those to be
        sent again remain; then only their links matter.
        """
        if any(message.next_s <= self.clock.now for message in self.under_way()):
            # A message that ends now still arrives, even if an outage or a jammer begins now.
            return False
        waiting = (*self.under_way(), *self.paused.values())
        edges = range(self.graph.edges) if anywhere else sorted({message.edge for message in waiting})
        dead_links = self.cuts.down_for_ever(self.clock.now)
        if self.jammers is not None:
            dead_links |= self.jammers.jammed_for_ever()
        for edge in edges:
            is_dead = self._link[edge] in dead_links
            if not is_dead and not self.carrier.is_cut_off(self.sources[edge], self.targets[edge]):
                return False
        return True

    def under_way(self) -> Iterator[Message]:
        """Return the messages in flight, in the order in which they were sent."""
        messages = list(self.flying.values())
        for batch in self.batches.values():
            messages += [batch.message(place) for place in batch.places_in_flight()]
        return iter(sorted(messages, key=lambda message: message.number))

    def unfinished(self) -> list[Message]:
        """Return the messages in flight, and those that will be sent again; copies of messages that are computed as arrays."""
        return [*self.under_way(), *self.paused.values(), *self.copies()]

    def _earliest_s(self) -> float:
        """Return the time at which the first of the messages in flight was sent; inf if there is none."""
        of_messages = (message.sent_s for message in self.flying.values())
        of_batches = (min(batch.sent_s) for batch in self.batches.values())
        return min(chain(of_messages, of_batches), default=_EVER)

    def report_return(self, links: set[int]) -> None:
        """Call the watchers with those of `links`, which a script has restored, that no other outage keeps down."""
        now = self.clock.now
        returned = {link for link in links if self.cuts.cause(link, now, now) is None}
        if returned:
            # A copy: a watcher may take itself off the list.
            for watch in list(self.watchers):
                watch(returned)

    def report_reconnection(self, clients: set[int]) -> None:
        """Report the links of `clients`, which a script has reconnected, as returned."""
        self.report_return({link for link, client in zip(self._link, self.sources, strict=True) if client in clients})

    def is_back(self, message: Message) -> bool:
        """Return True if an outage has destroyed a message, and its link is up again now."""
        link, now = self._link[message.edge], self.clock.now
        was_destroyed = self.cuts.cause(link, message.sent_s, now) is not None
        return was_destroyed and self.cuts.cause(link, now, now) is None

    def is_away(self, client: int) -> bool:
        """Return True if `client` of a `Star` is away now, and so sends nothing."""
        # Of a star, the link of a client has its number.
        now = self.clock.now
        return self.absences is not None and self.absences.cause(client, now, now) is not None

    def open_slot(self, slot: int, time_s: float) -> None:
        """Let jammers, channels and the bandwidth move on to `slot`."""
        if self.jammers is not None:
            self.jammers.open_round(slot)
        self.survivals.open_round(slot, time_s)
        self.carrier.open_round(slot, time_s)

    def quiet_until(self, draws: MessageDraws, time_s: float) -> float:
        """Return the time until which every message of a protocol surely gets through and no law changes; -inf: not even now.

        Until then the closed forms of `models.peers.wave` hold.
        """
        if not self.undisturbed:
            return -_EVER
        return min(draws.lossless_until(time_s), self.cuts.quiet_until(time_s))

    @property
    def undisturbed(self) -> bool:
        """True if messages need no simulation one by one: no jammers, no carrier, and no record of each message."""
        return not self._one_by_one and not self.recording

    @property
    def foreseeable(self) -> bool:
        """True if the outcome of a message depends on its draws alone, and nothing reads single messages."""
        return self._only_channels_lose and self.undisturbed

    def tally(self, *, sent: int, delivered: int, lost: int, resent: int, sent_bytes: int) -> None:
        """Count messages that were computed as arrays."""
        self.sent += sent
        self.delivered += delivered
        self.lost += lost
        self.resent += resent
        self.sent_bytes += sent_bytes

    def count(self, messages: IntArray, size_bytes: int) -> None:
        """Count `messages` (E,) that a closed form has sent over each edge, all delivered."""
        total = int(messages.sum())
        self.sent += total
        self.delivered += total
        self.sent_bytes += total * size_bytes
        if self.bytes_over is not None:
            self.bytes_over += messages * size_bytes

    def airtime_s(self) -> tuple[FloatArray, FloatArray]:
        """Return (seconds sent, seconds received) of each client (K,) since the last call.

        Needs `count_bytes`. Each message counts the time of its bytes alone: radios are off during flight and delay. Bytes on a
        carrier count when they have passed.
        """
        assert self.bytes_over is not None
        seconds = self._carried_s.copy() if self._carries else self.bytes_over / self.bandwidth_bytes_per_s
        self._carried_s[:] = 0
        self.bytes_over[:] = 0
        # Sums of the edges that leave each client, and of those that lead to it.
        sent_s = np.bincount(self.graph.source, seconds, self.graph.clients)
        received_s = np.bincount(self.graph.target, seconds, self.graph.clients)
        return sent_s.astype(np.float64), received_s.astype(np.float64)

    def put_in_flight(
        self,
        draws: MessageDraws,
        edges: IntArray,
        key: int,
        size_bytes: int,
        content: object,
        sent_s: FloatArray,
        due_s: FloatArray,
    ) -> None:
        """Put messages into flight that a closed form has sent over `edges` (n,) at `sent_s` (n,), to arrive at `due_s` (n,). No
        handler is called at their ends.
        """
        if edges.size:
            common = BatchFields(
                handler=None, label=draws.label, key=key, attempt=0, tries=0, size_bytes=size_bytes, content=content
            )
            self._start_batch(common, sent_s.tolist(), edges.tolist(), due_s.tolist(), ALL_GOOD)
            self._count_sent(edges.tolist(), size_bytes)

    # Lists for messages one at a time: they are made at the first use, because closed forms do not need them.

    @cached_property
    def _propagation(self) -> list[float]:
        """Seconds of the flight over each edge."""
        values: list[float] = self.propagation_s.tolist()
        return values

    @cached_property
    def _bandwidth(self) -> list[float]:
        """Bytes a second over each edge."""
        values: list[float] = self.bandwidth_bytes_per_s.tolist()
        return values

    @cached_property
    def _link(self) -> list[int]:
        """The link of each edge."""
        values: list[int] = links_of_edges(self.graph).tolist()
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
        content: object = None,
        attempt: int = 0,
        tries: int = 0,
    ) -> None:
        """Send one message of `size_bytes` over each of `edges`; `handler` is called with the end of each.

        `attempt`: with `key` and edge, it addresses the draws. `tries`: number of earlier sendings of the same message.
        """
        now, label, number = self.clock.now, handler.draws.label, self.sent
        # `strict=False` below: draws may be endless iterators (`repeat`), so `edges` decides the length.
        delays, goods = handler.draws.draws_of(edges, key, attempt, now)
        if self._carries:
            # Only the end of the delay is known; bytes and flight follow by events.
            dues_s = [now + delay_s for _, delay_s in zip(edges, delays, strict=False)]
        else:
            propagation, bandwidth = self._propagation, self._bandwidth
            dues_s = [
                arrival_s(now, delay_s, size_bytes / bandwidth[edge], propagation[edge])
                for edge, delay_s in zip(edges, delays, strict=False)
            ]
        if len(edges) == 1 or self._one_by_one:
            if self.jammers is not None:
                # Jamming ends and begins before a message of the same instant.
                self.jammers.catch_up()
            for place, (edge, due_s, good) in enumerate(zip(edges, dues_s, goods, strict=False)):
                # The fields of `Message` after `edge`, in their order.
                fields = key, attempt, tries, size_bytes, content, now, due_s, good, number + place
                self._start_message(Message(handler, label, edge, *fields))
        else:
            # Not by the constructor, which costs several times as much: every sending over several edges passes here.
            common = tuple.__new__(BatchFields, (handler, label, key, attempt, tries, size_bytes, content))
            self._start_batch(common, [now] * len(edges), edges, dues_s, goods)
        self._count_sent(edges, size_bytes)

    def _start_batch(
        self, common: BatchFields, sent_s: list[float], edges: list[int], dues_s: list[float], goods: Iterable[bool]
    ) -> None:
        """Start messages over `edges` that share one entry on the clock: that of the next arrival."""
        # Reserve a number of the clock for each message, as if each had its own call: arrivals of one instant then come in the
        # same order with batches and without.
        first_order = self.clock.reserve(len(edges))
        batch = Batch(common, sent_s, self.sent, first_order, edges, dues_s, goods)
        self.batches[batch.number] = batch
        self._await_next(batch)

    def _count_sent(self, edges: list[int], size_bytes: int) -> None:
        """Count messages of `size_bytes` over each of `edges`."""
        self.sent += len(edges)
        self.sent_bytes += size_bytes * len(edges)
        if self.bytes_over is not None:
            np.add.at(self.bytes_over, edges, size_bytes)

    def _start_message(self, message: Message) -> None:
        """Start a message that is in no batch. Its next call is its arrival or, with a carrier, the end of its delay."""
        self.flying[message.number] = message
        if self.jammed is not None:
            self.jammed.begin(message)
        call, next_call_s = self._arrive, message.due_s
        if self._carries:
            call, message.stage, message.due_s = self._join, Stage.DELAY, _EVER
        message.order = self.clock.call_at(next_call_s, call, message)
        message.next_s = next_call_s

    def _await_next(self, batch: Batch) -> None:
        """Put the next arrival of a batch on the clock, or forget the batch."""
        place = batch.next_place()
        if place is None:
            del self.batches[batch.number]
        else:
            self.clock.call_numbered(batch.dues_s[place], batch.order + place, self._arrive_next, batch)

    def _arrive_next(self, batch: Batch) -> None:
        """Callback at the next arrival of a batch."""
        if batch.number not in self.batches:
            return  # `cut` has ended the messages of the batch
        message = batch.take_next()
        # Put the next arrival on the clock before handlers run: a handler may cut all messages off, this batch included.
        self._await_next(batch)
        self._end(message)

    def _join(self, message: Message) -> None:
        """Start the bytes of a message whose delay has passed."""
        if message.number not in self.flying:
            return  # `cut` has ended the message
        message.stage, message.next_s, message.order = Stage.BYTES, self.clock.now, -1
        edge = message.edge
        self._port.join(message.number, self.sources[edge], message.size_bytes, self.targets[edge])

    def _start_flight(self, number: int, cause: str | None) -> None:
        """Start the flight of a message when its bytes have passed the carrier, or end a message that a link has lost for
        `cause`.
        """
        message, now = self.flying[number], self.clock.now
        self._carried_s[message.edge] += now - message.next_s
        message.stage, message.cause = Stage.FLIGHT, cause
        message.good = message.good and cause is None
        flight_s = self._propagation[message.edge] if cause is None else 0.0
        if flight_s:
            message.due_s = message.next_s = now + flight_s
            message.order = self.clock.call_at(message.due_s, self._arrive, message)
        else:
            message.due_s = now
            self._arrive(message)

    def _arrive(self, message: Message) -> None:
        """Callback at the arrival of a message that is in no batch, unless `cut` has ended it."""
        if self.flying.pop(message.number, None) is not None:
            self._end(message)

    def cut(self) -> None:
        """Cut off all messages in flight: their receiver has stopped waiting. They are late, and not sent again."""
        now = self.clock.now
        for message in self.under_way():
            if message.stage == Stage.BYTES:
                self._port.leave(message.number)
                self._carried_s[message.edge] += now - message.next_s
            message.good, message.due_s = False, now
            if self.jammed is not None:
                self.jammed.end(message, delivered=False)
            self.lost += 1
            self._on_message_end(message)
            if self.recording:
                self.recorder.message(self._row(message, "late"))
        self.flying, self.batches = {}, {}

    def _end(self, message: Message) -> None:
        """End a message at its arrival: record it, and call its handler. A lost message is sent again if the rule allows.

        Counts change before handlers are called, which may send further messages.
        """
        self._on_message_end(message)
        # Fast path: most messages survive where nothing else than the channel can lose them.
        if self._only_channels_lose and message.good:
            cause = None
        else:
            cause = self._cause_of_loss(message)
            if self.jammed is not None:
                self.jammed.end(message, delivered=cause is None)
        if self.recording:
            outcome = "delivered" if cause is None else "lost"
            self.recorder.message(self._row(message, outcome, cause))
        handler = message.handler
        if cause is None:
            self.delivered += 1
            if handler is not None and handler.live:
                handler.on_arrival(message)
            return
        self.lost += 1
        if handler is None or not handler.live:
            return
        if message.tries >= self.max_resends:
            handler.on_loss(message)
        elif self.resend_after_s > 0:
            self._pause(message, self.clock.now + self.resend_after_s)
        else:
            self._send_again(message, handler)

    def _cause_of_loss(self, message: Message) -> str | None:
        """Return the cause of the loss of a message that ends now, or None."""
        outage = self.cuts.cause(self._link[message.edge], message.sent_s, message.due_s)
        jamming = "jammed" if message.jammed else None
        return cause_of_loss(outage, access=jamming, link=message.cause, survives=message.good)

    def _pause(self, message: Message, until_s: float) -> None:
        """Put the next sending of a lost message on the clock."""
        message.stage, message.next_s = Stage.PAUSE, until_s
        self.paused[message.number] = message
        message.order = self.clock.call_at(until_s, self._resend, message)

    def _resend(self, message: Message) -> None:
        """Callback at the end of a pause."""
        if self.paused.pop(message.number, None) is None:
            return  # the message is no longer to be sent again
        if message.handler is not None and message.handler.live:
            self._send_again(message, message.handler)

    def _send_again(self, message: Message, handler: MessageHandler) -> None:
        """Send a lost message again, with the draws of its next attempt."""
        self.resent += 1
        key, size, content = message.key, message.size_bytes, message.content
        self.send(handler, [message.edge], key, size, content, attempt=message.attempt + 1, tries=message.tries + 1)

    def _row(self, message: Message, outcome: str, cause: str | None = None) -> MessageRow:
        """Return the row of the table of messages for a message that ends now. `cause`: of a loss; None: it was not lost."""
        source, target = self.sources[message.edge], self.targets[message.edge]
        if target == source:
            # An edge of a `Star` leads to the server, which is no node of that graph: both its ends are the client.
            target = SERVER
        protocol, slot = message.label
        return MessageRow(
            round=slot,
            protocol=protocol,
            source=source,
            target=target,
            number=message.key,
            resend=message.tries,
            sent_s=message.sent_s,
            end_s=self.clock.now,
            outcome=outcome,
            cause=cause,
            size_bytes=message.size_bytes,
        )

    def record_unfinished(self) -> None:
        """Record messages in flight, and present jamming, at the end of the run."""
        if self.recording:
            for message in self.under_way():
                self.recorder.message(self._row(message, "in_flight"))
        if self.jammers is not None:
            self.jammers.stop()

    def record_to(self, recorder: Recorder) -> None:
        """Send all records to `recorder` from now on."""
        self.recorder = recorder
        if self.jammers is not None:
            self.jammers.record_to(recorder)

    def counts(self) -> dict[str, int]:
        """Return the counts of jammers so far, by column; empty without jammers."""
        if self.jammed is None or self.jammers is None:
            return {}
        return {"jammed": self.jammed.hit, "jam_dwells": self.jammers.spent}

    def state_dict(self) -> State:
        """Return counts, the state of channels, carrier and jammers, and every message in flight with its content.

        Messages come in the order of their next calls of the clock.
        """
        messages = sorted(self.unfinished(), key=lambda message: message.order)
        jammed, jammers = self.jammed, self.jammers
        # Number of messages whose next call comes before the next dwell: both calls may be of one instant.
        before_dwell = 0
        if jammers is not None:
            before_dwell = sum(message.order < jammers.call for message in messages)
        return {
            "jammed": None if jammed is None else jammed.state_dict(),
            "jammers": None if jammers is None else jammers.state_dict(),
            "before_jammers": before_dwell,
            **{name: getattr(self, name) for name in _COUNTS},
            "survivals": self.survivals.state_dict(),
            "cuts": self.cuts.state_dict(),
            "carrier": self.carrier.state_dict(),
            "carried_s": self._carried_s.copy(),
            "flying": [{name: getattr(message, name) for name in KEPT} for message in messages],
        }

    def resume(self, message: Message) -> None:
        """Go on with a message in flight, or with one that will be sent again: put its next step on the clock, unless its bytes
        are on the carrier, which has their end.
        """
        if message.stage == Stage.PAUSE:
            self._pause(message, message.next_s)
            return
        self.flying[message.number] = message
        if self.jammed is not None:
            self.jammed.resume(message)
        if message.stage != Stage.BYTES:
            call = self._join if message.stage == Stage.DELAY else self._arrive
            message.order = self.clock.call_at(message.next_s, call, message)

    def load_state_dict(self, state: State, slot: int, time_s: float) -> None:
        """Restore a saved state, and put the messages in flight and the next dwell of the jammers on the clock."""
        if self.jammed is not None:
            self.jammed.load_state_dict(state["jammed"])
        if self.jammers is not None:
            self.jammers.load_state_dict(state["jammers"], slot)
        for name in _COUNTS:
            setattr(self, name, state[name])
        self.survivals.load_state_dict(state["survivals"], slot, time_s)
        self.cuts.load_state_dict(state["cuts"])
        self._carried_s = state["carried_s"].copy()
        # Batches are not restored: single messages give the same ends.
        self.flying, self.batches, self.paused = {}, {}, {}
        messages = []
        for saved in state["flying"]:
            protocol, slot = saved["label"]
            fields = saved | {"handler": self.handlers.get(protocol), "label": (protocol, slot)}
            messages.append(Message(**fields))
        # Calls of one instant come in the order in which they are scheduled here: first the messages before the next dwell of the
        # jammers, then the dwell, then the other messages.
        before_dwell = state["before_jammers"]
        for message in messages[:before_dwell]:
            self.resume(message)
        if self.jammers is not None:
            self.jammers.arm()
        for message in messages[before_dwell:]:
            self.resume(message)
        self.carrier.load_state_dict(state["carrier"], slot, time_s)

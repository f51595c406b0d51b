"""Messages between two clients over an edge of their graph, and the interface of their handlers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import IntEnum
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from netsim.network.jammable import JammedRoutes

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray, IntArray

ALL_GOOD: Iterable[bool] = repeat(True)
"""Survivals of messages if none is lost."""


class Stage(IntEnum):
    """The next step of a message in flight."""

    DELAY = 0
    """The bytes join the carrier at `next_s`."""
    BYTES = 1
    """The carrier has had the bytes since `next_s`."""
    FLIGHT = 2
    """The message arrives at `next_s`."""
    PAUSE = 3
    """The message was lost, and is sent again at `next_s`."""


class PeerGraph(Protocol):
    """Undirected graph of K clients as E directed edges, sorted by (target, source)."""

    @property
    def clients(self) -> int:
        """Number K of clients."""
    @property
    def edges(self) -> int:
        """Number E of directed edges."""
    @property
    def source(self) -> IntArray:
        """Client (E,) from which each edge leads."""
    @property
    def target(self) -> IntArray:
        """Client (E,) to which each edge leads."""
    @property
    def reverse(self) -> IntArray:
        """Index (E,) of the edge in the opposite direction."""
    @property
    def starts(self) -> IntArray:
        """Index (K + 1,) of the first edge to each client; the last entry is E."""
    @property
    def address(self) -> IntArray:
        """Number (E,) of each edge for addressed draws. Half of it, rounded down, is the number of the link."""

    @property
    def distance_km(self) -> FloatArray:
        """Length (E,) of each edge, km."""


def links_of_edges(graph: PeerGraph) -> IntArray:
    """Return the link (E,) of each edge of `graph`: the two edges of link l have the addresses 2l and 2l + 1."""
    links: IntArray = graph.address >> 1
    return links


def link_count(graph: PeerGraph) -> int:
    """Return the number of links of `graph`."""
    return int(links_of_edges(graph).max(initial=-1)) + 1


def link_ends(graph: PeerGraph) -> IntArray:
    """Return the two clients of each link of `graph`, ascending; (links, 2)."""
    ends = np.zeros((link_count(graph), 2), np.int64)
    # Either edge of a link gives its two clients.
    ends[links_of_edges(graph)] = np.sort(np.stack((graph.source, graph.target), axis=1))
    return ends


def jammed_links(graph: PeerGraph) -> JammedRoutes[Message]:
    """Return the links of `graph` as jammable channels, numbered as `links_of_edges` does.

    A message holds its link from its sending until just before its arrival; one that takes no time holds it for its instant.
    """
    links = links_of_edges(graph).tolist()
    return JammedRoutes(
        link_count(graph),
        channels_of=lambda message: (links[message.edge],),
        holds_channel=lambda message, time_s: message.due_s > time_s or message.sent_s == time_s,
    )


class Star:
    """Graph of K channels from `clients` to the server. Edge k belongs to client k, the only end that can be cut off."""

    def __init__(self, clients: int) -> None:
        self.clients = self.edges = clients
        self.source = self.target = self.reverse = np.arange(clients)
        self.starts: IntArray = np.arange(clients + 1)
        self.address: IntArray = 2 * np.arange(clients)
        self.distance_km: FloatArray = np.zeros(clients)


class MessageDraws(Protocol):
    """Draws for the messages of one protocol."""

    @property
    def label(self) -> tuple[str, int]:
        """The protocol's name, and the slot."""

    def lossless_until(self, time_s: float) -> float:
        """Return the time until which surely no message of this slot is lost and no law changes; -inf: one can be lost now."""

    def draws_of(self, edges: list[int], key: int, attempt: int, time_s: float) -> tuple[Iterable[float], Iterable[bool]]:
        """Return delays (seconds, without the flight) and survivals of messages sent over `edges` at `time_s`: at least one each.
        """


class MessageHandler(Protocol):
    """Sender of messages, called with the end of each. While it is not `live`, it gets no calls."""

    @property
    def draws(self) -> MessageDraws:
        """Draws of the handler's messages."""
    @property
    def live(self) -> bool:
        """True while the handler is to be called."""

    def on_arrival(self, message: Message) -> None:
        """Handle a message that has arrived."""

    def on_loss(self, message: Message) -> None:
        """Handle a message that was lost and will not be sent again."""


@dataclass(slots=True, eq=False)
class Message:
    """One sending of one message over one directed edge."""

    handler: MessageHandler | None
    """Handler that is called at the end, or None."""
    label: tuple[str, int]
    """The protocol's name, and the slot."""
    edge: int
    key: int
    """Key within the protocol. With slot, attempt and edge it addresses the draws."""
    attempt: int
    tries: int
    """Number of earlier sendings of this message."""
    size_bytes: int
    content: Any
    sent_s: float
    due_s: float
    good: bool | None
    """True if the channel lets the message through, unless it is disturbed on the way. Never None here, unlike for updates."""
    number: int
    jammed: bool | None = False
    cause: str | None = None
    """Cause by which a link has lost the message, or None."""
    stage: int = Stage.FLIGHT
    next_s: float = math.nan
    """Time of the next step, or of the last one while a carrier has the bytes; see `Stage`."""
    order: int = -1
    """Number of the next step among the calls of the clock; -1 while a carrier has the bytes."""


KEPT = tuple(field.name for field in fields(Message) if field.name not in ("handler", "order"))
"""Fields of a message in flight that a saved state holds."""


class BatchFields(NamedTuple):
    """Fields that all messages of a batch share; `Message` explains them."""

    handler: MessageHandler | None
    label: tuple[str, int]
    key: int
    attempt: int
    tries: int
    size_bytes: int
    content: Any


class Batch:
    """Messages of one content, one over each of `edges`, with a single entry on the clock: that of the next to arrive.

    Thousands of messages in flight then need a few hundred entries. `sent_s`, `dues_s`: times of sending and arrival, seconds,
    one for each edge. `common`: fields shared by all. `number`, `order`: numbers of the first message and of its call; the others
    follow in the order of `edges`. `goods`: survivals, or ALL_GOOD.
    """

    __slots__ = ("_common", "_goods", "_places", "_taken", "dues_s", "edges", "number", "order", "sent_s")

    def __init__(
        self, common: BatchFields, sent_s: list[float], number: int, order: int, edges: list[int], dues_s: list[float], goods: Any
    ) -> None:
        self._common, self.sent_s, self.edges, self.dues_s = common, sent_s, edges, dues_s
        self.number, self.order = number, order
        self._goods: list[bool] | None = None if goods is ALL_GOOD else list(goods)
        # Stable sort: among messages that arrive together, the one that was sent first comes first.
        self._places = sorted(range(len(edges)), key=dues_s.__getitem__)
        """Places of the messages in the order of arrival."""
        self._taken = 0
        """Number of messages that have arrived."""

    def next_place(self) -> int | None:
        """Return the place of the next message to arrive; None if all have."""
        return self._places[self._taken] if self._taken < len(self._places) else None

    def places_in_flight(self) -> list[int]:
        """Return the places of the messages in flight, in the order in which they arrive."""
        return self._places[self._taken :]

    def take_next(self) -> Message:
        """Remove and return the next message to arrive."""
        self._taken += 1
        return self.message(self._places[self._taken - 1])

    def message(self, place: int) -> Message:
        """Return the message at `place` as an object, with the numbers that it would have outside of a batch."""
        handler, label, key, attempt, tries, size_bytes, content = self._common
        due_s = self.dues_s[place]
        good = True if self._goods is None else self._goods[place]
        edge, number = self.edges[place], self.number + place
        # By position, not by keyword, for speed: a message is made for each arrival.
        message = Message(handler, label, edge, key, attempt, tries, size_bytes, content, self.sent_s[place], due_s, good, number)
        message.next_s, message.order = due_s, self.order + place
        return message

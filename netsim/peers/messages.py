"""A message between two clients, over an edge of their graph, and who is told what became of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray, IntArray

KEPT = ("edge", "key", "attempt", "tries", "size_bytes", "sent_s", "due_s", "good", "jammed", "number")
"""What a saved state tells of a message in flight, beside its protocol and slot."""


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


class MessageDraws(Protocol):
    """What is drawn for the messages of one protocol."""

    @property
    def label(self) -> tuple[str, int]:
        """The protocol's name, and the slot."""

    def lossless_until(self, time_s: float) -> float:
        """Until when no message of this slot can be lost and no law changes; -inf: one can be lost now."""

    def of(self, edges: list[int], key: int, attempt: int, time_s: float) -> tuple[Iterable[float], Iterable[bool]]:
        """Delays in seconds, without the flight, and survival of messages sent over `edges` at `time_s`, one each, at least."""


class MessageHandler(Protocol):
    """Who sends messages and is told what became of them. While it is not `live`, nothing reaches it."""

    @property
    def draws(self) -> MessageDraws: ...
    @property
    def live(self) -> bool: ...

    def arrived(self, message: Message) -> None:
        """A message got through."""

    def given_up(self, message: Message) -> None:
        """A message was lost and will not be sent again."""


@dataclass(slots=True, eq=False)
class Message:
    """One sending of one message over one directed edge."""

    handler: MessageHandler | None
    """Who is told how it ended; None: nobody waits for it."""
    label: tuple[str, int]
    """The protocol's name, and the slot."""
    edge: int
    key: int
    """What of the protocol it is: with the slot, the attempt and the edge the address of its draws."""
    attempt: int
    tries: int
    """How often this message was sent before."""
    size_bytes: int
    content: Any
    sent_s: float
    due_s: float
    good: bool | None
    """Whether it gets through, if nothing happens to it on the way; None: no, since the bandwidth ended."""
    number: int
    jammed: bool | None = False
    order: int = -1
    """The number of its end among the calls of the clock."""

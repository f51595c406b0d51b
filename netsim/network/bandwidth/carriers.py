"""Carriers: they move the bytes of messages after the delay, by events, where the duration is not known at the beginning.

A client's own link of constant bandwidth needs no carrier: the seconds of its bytes are added to the delay. Messages of all kinds
(models, updates, probes, opinions, messages between clients) join through a `Port` of their kind.

`VaryingLinks` are clients' own links whose bandwidth changes at times that are not known beforehand. `known_links` has links
whose changes are known. `sharing` and `varying_medium` have links that all clients share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from netsim.core.clock import FIRST, Clock
from netsim.core.errors import ParameterError

if TYPE_CHECKING:
    from netsim.core.protocols import BandwidthLaw, FloatArray, IntArray, State, Timeline
    from netsim.network.draws import Durations, Phases

_EVER = float("inf")


def check_sizes(size_bytes: float | FloatArray | IntArray, clients: int) -> FloatArray:
    """Return the bytes (K,) of each client's message; raises ValueError unless all are > 0 and finite."""
    sizes = np.array(np.broadcast_to(size_bytes, (clients,)), np.float64)
    good = (sizes > 0) & (sizes < _EVER)
    if not good.all():
        size = float(sizes[np.argmin(good)])
        raise ParameterError("size_bytes", size, "must be > 0 bytes and finite")
    return sizes


SERVER = -1
"""Target of messages between a client and the server."""
TRACE_END = "trace-end"
"""Cause of the loss of a message whose link never carries anything again."""
Key = tuple[str, int]
"""Identity of a message on a carrier: its kind, and its number among the messages of that kind."""


class Port:
    """The messages of one kind on `carrier`.

    `size_bytes`: size of every message; None: that of each client's message. `listen` sets the callback for the end of messages.
    """

    __slots__ = ("_carrier", "_kind", "_size", "on_end")

    def __init__(self, carrier: Carrier, kind: str, size_bytes: float | None = None) -> None:
        self._carrier, self._kind, self._size = carrier, kind, size_bytes
        self.on_end: Callable[[int, str | None], None] = lambda number, cause: None

    def listen(self, on_end: Callable[[int, str | None], None]) -> None:
        """Set the callback for messages that arrive or are lost: `on_end(number, cause)`, with the cause of a loss by links or
        None.

        It is called before other events of the instant.
        """
        self.on_end = on_end

    def __contains__(self, number: int) -> bool:
        return (self._kind, number) in self._carrier

    def join(self, number: int, client: int, size_bytes: float | None = None, target: int = SERVER) -> None:
        """Begin message `number` over the link of `client`. `target`: receiving client, or SERVER."""
        size = self._size if size_bytes is None else size_bytes
        self._carrier.join((self._kind, number), client, size, target)

    def leave(self, number: int) -> None:
        """Abort message `number`."""
        self._carrier.leave((self._kind, number))


class Carrier(Protocol):
    """Carries messages in one direction, over the clients' own links or over a shared link."""

    carries: bool
    """True if messages join. False if the time of their bytes is known when they begin."""
    steady: bool
    """True if a message that begins later by some time also ends later by that time: nothing is shared, and no bandwidth
    changes.
    """

    def port(self, kind: str, size_bytes: float | None = None) -> Port:
        """Return the port for messages of `kind`.

        `size_bytes`: one size for all clients; None: the size of each client's message.
        """

    def __contains__(self, key: Key) -> bool:
        """Return True if message `key` is in flight."""

    def join(self, key: Key, client: int, size_bytes: float | None = None, target: int = SERVER) -> None:
        """Begin message `key` over the link of `client`.

        `size_bytes`: size of the message; None: that of the client's messages.

        `target`: receiving node; only carriers with routes use it.
        """

    def leave(self, key: Key) -> None:
        """Abort message `key`."""

    def add_times(self, delays: Durations) -> Phases:
        """Return the delays of the messages, plus the time of their bytes if that is known when they begin."""

    def alone_s(self, round: int, start_s: FloatArray, clients: IntArray) -> FloatArray:
        """Return the seconds (n,) that a message of each of `clients` takes, without other messages; inf: it never arrives.

        `start_s` (n,): beginnings of the messages. The laws are those in force in `round`.
        """

    def open_round(self, round: int, time_s: float) -> None:
        """Apply the bandwidth of `round`, also to messages in flight."""

    def renew(self) -> None:
        """Read the bandwidth again: a script has replaced a law."""

    def is_cut_off(self, client: int, target: int) -> bool:
        """Return True if every message from `client` to `target` is lost from now on, unless another round opens."""

    def resize(self, size_bytes: float | None) -> Carrier:
        """Return the same carrier for messages of `size_bytes`, if it carries bytes without events; otherwise itself."""

    def state_dict(self) -> State:
        """Return the messages in flight, and what the next events depend on."""

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Restore the state at the close of `round` and schedule the next event."""


class NoCarrier:
    """Null object: bytes take a time that is known when they begin, or no time."""

    carries, steady = False, True

    def port(self, kind: str, size_bytes: float | None = None) -> Port:
        """Return a port that no message joins."""
        return Port(self, kind, size_bytes)

    def is_cut_off(self, client: int, target: int) -> bool:
        """Return False: no carrier cuts a message off."""
        return False

    def __contains__(self, key: Key) -> bool:
        return False

    def join(self, key: Key, client: int, size_bytes: float | None = None, target: int = SERVER) -> None:
        """Do nothing: no message joins."""

    def leave(self, key: Key) -> None:
        """Do nothing: no message is in flight."""

    def add_times(self, delays: Durations) -> Phases:
        """Return `delays`: no time of bytes is added."""
        return delays

    def alone_s(self, round: int, start_s: FloatArray, clients: IntArray) -> FloatArray:
        """Return zeros (n,): bytes take no time beyond the delay."""
        return np.zeros(len(clients))

    def open_round(self, round: int, time_s: float) -> None:
        """Do nothing: there is no bandwidth."""

    def renew(self) -> None:
        """Do nothing: there is no bandwidth."""

    def resize(self, size_bytes: float | None) -> Carrier:
        """Return this carrier: sizes do not matter."""
        return self

    def state_dict(self) -> State:
        """Return an empty state."""
        return {}

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Do nothing: there is no state."""


class Ports:
    """Base of carriers by events: it keeps the port of each kind of message."""

    carries, steady = True, False

    def __init__(self) -> None:
        self._ports: dict[str, Port] = {}
        """Port of each kind of message."""

    def port(self, kind: str, size_bytes: float | None = None) -> Port:
        """Return a new port for messages of `kind`, which replaces an earlier one."""
        port = self._ports[kind] = Port(self, kind, size_bytes)  # type: ignore[arg-type]
        return port

    def add_times(self, delays: Durations) -> Phases:
        """Return `delays` alone: the time of the bytes is simulated by events."""
        return delays

    def is_cut_off(self, client: int, target: int) -> bool:
        """Return False: one link in place of routes has no outages."""
        return False

    def resize(self, size_bytes: float | None) -> Self:
        """Return this carrier: each message brings its size when it joins."""
        return self

    def _end(self, key: Key, cause: str | None = None) -> None:
        """Report the end of message `key` to its port: it has arrived, or is lost for `cause`."""
        kind, number = key
        self._ports[kind].on_end(number, cause)

    def _stop(self, key: Key) -> None:
        """Report that message `key` is lost, because its link stops before the last byte."""
        self._end(key, TRACE_END)


class SharedLink(Ports):
    """Base of carriers of one link that all messages share: bytes of messages, and laws of bandwidth.

    `sizes`: bytes of each client's message (K,). `link`: bandwidth of the link (its entity 0). `own`: bandwidth of each client,
    or None.
    """

    def __init__(self, clock: Clock, sizes: FloatArray, link: Timeline[BandwidthLaw], own: Timeline[BandwidthLaw] | None) -> None:
        super().__init__()
        self.clock, self._sizes = clock, sizes
        self._link_timeline, self._own_timeline = link, own
        self._round = 1

    def _laws_at(self, round: int, time_s: float) -> tuple[BandwidthLaw, BandwidthLaw | None, float]:
        """Return (law of the link, law of the clients' own links or None, time until which both hold) in `round` at `time_s`."""
        link, until_s = self._link_timeline.at(round, time_s)
        if self._own_timeline is None:
            return link, None, until_s
        own, own_until_s = self._own_timeline.at(round, time_s)
        return link, own, min(until_s, own_until_s)


class _Message:
    """A message in flight over the link of `client`, with `left` bytes to go at `since_s`.

    It ends at `due_s`. `number` is that of its latest call of the clock.
    """

    __slots__ = ("client", "due_s", "left", "number", "since_s", "stops")

    def __init__(self, client: int, since_s: float, left: float) -> None:
        self.client = client
        self.since_s = since_s
        self.left = left
        self.due_s = _EVER
        """Time at which the message arrives or is lost; inf: unknown."""
        self.stops = False
        """True if the link stops for ever, so that the message is lost at its due time."""
        self.number = -1


class VaryingLinks(Ports):
    """Own links of bandwidth `law`, which a script or a trace may change.

    The law computes the end of a message in one call, and again when it changes. `size_bytes`: bytes of a message, a number or
    one for each client (K,). Raises ValueError for a size that is not > 0.
    """

    def __init__(
        self, *, clock: Clock, clients: int, law: Timeline[BandwidthLaw], size_bytes: float | FloatArray | IntArray
    ) -> None:
        super().__init__()
        self.clock = clock
        self._timeline = law
        self._sizes = check_sizes(size_bytes, clients)
        self._round = 1
        self._law, self._until_s = law.at(1, clock.now)
        """Law in force, and the time until which it is."""
        self._watched_s = -_EVER
        """Change point of the law that is on the clock, seconds."""
        self._under_way: dict[Key, _Message] = {}
        """Messages in flight, by key."""
        self._number = 0
        """Number that the next scheduled end gets."""

    def __contains__(self, key: Key) -> bool:
        return key in self._under_way

    def join(self, key: Key, client: int, size_bytes: float | None = None, target: int = SERVER) -> None:
        """Begin a message, and schedule its end under the present law."""
        if self.clock.now >= self._until_s:
            self.renew()
        size = float(self._sizes[client] if size_bytes is None else size_bytes)
        self._under_way[key] = _Message(client, self.clock.now, size)
        self._schedule_ends([key])

    def leave(self, key: Key) -> None:
        """Abort a message; its call of the clock becomes stale."""
        del self._under_way[key]

    def alone_s(self, round: int, start_s: FloatArray, clients: IntArray) -> FloatArray:
        """Return the seconds (n,) that messages take under the law at the first of `start_s`."""
        law, _ = self._timeline.at(round, float(start_s.min(initial=self.clock.now)))
        return law.ends_s(start_s, self._sizes[clients], clients) - start_s

    def open_round(self, round: int, time_s: float) -> None:
        """Apply the law of `round`, also to messages in flight."""
        self._round = round
        self.renew()

    def renew(self) -> None:
        """Look the law up. If it has changed, subtract the bytes carried so far from each message and schedule the ends again."""
        law, self._until_s = self._timeline.at(self._round, self.clock.now)
        if law is self._law:
            return
        old_law, self._law = self._law, law
        if self._under_way:
            now, messages = self.clock.now, list(self._under_way.values())
            since_s = np.array([message.since_s for message in messages])
            clients = np.array([message.client for message in messages])
            served_bytes = old_law.served_bytes(since_s, np.full(len(messages), now), clients)
            for message, served in zip(messages, served_bytes.tolist(), strict=True):
                message.left = max(message.left - served, 0.0)
                message.since_s = now
            self._schedule_ends(list(self._under_way))

    def _schedule_ends(self, keys: list[Key]) -> None:
        """Compute when the messages `keys` arrive or are lost, and schedule these ends."""
        messages = [self._under_way[key] for key in keys]
        clients = np.array([message.client for message in messages])
        since_s = np.array([message.since_s for message in messages])
        left_bytes = np.array([message.left for message in messages])
        ends_s = self._law.ends_s(since_s, left_bytes, clients)
        # A message that never ends is lost when its link stops for ever, at the earliest when it begins.
        never_ends = ends_s == _EVER
        due_s = np.where(never_ends, np.maximum(self._law.stops_s(clients), since_s), ends_s)
        for key, message, message_due_s, stops in zip(keys, messages, due_s.tolist(), never_ends.tolist(), strict=True):
            message.due_s, message.stops = message_due_s, stops
            self._schedule(key, message)
        self._watch_law()

    def _watch_law(self) -> None:
        """Put the next change point of the law on the clock, if it is known."""
        if self._watched_s < self._until_s < _EVER:
            self._watched_s = self._until_s
            self.clock.call_at(self._until_s, lambda _: self.renew(), None, FIRST)

    def _schedule(self, key: Key, message: _Message) -> None:
        """Put the due time of a message on the clock, under a new number: earlier calls for it become stale."""
        message.number = self._number
        self._number += 1
        if message.due_s < _EVER:
            self.clock.call_at(message.due_s, self._on_alarm, (key, message.number), FIRST)

    def _on_alarm(self, entry: tuple[Key, int]) -> None:
        """Callback at the due time of a message: end it, or stop it if its link stops before the last byte."""
        key, number = entry
        message = self._under_way.get(key)
        if message is None or message.number != number:
            return  # stale call: the message was aborted or rescheduled
        del self._under_way[key]
        if message.stops:
            self._stop(key)
        else:
            self._end(key)

    def state_dict(self) -> State:
        """Return every message in flight: its key, client, start, bytes left, next event and whether it stops then.

        They are in the order in which their events stand on the clock.
        """
        messages = sorted(self._under_way.items(), key=lambda item: item[1].number)
        return {
            "messages": [
                [*key, message.client, message.since_s, message.left, message.due_s, message.stops] for key, message in messages
            ]
        }

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Restore the messages in flight, and schedule their ends."""
        self._round = round
        self._law, self._until_s = self._timeline.at(round, time_s)
        self._under_way = {}
        # Scheduled in the saved order, so that messages that end in one instant keep theirs.
        for kind, number, client, since_s, left_bytes, due_s, stops in state["messages"]:
            key, message = (kind, number), _Message(client, since_s, left=left_bytes)
            message.due_s, message.stops = due_s, stops
            self._under_way[key] = message
            self._schedule(key, message)
        if self._under_way:
            self._watch_law()

"""What carries the bytes of a message once its delay has passed, where that is not known as it begins.

A link of constant bandwidth that is its client's own needs none: its bytes take a number of seconds that is added to the delay.
`VaryingLinks` are clients' own links whose bandwidth changes at times that are not known beforehand, and `known_links` such whose
times are; in `bandwidth_sharing` and `varying_medium` are links that all share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np

from netsim.core.clock import FIRST, Clock
from netsim.core.errors import ParameterError

if TYPE_CHECKING:
    from netsim.core.protocols import BandwidthLaw, FloatArray, IntArray, State, Timeline
    from netsim.network.draws import Durations, Phases

_EVER = float("inf")


def check_sizes(size_bytes: float | FloatArray | IntArray, clients: int) -> FloatArray:
    """(K,) bytes of each client's message; raises ValueError unless all are > 0 and finite."""
    sizes = np.array(np.broadcast_to(size_bytes, (clients,)), np.float64)
    good = (sizes > 0) & (sizes < _EVER)
    if not good.all():
        size = float(sizes[np.argmin(good)])
        raise ParameterError("size_bytes", size, "must be > 0 bytes and finite")
    return sizes


class Carrier(Protocol):
    """Carries one message of each client at a time, all in one direction."""

    carries: bool
    """Whether there is anything to do; False: nobody joins, since the bytes take a time that is known as the message begins."""
    on_end: Callable[[int], None]
    """Told of each client whose message is through; ends come before all else of their instant."""
    on_stop: Callable[[int], None]
    """Told of each client whose message is lost, since its link will never carry anything again."""

    def __contains__(self, client: int) -> bool:
        """Whether a message of `client` is under way."""

    def join(self, client: int, size_bytes: float | None = None) -> None:
        """The message of `client`, which has none under way, begins now; `size_bytes`: where it is of another size."""

    def leave(self, client: int) -> None:
        """The message of `client` is aborted."""

    def timed(self, delays: Durations) -> Phases:
        """The delays of the messages, together with the time of their bytes where that is known as they begin."""

    def alone_s(self, round: int, start_s: FloatArray, clients: IntArray) -> FloatArray:
        """Seconds that messages of `clients` (n,) begun at `start_s` (n,) would take if nobody shared; inf: for ever; (n,).

        Under the laws in force in `round`.
        """

    def open_round(self, round: int, time_s: float) -> None:
        """`round` begins: where its bandwidth is another one, what is under way is timed again."""

    def renew(self) -> None:
        """A law was replaced from outside: what is under way is timed again."""

    def beside(self, size_bytes: float | None) -> Carrier:
        """For other messages on the same links, of one size for all clients (None: of the same sizes), while it carries these."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Go on from the state at the close of `round`; what comes next is put on the clock."""


class NoCarrier:
    """Nothing is carried: bytes take a time that is known as they begin, or none."""

    carries = False

    def __init__(self) -> None:
        self.on_end: Callable[[int], None] = lambda client: None
        self.on_stop: Callable[[int], None] = lambda client: None

    def __contains__(self, client: int) -> bool:
        return False

    def join(self, client: int, size_bytes: float | None = None) -> None:
        """Nobody joins."""

    def leave(self, client: int) -> None:
        """Nobody is there."""

    def timed(self, delays: Durations) -> Phases:
        return delays

    def alone_s(self, round: int, start_s: FloatArray, clients: IntArray) -> FloatArray:
        return np.zeros(len(clients))

    def open_round(self, round: int, time_s: float) -> None:
        """Nothing changes."""

    def renew(self) -> None:
        """Nothing changes."""

    def beside(self, size_bytes: float | None) -> Carrier:
        return NoCarrier()

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        return None


class Beside:
    """Other messages on the links of `carrier`, of `size_bytes` (None: of the same sizes); a client sends one or the other.

    Its own state is who sends what: it is to be used for what has ended before a state is saved.
    """

    carries = True

    def __init__(self, carrier: Carrier, size_bytes: float | None) -> None:
        self.on_end: Callable[[int], None] = lambda client: None
        self.on_stop: Callable[[int], None] = lambda client: None
        self._carrier = carrier
        self._size = size_bytes
        self._mine: set[int] = set()
        self._end_of_others, self._stop_of_others = carrier.on_end, carrier.on_stop
        carrier.on_end, carrier.on_stop = self._end, self._stop

    def __contains__(self, client: int) -> bool:
        return client in self._mine

    def join(self, client: int, size_bytes: float | None = None) -> None:
        self._mine.add(client)
        self._carrier.join(client, self._size if size_bytes is None else size_bytes)

    def leave(self, client: int) -> None:
        self._mine.remove(client)
        self._carrier.leave(client)

    def _end(self, client: int) -> None:
        if client in self._mine:
            self._mine.remove(client)
            self.on_end(client)
        else:
            self._end_of_others(client)

    def _stop(self, client: int) -> None:
        if client in self._mine:
            self._mine.remove(client)
            self.on_stop(client)
        else:
            self._stop_of_others(client)

    def timed(self, delays: Durations) -> Phases:
        return delays

    def alone_s(self, round: int, start_s: FloatArray, clients: IntArray) -> FloatArray:
        return self._carrier.alone_s(round, start_s, clients)

    def open_round(self, round: int, time_s: float) -> None:
        """The carrier is told by others."""

    def renew(self) -> None:
        """The carrier is told by others."""

    def beside(self, size_bytes: float | None) -> Carrier:
        return Beside(self._carrier, size_bytes)

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        return None


class _Message:
    """A message under way: at `since_s` it had `left` bytes to go."""

    __slots__ = ("due_s", "left", "number", "since_s", "stops")

    def __init__(self, since_s: float, left: float) -> None:
        self.since_s = since_s
        self.left = left
        self.due_s = _EVER
        self.stops = False
        """Whether it is lost as it is due, and not through."""
        self.number = -1


class VaryingLinks:
    """Own links whose bandwidth is `law`: the end of a message is one question to it, asked again where the law changes.

    `size_bytes`: of the messages, a number or one a client (K,). Raises ValueError for a size that is not > 0.
    """

    carries = True

    def __init__(
        self, *, clock: Clock, clients: int, law: Timeline[BandwidthLaw], size_bytes: float | FloatArray | IntArray
    ) -> None:
        self.clock = clock
        self.on_end: Callable[[int], None] = lambda client: None
        self.on_stop: Callable[[int], None] = lambda client: None
        self._timeline = law
        self._sizes = check_sizes(size_bytes, clients)
        self._round = 1
        self._law, self._until_s = law.at(1, clock.now)
        self._watched_s = -_EVER
        """The change point that stands on the clock."""
        self._under_way: dict[int, _Message] = {}
        self._number = 0

    def __contains__(self, client: int) -> bool:
        return client in self._under_way

    def join(self, client: int, size_bytes: float | None = None) -> None:
        if self.clock.now >= self._until_s:
            self.renew()
        self._under_way[client] = _Message(self.clock.now, float(self._sizes[client] if size_bytes is None else size_bytes))
        self._time([client])

    def leave(self, client: int) -> None:
        del self._under_way[client]

    def beside(self, size_bytes: float | None) -> Carrier:
        return Beside(self, size_bytes)

    def timed(self, delays: Durations) -> Phases:
        return delays

    def alone_s(self, round: int, start_s: FloatArray, clients: IntArray) -> FloatArray:
        law, _ = self._timeline.at(round, float(start_s.min(initial=self.clock.now)))
        return law.ends_s(start_s, self._sizes[clients], clients) - start_s

    def open_round(self, round: int, time_s: float) -> None:
        self._round = round
        self.renew()

    def renew(self) -> None:
        law, self._until_s = self._timeline.at(self._round, self.clock.now)
        if law is self._law:
            return
        before, self._law = self._law, law
        if self._under_way:
            now, clients = self.clock.now, list(self._under_way)
            since_s = np.array([message.since_s for message in self._under_way.values()])
            served = before.served_bytes(since_s, np.full(len(clients), now), np.array(clients))
            for message, bytes_served in zip(self._under_way.values(), served.tolist(), strict=True):
                message.left = max(message.left - bytes_served, 0.0)
                message.since_s = now
            self._time(clients)

    def _time(self, clients: list[int]) -> None:
        """Find out when the messages of `clients` are through, or lost, and put that on the clock."""
        messages, who = [self._under_way[client] for client in clients], np.array(clients)
        since_s = np.array([message.since_s for message in messages])
        ends_s = self._law.ends_s(since_s, np.array([message.left for message in messages]), who)
        stopping = ends_s == _EVER
        due_s = np.where(stopping, np.maximum(self._law.stops_s(who), since_s), ends_s)
        for client, message, due, stops in zip(clients, messages, due_s.tolist(), stopping.tolist(), strict=True):
            message.due_s, message.stops = due, stops
            self._schedule(client, message)
        self._watch()

    def _watch(self) -> None:
        """Put the next change point of the law on the clock, if it is known."""
        if self._watched_s < self._until_s < _EVER:
            self._watched_s = self._until_s
            self.clock.call_at(self._until_s, lambda _: self.renew(), None, FIRST)

    def _schedule(self, client: int, message: _Message) -> None:
        message.number = self._number
        self._number += 1
        if message.due_s < _EVER:
            self.clock.call_at(message.due_s, self._ring, (client, message.number), FIRST)

    def _ring(self, entry: tuple[int, int]) -> None:
        client, number = entry
        message = self._under_way.get(client)
        if message is None or message.number != number:
            return  # aborted, or timed again since
        del self._under_way[client]
        (self.on_stop if message.stops else self.on_end)(client)

    def state_dict(self) -> State:
        """What every message under way has left, in the order in which they stand on the clock."""
        messages = sorted(self._under_way.items(), key=lambda one: one[1].number)
        fields = [(client, one.since_s, one.left, one.due_s, one.stops) for client, one in messages]
        return {"messages": [list(one) for one in fields]}

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        self._round = round
        self._law, self._until_s = self._timeline.at(round, time_s)
        self._under_way = {}
        for client, since_s, left, due_s, stops in state["messages"]:
            message = self._under_way[client] = _Message(since_s, left)
            message.due_s, message.stops = due_s, stops
            self._schedule(client, message)
        if self._under_way:
            self._watch()

"""A link that all messages in flight share: processor sharing (Kleinrock 1967), with a limit for each client.

The bandwidth is shared max-min fairly (Bertsekas and Gallager 1992, Section 6.5.2): n messages in flight get B/n each, but none
more than its client's limit; bandwidth that limited messages leave goes to the others. All messages of one limit have the same
rate, so they are kept together as a class (`netsim.network.flows.bundle`), and one call of the clock stands for the next end of
all. An event costs O(log n) and a step for each limit between the old share and the new one; a change of the limits costs O(n).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from netsim.core.clock import FIRST, Clock
from netsim.network.bandwidth.carriers import SERVER, Key, SharedLink, check_sizes
from netsim.network.flows.bundle import Bundle, FlowClass

if TYPE_CHECKING:
    from netsim.core.protocols import BandwidthLaw, FloatArray, IntArray, State, Timeline

_NEVER = float("inf")
_LINK: IntArray = np.zeros(1, np.int64)


class SharedMedium(SharedLink):
    """Messages share a link of bandwidth `link` (its entity 0).

    A message is never faster than its client's `own` bandwidth, if given. `size_bytes`: bytes of a message, a number or one for
    each client (K,). Both timelines must consist of constant laws; a change of law also affects messages in flight. Ends come
    before other events of their instant. See `VaryingMedium` for bandwidths that vary. Raises ValueError for a size that is not
    > 0.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        clients: int,
        size_bytes: float | FloatArray | IntArray,
        link: Timeline[BandwidthLaw],
        own: Timeline[BandwidthLaw] | None = None,
    ) -> None:
        super().__init__(clock, check_sizes(size_bytes, clients), link, own)
        self._everyone: IntArray = np.arange(clients)
        self._laws: tuple[BandwidthLaw, BandwidthLaw | None] | None = None
        """Laws in force: of the link, and of the clients' own links or None."""
        self._until_s = _NEVER
        """Time until which they are in force, seconds."""
        self.bandwidth = 0.0
        """Bandwidth of the shared link now, bytes/s."""
        self._limits: FloatArray = np.zeros(clients)
        """Present bandwidth (K,) of each client's own link, bytes/s; inf if it does not limit."""
        self._look_up(clock.now)
        self._bundle = Bundle(clock.now)
        """The classes of messages in flight, with their rates."""
        self._classes: dict[float, FlowClass] = {}
        """Classes of messages in flight, by the limit of the client."""
        self._members: dict[Key, tuple[FlowClass, int]] = {}
        """Class and number of each message in flight."""
        self._keys: dict[int, tuple[Key, int]] = {}
        """Messages in flight and their clients, by number."""
        self._number = self._class_number = 0
        self._due_s = _NEVER
        """Time of the next event: a message ends, or the laws change."""
        self._alarm_s = _NEVER
        """Time of the valid call of `_on_alarm`."""

    def __contains__(self, key: Key) -> bool:
        return key in self._members

    def __len__(self) -> int:
        return len(self._members)

    def alone_s(self, round: int, start_s: FloatArray, clients: IntArray) -> FloatArray:
        """Return the seconds (n,) that a message of each client takes alone on the link, at the present constant bandwidths."""
        now = float(start_s.min(initial=self.clock.now))
        link, own, _ = self._laws_at(round, now)
        bandwidth = float(link.rate(now, _LINK)[0])
        rates = np.full(len(clients), bandwidth) if own is None else np.minimum(own.rate(now, clients), bandwidth)
        return np.asarray(self._sizes[clients] / rates)

    def join(self, key: Key, client: int, size_bytes: float | None = None, target: int = SERVER) -> None:
        """Begin a message, and set the rates of all again."""
        if self.clock.now >= self._until_s:
            self.renew()
        size = float(self._sizes[client] if size_bytes is None else size_bytes)
        self._add(self._number, key, client, left_bytes=size)
        self._number += 1
        self._set_rates()

    def leave(self, key: Key) -> None:
        """Abort a message, and set the rates of the others again."""
        flow_class, number = self._members.pop(key)
        del self._keys[number]
        self._bundle.drop(flow_class, number, self.clock.now)
        self._forget_if_empty(flow_class)
        self._set_rates()

    def open_round(self, round: int, time_s: float) -> None:
        """Apply the bandwidths of `round`, also to messages in flight."""
        self._round = round
        self.renew()

    def renew(self) -> None:
        """Apply changed laws to messages in flight."""
        if self._look_up(self.clock.now):
            self._regroup()
            self._set_rates()

    def _look_up(self, now: float) -> bool:
        """Update the laws in force, the bandwidth and the clients' limits; return True if they have changed."""
        link, own, self._until_s = self._laws_at(self._round, now)
        if self._laws is not None and self._laws[0] is link and self._laws[1] is own:
            return False
        self._laws = link, own
        self.bandwidth = float(link.rate(now, _LINK)[0])
        limits = np.full(len(self._everyone), _NEVER) if own is None else own.rate(now, self._everyone)
        # A limit above the bandwidth has no effect: such clients share a class with clients without a limit.
        self._limits = np.where(limits >= self.bandwidth, _NEVER, limits)
        return True

    def _add(self, number: int, key: Key, client: int, left_bytes: float) -> None:
        """Add a message with `left_bytes` bytes to go to the class of its client's limit."""
        limit, now = float(self._limits[client]), self.clock.now
        flow_class = self._classes.get(limit)
        if flow_class is None:
            flow_class = self._classes[limit] = FlowClass(limit, self._class_number)
            self._class_number += 1
            self._bundle.insert(flow_class, now)
        # `number` twice: it orders ends of one time, and is the key that the end returns.
        self._bundle.add(flow_class, left_bytes, number=number, key=number, now_s=now)
        self._members[key] = flow_class, number
        self._keys[number] = key, client

    def _regroup(self) -> None:
        """Move messages in flight whose limits have changed to the classes of their new limits, with their bytes left."""
        now = self.clock.now
        moving = {
            number: flow_class for flow_class, number in self._members.values() if flow_class.limit != self._limit_of(number)
        }
        # Bytes that the class of each message has served when the message ends.
        served_at_end = {number: served for flow_class in set(moving.values()) for served, number, _ in flow_class.queue}
        # Compute all bytes left before the first message moves: a class that becomes empty has no virtual time any more.
        left_bytes = {
            number: max(served_at_end[number] - self._bundle.served_bytes(flow_class, now), 0.0)
            for number, flow_class in moving.items()
        }
        for number, flow_class in moving.items():
            self._bundle.drop(flow_class, number, now)
            self._forget_if_empty(flow_class)
            key, client = self._keys[number]
            self._add(number, key, client, left_bytes[number])

    def _limit_of(self, number: int) -> float:
        """Return the present limit of the client of a message in flight."""
        _, client = self._keys[number]
        return float(self._limits[client])

    def _forget_if_empty(self, flow_class: FlowClass) -> None:
        """Remove a class if it has no messages any more."""
        if not flow_class.count:
            self._bundle.remove(flow_class, self.clock.now)
            del self._classes[flow_class.limit]

    def _set_rates(self) -> None:
        """Set all rates from now on, and schedule the call at the next end."""
        bundle = self._bundle
        bundle.settle(bundle.fill(self.bandwidth), self.clock.now)
        self._due_s = self._next_s()
        self._call_at_next_end()

    def _next_s(self) -> float:
        """Return the time at which the next message ends, or the laws change for messages in flight."""
        return min(self._bundle.next_end_s(), self._until_s) if self._members else _NEVER

    def _call_at_next_end(self) -> None:
        """Put the next event on the clock, unless a call for an earlier time is there."""
        if self._due_s < self._alarm_s:
            self._alarm_s = self._due_s
            self.clock.call_at(self._due_s, self._on_alarm, self._due_s, FIRST)

    def _on_alarm(self, at_s: float) -> None:
        """Callback at the expected time of the next event: end the messages that are due, and apply new laws."""
        if at_s != self._alarm_s:
            return  # a call for an earlier time has taken its place
        self._alarm_s = _NEVER
        # Messages that began after the call was set may have delayed the end: then only a later call is set.
        while self._due_s <= at_s:
            popped = self._bundle.pop_end(at_s)
            if popped is None:
                break
            flow_class, number = popped
            key, _ = self._keys.pop(number)
            del self._members[key]
            self._forget_if_empty(flow_class)
            # Set the rates before the report: a receiver may begin or abort messages, and must find this one gone.
            self._set_rates()
            self._end(key)
        if at_s >= self._until_s:
            self.renew()
            self._due_s = self._next_s()
        self._call_at_next_end()

    def state_dict(self) -> State:
        """Return the bytes carried for every message in flight, and the shared bandwidth."""
        keys = [[number, *key, client] for number, (key, client) in self._keys.items()]
        return {
            "number": self._number,
            "class_number": self._class_number,
            "keys": keys,
            "bundle": self._bundle.state(),
            "bandwidth": self.bandwidth,
        }

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Restore a saved state and schedule the next end."""
        self._round, self._laws = round, None
        self._look_up(time_s)
        self._number, self._class_number = state["number"], state["class_number"]
        saved = state["bundle"]
        self._keys = {number: ((kind, place), client) for number, kind, place, client in state["keys"]}
        self._bundle, self._classes, self._members = Bundle(time_s), {}, {}
        for fields in saved["classes"]:
            flow_class = FlowClass(fields["limit"], fields["number"])
            flow_class.load(fields)
            self._classes[flow_class.limit] = flow_class
            self._members |= {self._keys[number][0]: (flow_class, number) for _, number, _ in flow_class.queue}
        self._bundle.load(saved, list(self._classes.values()))
        # The saved rates still follow the earlier law if a law came into force at the instant of the save: apply it now.
        has_new_limit = any(flow_class.limit != self._limit_of(number) for flow_class, number in self._members.values())
        if has_new_limit or self.bandwidth != state["bandwidth"]:
            self._regroup()
            self._set_rates()
        elif self._members:
            self._due_s = self._next_s()
            self._call_at_next_end()

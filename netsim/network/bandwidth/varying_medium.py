"""A link that all messages in flight share, for bandwidths (of the link or of clients) that change over time.

The bandwidth is shared max-min fairly (Bertsekas and Gallager 1992, Section 6.5.2): client k's rate is min(B_k(t), level), with
one level for all such that the link is full or every message has its limit B_k(t). Between two events all rates are constant. An
event is a message that begins, ends or is aborted, or a change of a bandwidth in use; it costs a few steps over arrays of the
messages in flight. For constant bandwidths `netsim.network.bandwidth.sharing` does the same in logarithmic time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from netsim.core.clock import FIRST, Clock
from netsim.network.bandwidth.carriers import SERVER, Key, SharedLink, check_sizes

if TYPE_CHECKING:
    from netsim.core.protocols import BandwidthLaw, BoolArray, FloatArray, IntArray, State, Timeline

_EVER = float("inf")
_ROUNDING = 1e-12
"""Share of a message that counts as rounding error of the sum of carried bytes."""
_LINK: IntArray = np.zeros(1, np.int64)


def fair_level(limits: FloatArray, capacity: float) -> float:
    """Return the level with sum(min(limits, level)) = `capacity`; inf if the sum of the limits (n,) is not larger.

    O(n): each step decides half of the undecided limits, because either those below their median lie below the level, or those
    above it lie above.
    """
    if float(limits.sum()) <= capacity:
        return _EVER
    # Sum of the limits known to lie below the level, and number of limits known to lie above it.
    sum_below, count_above = 0.0, 0
    undecided = limits
    while len(undecided):
        middle = len(undecided) // 2
        median = float(np.partition(undecided, middle)[middle])
        low, high = undecided[undecided <= median], undecided[undecided > median]
        # The load if the level were the median.
        load = sum_below + float(low.sum()) + median * (len(high) + count_above)
        if load <= capacity:
            sum_below += float(low.sum())
            undecided = high
        else:
            count_above += int(np.count_nonzero(undecided >= median))
            undecided = undecided[undecided < median]
    return (capacity - sum_below) / count_above if count_above else _EVER


class VaryingMedium(SharedLink):
    """Messages share a link of bandwidth `link` (its entity 0).

    A message is never faster than its client's `own` bandwidth, if given. Twin of `SharedMedium` for bandwidths that vary over
    time: with constant ones both give the same ends up to rounding. `size_bytes`: bytes of a message, a number or one for each
    client (K,). Raises ValueError for a size that is not > 0.
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
        self._link, self._own, self._until_s = self._laws_at(1, clock.now)
        self._capacity = 0.0
        """Present bandwidth of the link, bytes per second."""
        self._link_changes_s = -_EVER
        """Time of the next change of the capacity, seconds."""
        self._keys: list[Key] = []
        """Messages in flight, in order; the arrays below have an entry for each."""
        self._clients: list[int] = []
        """Client of each message."""
        self._whole: FloatArray = np.zeros(0)
        """Size of each message, bytes."""
        self._left: FloatArray = np.zeros(0)
        """Bytes left of each message, at `_since_s`."""
        self._rates: FloatArray = np.zeros(0)
        """Bytes per second of each message from `_since_s` on."""
        self._limits: FloatArray = np.zeros(0)
        """Bandwidth of each message's client, bytes per second; inf if it has none of its own."""
        self._changes_s: FloatArray = np.zeros(0)
        """Times of the next changes of the limits, seconds."""
        self._stops_s: FloatArray = np.zeros(0)
        """Times from which on the limit is 0 for ever, seconds."""
        self._since_s = clock.now
        """Time at which `_left` holds, seconds."""
        self._alarm_s = _EVER
        """Time of the valid call of `_on_alarm`; inf: none."""
        self._ringing = False
        """True while `_on_alarm` reports ends: rates are set once, afterwards."""

    def __contains__(self, key: Key) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def alone_s(self, round: int, start_s: FloatArray, clients: IntArray) -> FloatArray:
        """Return the seconds (n,) that messages which begin at `start_s` (n,) would take alone; inf: they never arrive."""
        link, own, _ = self._laws_at(round, float(start_s.min(initial=self.clock.now)))
        if own is None:
            return link.ends_s(start_s, self._sizes[clients], np.zeros_like(clients)) - start_s
        seconds = []
        for client, begin_s, size in zip(clients.tolist(), start_s.tolist(), self._sizes[clients].tolist(), strict=True):
            seconds.append(_alone_end_s(link, own, np.array([client]), begin_s, size) - begin_s)
        return np.array(seconds)

    def join(self, key: Key, client: int, size_bytes: float | None = None, target: int = SERVER) -> None:
        """Begin a message, and set the rates of all again."""
        self._advance()
        clients, now = np.array([client]), self._since_s
        if now >= self._until_s:
            self._look_up(now)
        # Without a bandwidth of its own a client sets no limit, which never changes or stops.
        limit, change_s, stop_s = np.full(1, _EVER), np.full(1, _EVER), np.full(1, _EVER)
        if self._own is not None:
            limit, change_s = self._own.rate(now, clients), self._own.next_change_s(now, clients)
            stop_s = self._own.stops_s(clients)
        size = self._sizes[client] if size_bytes is None else size_bytes
        self._keys.append(key)
        self._clients.append(client)
        self._whole, self._left = np.append(self._whole, size), np.append(self._left, size)
        self._limits = np.append(self._limits, limit)
        self._changes_s = np.append(self._changes_s, change_s)
        self._stops_s = np.append(self._stops_s, stop_s)
        self._set_rates()

    def leave(self, key: Key) -> None:
        """Abort a message, and set the rates of the others again."""
        self._advance()
        self._remove(self._keys.index(key))
        self._set_rates()

    def open_round(self, round: int, time_s: float) -> None:
        """Apply the bandwidths of `round`, also to messages in flight."""
        self._round = round
        self.renew()

    def renew(self) -> None:
        """Apply changed laws to messages in flight."""
        if self._look_up(self.clock.now):
            self._advance()
            self._set_rates()

    def _look_up(self, now: float) -> bool:
        """Update the laws in force; return True if they have changed. Rates stay until the next `_set_rates`."""
        old_link, old_own = self._link, self._own
        self._link, self._own, self._until_s = self._laws_at(self._round, now)
        if self._link is old_link and self._own is old_own:
            return False
        # -inf: `_set_rates` reads these bandwidths again.
        self._link_changes_s = -_EVER
        if self._own is not None:
            self._changes_s[:] = -_EVER
            self._stops_s = self._own.stops_s(np.array(self._clients, np.int64))
        return True

    def _advance(self) -> None:
        """Bring the bytes left up to the present time."""
        now = self.clock.now
        if now > self._since_s:
            self._left = np.maximum(self._left - (now - self._since_s) * self._rates, 0.0)
        self._since_s = now

    def _remove(self, place: int) -> None:
        """Remove the message at `place`."""
        del self._keys[place], self._clients[place]
        stays = np.arange(len(self._left)) != place
        self._whole, self._left, self._limits = self._whole[stays], self._left[stays], self._limits[stays]
        # `_rates` is set again by `_set_rates`, which follows.
        self._changes_s, self._stops_s = self._changes_s[stays], self._stops_s[stays]

    def _set_rates(self) -> None:
        """Set the rates of all messages from now on, and schedule the next event."""
        if self._ringing:
            return  # `_on_alarm` sets the rates once all ends of this instant are reported
        if not self._clients:
            self._rates, self._alarm_s = np.zeros(0), _EVER
            return
        now = self._since_s
        # Look up only what has changed: a bandwidth is read again at its own change point, -inf after a change of law.
        if now >= self._until_s:
            self._look_up(now)
        if self._link_changes_s <= now:
            self._capacity = float(self._link.rate(now, _LINK)[0])
            self._link_changes_s = float(self._link.next_change_s(now, _LINK)[0])
        changed = np.flatnonzero(self._changes_s <= now)
        if changed.size and self._own is not None:
            clients = np.array(self._clients)[changed]
            self._limits[changed] = self._own.rate(now, clients)
            self._changes_s[changed] = self._own.next_change_s(now, clients)
        self._rates = np.minimum(self._limits, fair_level(self._limits, self._capacity))
        next_s = min(float(self._changes_s.min()), self._link_changes_s, self._until_s)
        stops_s = max(float(self._stops().min()), now)
        self._ring_at(min(next_s, stops_s, float(self._ends().min())))

    def _stops(self) -> FloatArray:
        """Return the times from which on each message gets no bytes for ever; inf: never."""
        return np.minimum(self._stops_s, float(self._link.stops_s(_LINK)[0]))

    def _ends(self) -> FloatArray:
        """Return the time at which each message would arrive if its rate stayed the same."""
        with np.errstate(divide="ignore", invalid="ignore"):
            lasts_s = np.where(self._left > 0.0, self._left / self._rates, 0.0)
        return self._since_s + lasts_s

    def _ring_at(self, time_s: float) -> None:
        """Put the next event on the clock at `time_s`, in place of an earlier alarm; inf: there is none."""
        if time_s != self._alarm_s:
            self._alarm_s = time_s
            if time_s < _EVER:
                self.clock.call_at(time_s, self._on_alarm, time_s, FIRST)

    def _on_alarm(self, at_s: float) -> None:
        """Callback at the expected time of the next event: end the messages that are due, stop those whose links have stopped
        for ever, and set new rates.
        """
        if at_s != self._alarm_s:
            return  # a call for another time has taken its place
        self._alarm_s = _EVER
        ended = self._ends() <= at_s
        self._advance()
        # Bytes left by rounding count as carried; otherwise the message could wait for the end of a pause that begins now.
        ended |= self._left <= _ROUNDING * self._whole
        self._left[ended] = 0.0
        # Ends come before stops: a message whose last byte passes as its link stops has arrived.
        self._ringing = True
        self._end_messages(ended, self._end)
        self._end_messages(self._stops() <= at_s, self._stop)
        self._ringing = False
        self._set_rates()

    def _end_messages(self, ended: BoolArray, report: Callable[[Key], None]) -> None:
        """Remove the messages where `ended` (n,) is True and call `report` with each. Calls may abort or begin other messages."""
        # Places shift as messages are removed, so remember keys; a report may have removed some of them already.
        for key in [self._keys[place] for place in np.flatnonzero(ended).tolist()]:
            if key in self._keys:
                self._remove(self._keys.index(key))
                report(key)

    def state_dict(self) -> State:
        """Return the bytes left and the rate of every message in flight, and the next change."""
        return {
            "keys": [list(key) for key in self._keys],
            "clients": list(self._clients),
            "whole": self._whole.copy(),
            "left": self._left.copy(),
            "rates": self._rates.copy(),
            "since_s": self._since_s,
            "rings_s": self._alarm_s,
        }

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Restore the messages in flight with their rates, and schedule the next event."""
        self._round = round
        self._link, self._own, self._until_s = self._laws_at(round, time_s)
        self._keys = [(kind, number) for kind, number in state["keys"]]
        self._clients = list(state["clients"])
        self._whole, self._left, self._rates = state["whole"].copy(), state["left"].copy(), state["rates"].copy()
        self._since_s = state["since_s"]
        count, since_s = len(self._clients), self._since_s
        # Without a bandwidth of its own a client sets no limit, which never changes or stops.
        self._limits, self._changes_s, self._stops_s = np.full(count, _EVER), np.full(count, _EVER), np.full(count, _EVER)
        if self._own is not None:
            clients = np.array(self._clients, np.int64)
            self._limits, self._changes_s = self._own.rate(since_s, clients), self._own.next_change_s(since_s, clients)
            self._stops_s = self._own.stops_s(clients)
        self._capacity = float(self._link.rate(since_s, _LINK)[0])
        self._link_changes_s = float(self._link.next_change_s(since_s, _LINK)[0])
        self._alarm_s = _EVER
        self._ring_at(state["rings_s"])


def _alone_end_s(link: BandwidthLaw, own: BandwidthLaw, client: IntArray, start_s: float, size_bytes: float) -> float:
    """Return the time at which a message that is alone on both links arrives; inf: never.

    It arrives when the integral of the smaller bandwidth reaches its size. `client`: array of one client.
    """
    # Both bandwidths are constant between two change points: integrate piece by piece.
    now, left_bytes = start_s, size_bytes
    stops_s = min(float(link.stops_s(_LINK)[0]), float(own.stops_s(client)[0]))
    while now < stops_s:
        rate = min(float(link.rate(now, _LINK)[0]), float(own.rate(now, client)[0]))
        until_s = min(float(link.next_change_s(now, _LINK)[0]), float(own.next_change_s(now, client)[0]))
        if rate > 0.0 and now + left_bytes / rate <= until_s:
            return now + left_bytes / rate
        left_bytes -= (until_s - now) * rate
        now = until_s
    return _EVER

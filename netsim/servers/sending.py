"""The opinions of a slot on their way to the server: all in a few steps over arrays, or one event after the other.

A lost one is sent again, up to a limit. Where nobody slows down another and nothing is timed again, all first sendings are one
step over arrays, all second ones another; where opinions share a bandwidth, or it changes under them, each is an event on a clock
of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from netsim.core.clock import Clock
    from netsim.core.protocols import BoolArray, FloatArray, IntArray
    from netsim.network.carriers import Carrier
    from netsim.network.outages import ClientOutages
    from netsim.network.resending import Resending

_EVER = math.inf


@dataclass(frozen=True, slots=True)
class Sending:
    """How opinions are sent: a delay, then their bytes, again if they are lost."""

    resending: Resending
    draws: Callable[[int], tuple[FloatArray, BoolArray]]
    """Of an attempt, 0 the first: each client's delay in seconds, and whether its channel lets it through; (K,) both."""
    outages: ClientOutages | None
    on_sending: Callable[[IntArray, FloatArray, FloatArray], None]
    """Told of every sending: of which clients (n,), from when (n,) to when (n,)."""


def all_at_once(
    sending: Sending, bytes_s: Callable[[FloatArray], FloatArray], ready_s: FloatArray, limit_s: float
) -> tuple[FloatArray, BoolArray]:
    """When each client's last sending ends, and whether it arrives, (K,) both; the first sets out at `ready_s` (K,).

    `bytes_s`: how long the bytes take that begin at times (K,). What is under way at `limit_s` is cut off there: times after it
    are those of sendings that nobody waits for.
    """
    time_s = np.array(ready_s)
    everyone = np.arange(len(time_s))
    waiting = np.ones(len(time_s), np.bool_)
    for attempt in range(sending.resending.max_resends + 1):
        delays_s, arrives = sending.draws(attempt)
        start_s = time_s + (sending.resending.resend_after_s if attempt else 0.0)
        bytes_begin_s = start_s + delays_s
        time_s = np.where(waiting, bytes_begin_s + bytes_s(bytes_begin_s), time_s)
        begun = waiting & (start_s < limit_s)
        sending.on_sending(everyone[begun], start_s[begun], np.minimum(time_s[begun], limit_s))
        if sending.outages is not None:
            arrives &= ~sending.outages.destroyed(start_s, time_s)
        waiting &= ~arrives
        if not waiting.any():
            break
    return time_s, ~waiting


def one_by_one(
    sending: Sending, clock: Clock, carrier: Carrier, ready_s: FloatArray, limit_s: float
) -> tuple[FloatArray, BoolArray]:
    """As `all_at_once`, with bytes that `carrier` carries on `clock`; what is under way at `limit_s` is cut off there."""
    exchange = _Exchange(sending, clock, carrier, ready_s)
    while exchange.open and clock.peek() <= limit_s and clock.peek() < _EVER:
        clock.step()
    # Without a limit, what will never end is waited for no longer than all else.
    exchange.cut(limit_s if limit_s < _EVER else clock.now)
    return exchange.time_s, exchange.arrived


class _Exchange:
    """The opinions under way, from the first to set out."""

    def __init__(self, sending: Sending, clock: Clock, carrier: Carrier, ready_s: FloatArray) -> None:
        self._sending, self._clock, self._port = sending, clock, carrier.port("opinion")
        self.time_s: FloatArray = np.array(ready_s)
        self.arrived: BoolArray = np.zeros(len(ready_s), np.bool_)
        self.open: dict[int, tuple[int, float]] = {}
        """Of each client of whom something may still arrive: the attempt, and since when it is being sent."""
        self._drawn: list[tuple[list[float], list[bool]]] = []
        self._port.on_end = lambda client: self._ended(client, through=True)
        self._port.on_stop = lambda client: self._ended(client, through=False)
        for client, start_s in enumerate(ready_s.tolist()):
            self._begin(client, 0, start_s)

    def _begin(self, client: int, attempt: int, start_s: float) -> None:
        self.open[client] = attempt, start_s
        while len(self._drawn) <= attempt:
            delays_s, arrives = self._sending.draws(len(self._drawn))
            self._drawn.append((delays_s.tolist(), arrives.tolist()))
        self._clock.call_at(start_s + self._drawn[attempt][0][client], lambda one: self._port.join(one, one), client)

    def _ended(self, client: int, *, through: bool) -> None:
        now, sending = self._clock.now, self._sending
        attempt, start_s = self.open.pop(client)
        self._tell(client, start_s, now)
        met = sending.outages is not None and sending.outages.cause(client, start_s, now) is not None
        if through and self._drawn[attempt][1][client] and not met:
            self.arrived[client] = True
        elif attempt < sending.resending.max_resends:
            self._begin(client, attempt + 1, now + sending.resending.resend_after_s)

    def _tell(self, client: int, start_s: float, end_s: float) -> None:
        self.time_s[client] = end_s
        self._sending.on_sending(np.array([client]), np.array([start_s]), np.array([end_s]))

    def cut(self, limit_s: float) -> None:
        """Nobody waits any more for what is still under way."""
        for client, (_, start_s) in self.open.items():
            if start_s < limit_s:
                self._tell(client, start_s, limit_s)
            self.time_s[client] = limit_s

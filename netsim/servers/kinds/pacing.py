"""Pacing of a buffered server: a new model by the number of deliveries, or by the time since the last model.

The rule by time is that of Pisces (Jiang, Wang, Li and Li, SoCC 2022): a model is due max L_k / b seconds after the last one. L_k
is the last latency of client k, for the clients at work now; b is the number of clients that may be at work at once. If a client
is as fast as the last time, its update does not grow older than b models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from netsim.core.clock import LAST
from netsim.core.errors import ParameterError
from netsim.core.protocols import Stateful
from netsim.core.state import StateFields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from netsim.clients.served import ServedClients
    from netsim.clients.update import Update
    from netsim.core.protocols import FloatArray
    from netsim.servers.rounds.loop import Attempt

_NEVER = -1.0


class Pacing(Stateful, Protocol):
    """Decides whether a new model is due, by the number of deliveries or by time."""

    name: str
    """Name of the rule in the records of rounds."""

    def on_open(self, start_s: float) -> None:
        """Handle the opening of a round: the last model was made at `start_s`."""

    def on_end(self, update: Update) -> None:
        """Handle the end of the attempt of `update`."""

    def is_due(self, ends: Sequence[Attempt]) -> bool:
        """Return True if a model may be made of `ends` now; called whenever the answer may have changed."""

    def gives_up(self, ends: Sequence[Attempt]) -> bool:
        """Return True if the round must close now with `ends` (at least one). Called if no client is at work and none can be
        chosen.
        """

    def count_taken(self, ends: Sequence[Attempt]) -> int:
        """Return the number of `ends`, from the first on, that belong to the closing round."""


def arrivals(ends: Sequence[Attempt]) -> int:
    """Return the number of `ends` that are deliveries."""
    return sum(not end.censored for end in ends)


class Deliveries(StateFields):
    """Makes a model of every `buffer` deliveries. Raises ValueError for a buffer below 1."""

    name = "deliveries"

    def __init__(self, *, buffer: int) -> None:
        if buffer < 1:
            raise ParameterError("buffer", buffer, "must be at least 1 delivery")
        self.buffer = buffer

    def on_open(self, start_s: float) -> None:
        """Do nothing: times do not matter."""

    def on_end(self, update: Update) -> None:
        """Do nothing: `is_due` counts the ends."""

    def is_due(self, ends: Sequence[Attempt]) -> bool:
        """Return True if `buffer` of `ends` were delivered."""
        return arrivals(ends) >= self.buffer

    def gives_up(self, ends: Sequence[Attempt]) -> bool:
        """Return True: no more updates can arrive."""
        return True

    def count_taken(self, ends: Sequence[Attempt]) -> int:
        """Return the number up to the delivery that fills the buffer; later ones of the same instant count for the next model."""
        arrived = 0
        for place, end in enumerate(ends):
            arrived += not end.censored
            if arrived == self.buffer:
                return place + 1
        return len(ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPacing:
    """The parameters of `ByLatency`. Raises ValueError for times that are not > 0 and finite."""

    unknown_latency_s: float = 180.0
    """L_k of a client that has delivered nothing yet; the default is that of the authors' code."""
    check_every_s: float | None = None
    """The server checks at multiples of this time whether a model is due; None: at any time."""

    def __post_init__(self) -> None:
        for name in ("unknown_latency_s", "check_every_s"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value < math.inf:
                raise ParameterError(name, value, "must be > 0 seconds and finite")


class ByLatency(StateFields):
    """Makes a model of all updates that have arrived, once max L_k / `concurrency` seconds have passed since the last close.

    L_k is the time from the selection of client k to its last delivery. If no update has arrived by then, the server waits for
    the first. `wake`: callback that makes the server call `is_due` again.
    """

    state_fields = ("latency_s",)
    name = "pacing"

    def __init__(
        self, *, pool: ServedClients, concurrency: int, wake: Callable[[object], None], parameters: LatencyPacing
    ) -> None:
        self.pool = pool
        self.concurrency = concurrency
        self.latency_s: FloatArray = np.full(pool.count, parameters.unknown_latency_s)
        """L_k (K,) of each client, seconds."""
        self._check_every_s = parameters.check_every_s
        self._wake = wake
        self._start_s = 0.0
        """Time at which the last model was made."""
        self._slowest: Update | None = None
        """Update of the client with the greatest L_k at the last computation of `_due_s`."""
        self._due_s = _NEVER
        """Time at which a model is due; _NEVER: it must be computed again."""
        self._alarm_s = _NEVER
        """Time of the last call that was scheduled for a check."""

    def on_open(self, start_s: float) -> None:
        """Count the time to the next model from `start_s`."""
        self._start_s, self._due_s = start_s, _NEVER

    def on_end(self, update: Update) -> None:
        """Note the latency of a delivery; compute the due time again if the slowest client has ended."""
        if not update.censored:
            self.latency_s[update.client] = update.outcome_s - update.selected_s
        if update is self._slowest:
            self._slowest, self._due_s = None, _NEVER

    def is_due(self, ends: Sequence[Attempt]) -> bool:
        """Return True if a model is due now, after `ends` of this round; if not, schedule the next check."""
        now = self.pool.clock.now
        if not arrivals(ends):
            return False  # the server calls this again at the first arrival
        # A client that began since the last computation can only delay the time, so compute it again when it has come.
        if now >= self._due_s:
            self._compute_due_time()
        check_s = self._next_check_s(max(now, self._due_s))
        if check_s <= now:
            return True
        # One call for each time, though this is asked often before it.
        if check_s != self._alarm_s:
            self._alarm_s = check_s
            # After everything else of that instant: updates that arrive at it enter the model.
            self.pool.clock.call_at(check_s, self._wake, priority=LAST)
        return False

    def _compute_due_time(self) -> None:
        """Set the slowest client at work, and the time at which a model is due."""
        at_work = self.pool.in_flight
        # Without clients at work there is no latency to wait for.
        if not at_work:
            self._slowest, self._due_s = None, self._start_s
            return
        clients = np.fromiter(at_work, np.int64, len(at_work))
        slowest = int(clients[np.argmax(self.latency_s[clients])])
        self._slowest = at_work[slowest]
        self._due_s = self._start_s + float(self.latency_s[slowest]) / self.concurrency

    def _next_check_s(self, time_s: float) -> float:
        """Return the first time from `time_s` on at which the server checks."""
        every_s = self._check_every_s
        if every_s is None:
            return time_s
        checks = math.floor(time_s / every_s)
        last_check_s = checks * every_s
        # That lies before `time_s`, unless `time_s` is a multiple itself.
        return last_check_s if last_check_s >= time_s else (checks + 1) * every_s

    def gives_up(self, ends: Sequence[Attempt]) -> bool:
        """Return True if no update has arrived; otherwise a model is due at the next check."""
        return not arrivals(ends)

    def count_taken(self, ends: Sequence[Attempt]) -> int:
        """Return the number of all ends."""
        return len(ends)

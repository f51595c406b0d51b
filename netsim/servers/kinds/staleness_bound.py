"""Rules of a buffered server for updates that would grow too old (Port, Su and Li, IWQoS 2022).

The server waits for such updates, or it notifies their clients, which then send their update at the end of the present epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from netsim.clients.shortening import shorten
from netsim.clients.steps.stages import COMPUTE
from netsim.core.errors import ParameterError
from netsim.core.protocols import Stateful
from netsim.core.state import StateFields

if TYPE_CHECKING:
    from netsim.clients.served import ServedClients
    from netsim.core.protocols import State
    from netsim.servers.rounds.loop import Attempt

_EVER = float("inf")


class StalenessRule(Stateful, Protocol):
    """Interface: decides whether a round may close, and acts at the close."""

    def may_close(self, number: int) -> bool:
        """Return True if round `number` may close now, given that its buffer is full."""

    def too_old(self, number: int, updates: Iterable[Attempt]) -> bool:
        """Return True if one of `updates` would be too old for the model after that of round `number`."""

    def on_close(self, number: int) -> None:
        """Handle the close of round `number`."""


class NoBound(StateFields):
    """Null object: updates may have any age."""

    def may_close(self, number: int) -> bool:
        """Return True: a round waits for no update."""
        return True

    def too_old(self, number: int, updates: Iterable[Attempt]) -> bool:
        """Return False: no update is too old."""
        return False

    def on_close(self, number: int) -> None:
        """Do nothing: no client is notified."""


class WaitForOld(StateFields):
    """Rule by which a round waits for every update in progress that would be older than `bound` rounds in the next round.

    Raises ValueError for a bound below 1.
    """

    def __init__(self, *, pool: ServedClients, bound: int) -> None:
        if bound < 1:
            raise ParameterError("staleness_bound", bound, "must be at least 1 round")
        self.pool = pool
        self.bound = bound

    def may_close(self, number: int) -> bool:
        """Return False while an update that began `bound` rounds ago is in progress."""
        return not self.too_old(number, self.pool.in_flight.values())

    def too_old(self, number: int, updates: Iterable[Attempt]) -> bool:
        """Return True if one of `updates` began `bound` or more rounds before round `number`."""
        return any(update.begun_round <= number - self.bound for update in updates)

    def on_close(self, number: int) -> None:
        """Do nothing: no client is notified."""


class Notice(NamedTuple):
    """A notice on its way to a client."""

    arrives_s: float
    client: int
    begun_round: int
    """Round in which the client's update began; the notice is about no other update."""


class UrgentNotices(WaitForOld):
    """Notices instead of waiting: after `notice_s` a client sends its update at the end of its present epoch.

    A client that still downloads the model as the notice comes goes on, and gets another notice at the next close.

    Raises ValueError for a time that is not >= 0 and finite.
    """

    def __init__(self, *, pool: ServedClients, bound: int, notice_s: float = 0.0) -> None:
        super().__init__(pool=pool, bound=bound)
        if not 0.0 <= notice_s < _EVER:
            raise ParameterError("notice_s", notice_s, "must be >= 0 seconds and finite")
        self.notice_s = notice_s
        # Training that begins one second later may not end one second later: it ends with the pass in which a notice arrives.
        pool.causes.inexact.add("compute")
        self._under_way: list[Notice] = []
        """Notices in flight."""

    def may_close(self, number: int) -> bool:
        """Return True: the server notifies clients, and does not wait for them."""
        return True

    def on_close(self, number: int) -> None:
        """Notify the clients whose updates will be too old, unless a notice is under way."""
        due_s = self.pool.clock.now + self.notice_s
        notified = {(notice.client, notice.begun_round) for notice in self._under_way}
        for client, update in self.pool.in_flight.items():
            if self.too_old(number, [update]) and (client, update.begun_round) not in notified:
                self._send(Notice(due_s, client, update.begun_round))

    def _send(self, notice: Notice) -> None:
        """Put the arrival of a notice on the clock."""
        self._under_way.append(notice)
        self.pool.clock.call_at(notice.arrives_s, self._arrive, notice)

    def _arrive(self, notice: Notice) -> None:
        """Callback at the arrival of a notice: shorten the training of its update, if that is under way."""
        self._under_way.remove(notice)
        update = self.pool.in_flight.get(notice.client)
        # The client may have sent its update meanwhile, or work on another one.
        if update is None or update.begun_round != notice.begun_round:
            return
        if update.phase == COMPUTE:
            shorten(self.pool.pool, update)

    def state_dict(self) -> State:
        """Return the notices in flight."""
        return {"under_way": [tuple(notice) for notice in self._under_way]}

    def load_state_dict(self, state: State) -> None:
        """Restore the notices in flight, and schedule their arrivals."""
        for notice in state["under_way"]:
            self._send(Notice(*notice))

"""Rules of a buffered server for updates that grow too old during training (Port, Su and Li, IWQoS 2022).

The server waits for them, or it notifies their clients, which then send their update at the end of the present epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from netsim.clients.shortening import shorten
from netsim.clients.steps.stages import COMPUTE
from netsim.core.errors import ParameterError
from netsim.core.protocols import Stateful
from netsim.core.state import StateFields

if TYPE_CHECKING:
    from netsim.clients.pool import ClientPool
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
        return True

    def too_old(self, number: int, updates: Iterable[Attempt]) -> bool:
        return False

    def on_close(self, number: int) -> None:
        return None


class WaitForOld(StateFields):
    """Rule by which a round waits for every update in progress that would be older than `bound` rounds in the next round.

    Raises ValueError for a bound below 1.
    """

    def __init__(self, *, pool: ClientPool, bound: int) -> None:
        if bound < 1:
            raise ParameterError("staleness_bound", bound, "must be at least 1 round")
        self.pool = pool
        self.bound = bound

    def may_close(self, number: int) -> bool:
        """Return False while an update that began `bound` rounds ago is in progress."""
        return not self.too_old(number, self.pool.in_flight.values())

    def too_old(self, number: int, updates: Iterable[Attempt]) -> bool:
        return any(update.begun_round <= number - self.bound for update in updates)

    def on_close(self, number: int) -> None:
        return None


class UrgentNotices(WaitForOld):
    """Notices instead of waiting: after `notice_s` a client sends its update at the end of its present epoch.

    A client that still downloads the model as the notice comes goes on, and gets another notice at the next close.

    Raises ValueError for a time that is not >= 0 and finite.
    """

    def __init__(self, *, pool: ClientPool, bound: int, notice_s: float = 0.0) -> None:
        super().__init__(pool=pool, bound=bound)
        if not 0.0 <= notice_s < _EVER:
            raise ParameterError("notice_s", notice_s, "must be >= 0 seconds and finite")
        self.notice_s = notice_s
        # Training that begins one second later may not end one second later: it ends with the pass in which a notice arrives.
        pool.causes.inexact.add("compute")
        self._under_way: list[tuple[float, int, int]] = []
        """Notices in flight: (arrival, client, first round of its update)."""

    def may_close(self, number: int) -> bool:
        """Return True."""
        return True

    def on_close(self, number: int) -> None:
        due_s = self.pool.clock.now + self.notice_s
        notified = {(client, begun_round) for _, client, begun_round in self._under_way}
        for client, update in self.pool.in_flight.items():
            if self.too_old(number, [update]) and (client, update.begun_round) not in notified:
                self._send((due_s, client, update.begun_round))

    def _send(self, notice: tuple[float, int, int]) -> None:
        """Send a notice (arrival, client, first round of its update)."""
        self._under_way.append(notice)
        self.pool.clock.call_at(notice[0], self._arrive, notice)

    def _arrive(self, notice: tuple[float, int, int]) -> None:
        """Callback at the arrival of a notice: shorten the training of its update, if that is under way."""
        self._under_way.remove(notice)
        _, client, begun_round = notice
        update = self.pool.in_flight.get(client)
        if update is not None and update.begun_round == begun_round and update.phase == COMPUTE:
            shorten(self.pool, update)

    def state_dict(self) -> State:
        """Return the notices in flight."""
        return {"under_way": list(self._under_way)}

    def load_state_dict(self, state: State) -> None:
        for due_s, client, begun_round in state["under_way"]:
            self._send((due_s, client, begun_round))

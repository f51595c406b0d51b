"""The step of an update in which it gets access to the uplink, which it holds to the end of its attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netsim.clients.power.power_integral import IDLE
from netsim.clients.steps.stages import WAIT
from netsim.clients.steps.step import Executor, Step

if TYPE_CHECKING:
    from netsim.clients.update import Update
    from netsim.clients.vectorised.forecast import Forecast
    from netsim.network.access import UplinkAccess


class Access(Step):
    """Step that waits for a turn on the uplink, a queue over sub-channels, and gives it back when the attempt ends.

    Foreseeable only if the uplink is free: then every update has its turn at once.
    """

    phase, power, finished = WAIT, IDLE, True

    def __init__(self, executor: Executor, access: UplinkAccess[Any]) -> None:
        self.foreseeable = access.free
        self._executor, self._access = executor, access

    def begin(self, update: Update, now: float) -> None:
        """Go on if the uplink has a place for `update`, or wait in its queue."""
        if self.foreseeable or self._access.take(update):
            assert self.following is not None
            self.following.begin(update, now)
        else:
            update.phase, update.phase_start_s = WAIT, now
            self.resume(update)
            self._executor.wait(update, IDLE, now)

    def enter(self, update: Update, now: float) -> None:
        """Begin the next step of an update that has its turn."""
        assert self.following is not None
        self.following.begin(update, now)

    def close(self, update: Update, now: float) -> None:
        """Take `update` out of the queue, if it still waits there."""
        self._access.withdraw(update)

    def resume(self, update: Update) -> None:
        """Note on `update` that it waits in this step."""
        # Probes and updates wait in one queue, but their steps belong to different executors. So an update names its step.
        update.queued_by = self

    def yield_turn(self, update: Update, now: float) -> None:
        """End the attempt of an update that leaves as its turn comes."""
        self._executor.leave(update, now)

    def release(self, update: Update, now: float) -> None:
        """End the transmission of `update`, and begin that of the next in its queue."""
        # At one instant a departure comes before a beginning: a client that leaves now passes its turn on. It is taken out of the
        # queue by the end of its attempt, so the loop sees the next one.
        first_in_queue = self._access.next_after(update)
        while first_in_queue is not None and first_in_queue.departure_s <= now:
            first_in_queue.queued_by.yield_turn(first_in_queue, now)
            first_in_queue = self._access.next_after(update)
        following = self._access.end(update, delivered=update.outcome == "delivered")
        if following is not None:
            # Number 0 is that of a probe, which is no attempt of the client table.
            following.sent_after = update.number or None
            following.queued_by.enter(following, now)

    def foresee(self, forecast: Forecast) -> bool:
        """Return True and change nothing: without a queue every client has its turn at once."""
        return True

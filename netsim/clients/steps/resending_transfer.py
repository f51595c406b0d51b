"""The transfer of a message between server and clients that is sent again if it is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from netsim.clients.power.power_integral import IDLE
from netsim.clients.steps.transfer import Transfer

if TYPE_CHECKING:
    from netsim.clients.update import Update
    from netsim.network.resending import Resending

_PAUSE = float("inf")
"""Value of `Update.sent_s` in the pause before a lost message is sent again."""


class ResendingTransfer(Transfer):
    """Transfer whose message is sent again if it is lost, by a rule of `medium`. Arguments as in `Transfer`.

    All sendings belong to one step: it starts with the first and ends with the last. Each counts its bytes, and has a delay and
    a loss of its own. The client keeps its turn on the uplink, and draws idle power in the pauses.
    """

    sends_once = False

    def begin(self, update: Update, now: float) -> None:
        """Send the message for the first time."""
        update.tries, update.sent_s = 0, now
        super().begin(update, now)

    def finish(self, update: Update, now: float) -> None:
        """Handle the end of the delay, or of the pause before the message is sent again."""
        if update.sent_s == _PAUSE:
            self._send_again(update, now)
        else:
            super().finish(update, now)

    def _sent_s(self, update: Update) -> float:
        return update.sent_s

    def _lose(self, update: Update, now: float, cause: str) -> None:
        """Send the message again, at once or after a pause. After the last resend the attempt ends."""
        rule: Resending = getattr(self._medium, self._direction.resending)
        if update.tries >= rule.max_resends:
            super()._lose(update, now, cause)
        elif rule.resend_after_s:
            update.sent_s = _PAUSE
            self._executor.wait(update, IDLE, now)
            self._executor.replan(update, now + rule.resend_after_s)
        else:
            self._send_again(update, now)

    def _send_again(self, update: Update, now: float) -> None:
        """Send a lost message again: count its bytes, draw its loss, and schedule the end of its delay, as `begin` does."""
        update.tries, update.sent_s = update.tries + 1, now
        size = self._sizes[update.client]
        setattr(update, self._bytes, getattr(update, self._bytes) + size)
        self.bytes += size
        begins_s = now if self._access is None else self._access.begin_again(update, now)
        medium, names = self._medium, self._direction
        address = getattr(update, names.draws).round, now, np.array([update.client]), update.tries
        update.survives = getattr(medium, names.survival).draw(*address).at(0, now)
        if self._jammed is not None:
            self._enter_link(update, now, self._jammed)
        ends_s = getattr(medium, names.delay).draw(*address).ends_at(0, now, begins_s)
        # An event also for a message that takes no time: else each resend would call the next one, up to 999 deep.
        self._executor.wait(update, self.power, now)
        self._executor.replan(update, ends_s)


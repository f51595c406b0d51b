"""Ctrl-C and SIGTERM at a round boundary, so that a run's tables agree with each other; at once if that is too far away."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

GRACE_S = 2.0
"""How long a stop waits for the round to close."""


class StopRequest:
    """Whether the user has asked for the end."""

    asked = False
    _alarm: threading.Timer | None = None

    def check(self) -> None:
        """Raise KeyboardInterrupt if so."""
        if self.asked:
            raise KeyboardInterrupt

    def settle(self) -> None:
        """What was asked for is under way: from here on only a second request ends it on the spot."""
        if self._alarm is not None:
            self._alarm.cancel()

    def ask(self, number: int) -> None:
        """Note the wish; the signal `number` comes again in `GRACE_S` seconds, unless it is settled by then."""
        self.asked = True
        # To the main thread, so that it wakes from whatever it waits for.
        self._alarm = threading.Timer(GRACE_S, signal.pthread_kill, [threading.main_thread().ident, number])
        self._alarm.daemon = True
        self._alarm.start()


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Within, the first SIGINT or SIGTERM is noted; a second one, or `GRACE_S` seconds, raises KeyboardInterrupt on the spot.

    In a thread other than the main one nothing changes: signals do not come there.
    """
    request = StopRequest()

    def note(number: int, frame: FrameType | None) -> None:
        if request.asked:
            raise KeyboardInterrupt
        request.ask(number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            # What was started to ignore the signal (nohup, a background job of a script) goes on ignoring it.
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, note)
    try:
        yield request
    finally:
        request.settle()
        for number, handler in before.items():
            signal.signal(number, handler)

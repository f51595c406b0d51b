"""Waking of a server's process by the first of several events."""

from __future__ import annotations

from simpy.events import Event

from netsim.core.clock import LAST, Clock

_EVER = float("inf")


class Waking:
    """Wakes the one process that waits for `event()`: now, at the end of this instant, or at a time.

    Without a waiting process a call has no effect, and calls may come early. So a process checks its own condition each time it
    wakes.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event: Event | None = None
        """Event that the process waits for; None: it does not wait."""
        self._called_s = -1.0
        """Time at the end of which a waking is on the clock; -1: none is."""
        self._alarm_s = -1.0
        """Time of the last `wake_at`, so that a repeated one adds no call; -1: there was none."""

    def event(self) -> Event:
        """Return the event of the next waking."""
        self._event = self._clock.event()
        return self._event

    def wake_at_end_of_instant(self) -> None:
        """Wake the process after everything else of this instant, so that it handles all events of the instant together."""
        clock = self._clock
        if self._called_s != clock.now:
            self._called_s = clock.now
            clock.call_at(clock.now, self.wake, priority=LAST)

    def wake_at(self, time_s: float) -> None:
        """Wake the process at `time_s`, after everything else of that instant; inf: never."""
        if time_s < _EVER and time_s != self._alarm_s:
            self._alarm_s = time_s
            # Do not wake directly: schedule again, so that other LAST calls of this instant, scheduled later, come before.
            self._clock.call_at(time_s, self._on_alarm, priority=LAST)

    def _on_alarm(self, payload: object) -> None:
        """Callback at the time of `wake_at`."""
        self.wake_at_end_of_instant()

    def wake(self, payload: object = None) -> None:
        """Wake the process now."""
        # From now on another event of this instant may ask for another waking.
        self._called_s = -1.0
        event, self._event = self._event, None
        if event is not None:
            event.succeed()

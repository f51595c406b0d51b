"""Alarm: a deadline that moves from round to round, with one call of the clock for many rounds."""

from __future__ import annotations

from collections.abc import Callable

from netsim.core.clock import LAST, Clock

_NEVER = float("inf")


class Alarm:
    """Calls `on_due` at the time that was set last, after everything else of that instant.

    A call of the clock cannot be taken back. If a round closes early, its call stays on the clock; when it runs too soon, it only
    schedules a call at the time that holds then. So long deadlines with short rounds do not fill the clock with useless calls.

    Example:
        >>> clock = Clock()
        >>> alarm = Alarm(clock, lambda: print(clock.now))
        >>> alarm.set(5.0)
        >>> alarm.set(8.0)
        >>> clock.run()
        8.0
    """

    def __init__(self, clock: Clock, on_due: Callable[[], None]) -> None:
        self._clock, self._on_due = clock, on_due
        self._due_s = _NEVER
        """Time at which to ring; inf: never."""
        self._called_s = _NEVER
        """Time of the valid call on the clock, at `_due_s` or before; inf: none is there."""

    def set(self, due_s: float) -> None:
        """Ring at `due_s`, not before now, in place of the time that was set before; inf: do not ring."""
        self._due_s = due_s
        if due_s < self._called_s:
            self._called_s = due_s
            self._clock.call_at(due_s, self._ring, due_s, LAST)

    def _ring(self, called_s: float) -> None:
        """Callback of the clock: call `on_due`, or schedule again if the time was moved to later."""
        if called_s != self._called_s:
            return  # an earlier call has taken its place
        self._called_s = _NEVER
        if called_s < self._due_s:
            self.set(self._due_s)
        else:
            self._on_due()

"""A process of the clock that can be stopped and, after a saved state was loaded, started again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netsim.core.clock import Clock, Process


class Errand:
    """Runs at most one process: a generator that yields the events it waits for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps: Process[None] | None = None
        """The process under way, or None."""

    @property
    def running(self) -> bool:
        """True if a process has begun and has not ended."""
        return self._steps is not None

    def start(self, steps: Process[None]) -> None:
        """Start `steps` in this instant, after events that are already due."""
        self._steps = steps
        self._clock.call_at(self._clock.now, self._go_on, steps)

    def stop(self) -> None:
        """Stop the present steps, if there are any."""
        steps, self._steps = self._steps, None
        if steps is not None:
            steps.close()

    def _go_on(self, steps: Process[None]) -> None:
        """Run `steps` up to the next event that has not happened, and go on when it does."""
        # Ignore events that happen after their steps were stopped.
        if steps is not self._steps:
            return
        # SimPy sets `callbacks` to None once an event has happened: go on at once then, as its own processes do.
        for event in steps:
            if event.callbacks is not None:
                event.callbacks.append(lambda _: self._go_on(steps))
                return
        if steps is self._steps:
            self._steps = None

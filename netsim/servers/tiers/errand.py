"""A process of the clock that can be given up and, after a saved state was loaded, begun again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netsim.core.clock import Clock, Process


class Errand:
    """At most one generator of the events that it waits for, which begins after what else is due in this instant."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps: Process[None] | None = None

    def start(self, steps: Process[None]) -> None:
        """Begin `steps` in this instant."""
        self._steps = steps
        self._clock.call_at(self._clock.now, self._go_on, steps)

    def stop(self) -> None:
        """Give the present steps up, if there are any."""
        steps, self._steps = self._steps, None
        if steps is not None:
            steps.close()

    def _go_on(self, steps: Process[None]) -> None:
        # An event may come about after its steps were given up.
        if steps is not self._steps:
            return
        for event in steps:
            if event.callbacks is not None:
                event.callbacks.append(lambda _: self._go_on(steps))
                return
        if steps is self._steps:
            self._steps = None

"""Changing a simulation from Python as it runs: what a scenario file cannot say, because it depends on the run itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from models.laws.changes import Piecewise, Unchanging
from netsim.core.protocols import DelayLaw

Phase = Literal["download", "compute", "upload"]


class Replaceable:
    """A timeline of delay laws that can be replaced in mid-run. The engine and whoever is told the true laws share one object."""

    def __init__(self, timeline: Unchanging[DelayLaw] | Piecewise[DelayLaw]) -> None:
        self._timeline = timeline
        self.at: Callable[[int, float], tuple[DelayLaw, float]] = timeline.at
        """The law in force in a round at a time, and until when, as far as the present timeline knows."""

    @property
    def laws(self) -> list[DelayLaw]:
        """All laws that the present timeline brings into force, in order."""
        return self._timeline.laws

    def replace(self, law: DelayLaw) -> None:
        """From now on, `law`."""
        self._timeline = Unchanging(law)
        self.at = self._timeline.at

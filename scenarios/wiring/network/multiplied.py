"""Bandwidths between server and clients that are multiplied during a run, for `netsim what-if --bandwidth`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from models.laws.bandwidth.laws import Multiple
from netsim.core.protocols import BandwidthLaw, BandwidthTimeline


class Multiplier:
    """Factor of all bandwidths passed to `apply_to`, 1 at first. `link`: only cable to multiply; None: all bandwidths."""

    def __init__(self, link: str | None = None) -> None:
        self.factor = 1.0
        self.link = link
        self.renewals: list[Callable[[], None]] = []
        """Callbacks that apply the new bandwidth to transfers in flight."""
        self._timelines = 0

    def __bool__(self) -> bool:
        """Return True if there is a bandwidth to multiply."""
        return self._timelines > 0

    def apply_to(self, timeline: BandwidthTimeline) -> Multiplied:
        """Return `timeline` times the factor."""
        self._timelines += 1
        return Multiplied(timeline, self)

    def multiply(self, factor: float) -> None:
        """Multiply all bandwidths by `factor` from now on, also for transfers in flight."""
        self.factor = factor
        for renew in self.renewals:
            renew()


class Multiplied:
    """A timeline of bandwidth laws times the factor of a `Multiplier`."""

    fixed = False

    def __init__(self, timeline: BandwidthTimeline, multiplier: Multiplier) -> None:
        self._timeline, self._multiplier = timeline, multiplier
        self._cached: tuple[BandwidthLaw, float, BandwidthLaw] | None = None

    @property
    def laws(self) -> Sequence[BandwidthLaw]:
        """The laws at factor 1, in the order in which they come into force."""
        return self._timeline.laws

    @property
    def starts(self) -> Sequence[float]:
        """The change points between them."""
        return self._timeline.starts

    @property
    def unit(self) -> Literal["rounds", "seconds"]:
        """The unit of the change points."""
        return self._timeline.unit

    def at(self, round: int, time_s: float) -> tuple[BandwidthLaw, float]:
        """Return (law in force times the present factor, time until which it holds)."""
        law, until_s = self._timeline.at(round, time_s)
        factor = self._multiplier.factor
        if factor == 1.0:
            return law, until_s
        # Carriers compare laws by identity to see a change: the same law and factor give the same object.
        if self._cached is None or self._cached[0] is not law or self._cached[1] != factor:
            self._cached = law, factor, Multiple(law=law, factor=factor)
        return self._cached[2], until_s

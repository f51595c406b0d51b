"""Exponential graphs: silo i sends to i + 1, i + 2, i + 4, .. (modulo n), at once or one after the other (Ying et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from models.overlays.cycle_time import maximum_cycle_mean, product
from models.overlays.overlay import StaticOverlay, waiting_matrix
from models.overlays.silos import Arc, Silos


def strides(count: int) -> list[int]:
    """Return 1, 2, 4, .. below `count`."""
    return [1 << power for power in range((count - 1).bit_length())]


def _stride_arcs(count: int, stride: int) -> list[Arc]:
    """Return an arc from each of `count` silos to the one that is `stride` further, modulo `count`."""
    return [Arc(silo, (silo + stride) % count) for silo in range(count)]


class Exponential(StaticOverlay):
    """Overlay with all strides in every round."""

    kind = "exponential"

    def __init__(self, silos: Silos) -> None:
        arcs: list[Arc] = []
        for stride in strides(silos.count):
            arcs += _stride_arcs(silos.count, stride)
        super().__init__(silos, arcs)


class OnePeerExponential:
    """Overlay with one stride in each round, in turn: after log2 n rounds every silo has heard of all if n is a power of two."""

    kind = "one-peer"
    waiting = StaticOverlay.waiting

    def __init__(self, silos: Silos) -> None:
        self.silos = silos
        self._rounds = [_stride_arcs(silos.count, stride) for stride in strides(silos.count)]
        """Arcs of each round of a period."""
        self.period = len(self._rounds)

    @property
    def arcs(self) -> Sequence[Arc]:
        """All arcs that a round may use."""
        return [arc for arcs in self._rounds for arc in arcs]

    def round_arcs(self, round: int) -> Sequence[Arc]:
        """Return the arcs of the round's stride; rounds count from 0."""
        return self._rounds[round % self.period]

    def cycle_ms(self) -> float:
        """Return the mean time of a round in ms: the maximum cycle mean over a whole period, divided by its rounds."""
        times = [waiting_matrix(self.silos, arcs) for arcs in self._rounds]
        return maximum_cycle_mean(reduce(product, times)) / self.period

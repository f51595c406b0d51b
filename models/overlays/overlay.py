"""The interface of overlays, and those whose arcs are the same in every round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from models.overlays.cycle_time import FloatArray, matrix_of, maximum_cycle_mean
from models.overlays.silos import Arc, Silos

Waiting = Literal["neighbours", "all", "centre"]


class Overlay(Protocol):
    """Messages between silos, round by round."""

    kind: str
    waiting: Waiting
    """Silos that a silo waits for before its next round: its in-neighbours, all silos, or the centre of a star."""
    period: int
    """Rounds after which the arcs repeat; 0 if they are drawn."""

    @property
    def arcs(self) -> Sequence[Arc]:
        """All arcs that a round may use."""

    def round_arcs(self, round: int) -> Sequence[Arc]:
        """Return the arcs of a round; rounds count from 0."""

    def cycle_ms(self) -> float:
        """Return the mean time of a round in ms, if each path has fixed shares of the links (`by-degree`)."""


def waiting_matrix(silos: Silos, arcs: Sequence[Arc]) -> FloatArray:
    """Return the times (n, n) in ms from the start of a round at silo i to the arrival of its message at silo j.

    On the diagonal stands the time of local training, s T_c; -inf where i sends j no message.
    """
    arrivals_ms = (silos.work_ms + silos.message_ms(arcs)).tolist()
    own = [(silo, silo, silos.work_ms) for silo in range(silos.count)]
    messages = [(arc.source, arc.target, arrival_ms) for arc, arrival_ms in zip(arcs, arrivals_ms, strict=True)]
    return matrix_of(silos.count, [*own, *messages])


class StaticOverlay:
    """Overlay with the same `arcs` in every round. A silo begins its next round when all messages for it are there."""

    kind = "static"
    waiting: Waiting = "neighbours"
    period = 1

    def __init__(self, silos: Silos, arcs: Iterable[Arc]) -> None:
        self.silos = silos
        self.arcs: tuple[Arc, ...] = tuple(arcs)

    def round_arcs(self, round: int) -> Sequence[Arc]:
        """Return `arcs`."""
        return self.arcs

    def cycle_ms(self) -> float:
        """Return the mean time of a round in ms: the maximum cycle mean of the delays (Karp)."""
        return maximum_cycle_mean(waiting_matrix(self.silos, self.arcs))

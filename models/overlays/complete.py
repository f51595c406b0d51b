"""Complete graph: every silo sends to every other."""

from __future__ import annotations

from itertools import combinations

from models.overlays.overlay import StaticOverlay
from models.overlays.silos import Silos, both_ways


class Complete(StaticOverlay):
    """Overlay with an arc between all pairs of silos, in both directions."""

    kind = "complete"

    def __init__(self, silos: Silos) -> None:
        super().__init__(silos, both_ways(combinations(range(silos.count), 2)))

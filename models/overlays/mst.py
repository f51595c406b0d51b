"""Minimum spanning tree on s T_c + l + M / A, with an arc in each direction (Marfoq et al. 2020, Proposition 3.1)."""

from __future__ import annotations

from models.overlays.overlay import StaticOverlay
from models.overlays.silos import Silos, both_ways
from models.overlays.trees import lightest_tree


class Mst(StaticOverlay):
    """Overlay of the minimum spanning tree: the best undirected one if access links are fast."""

    kind = "mst"

    def __init__(self, silos: Silos) -> None:
        super().__init__(silos, both_ways(lightest_tree(silos.path_ms)))

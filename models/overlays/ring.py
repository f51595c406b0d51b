"""Ring: a tour by Christofides' algorithm, in one direction (Marfoq et al. 2020, Proposition 3.3)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import numpy as np

from models.overlays.cycle_time import FloatArray
from models.overlays.overlay import StaticOverlay
from models.overlays.silos import Arc, Silos
from models.overlays.trees import grown_tree


class Ring(StaticOverlay):
    """Overlay of a short tour through all silos, with weights s T_c + l + max(M / C_up, M / C_down, M / A).

    Local steps change the weights, and so the tour.
    """

    kind = "ring"

    def __init__(self, silos: Silos) -> None:
        self.tour = christofides(silos.work_ms + silos.latency_ms + silos.share_ms)
        following = [*self.tour[1:], self.tour[0]]
        super().__init__(silos, [Arc(a, b) for a, b in zip(self.tour, following, strict=True)])


def christofides(weights: FloatArray) -> list[int]:
    """Return a tour of all nodes that begins at node 0 (Christofides 1976); `weights` (n, n) is symmetric.

    The edges of the minimum spanning tree and of a perfect matching of its nodes of odd degree form a closed walk; nodes that it
    comes to again are left out.
    """
    import networkx as nx

    count = len(weights)
    tree = sorted((min(pair), max(pair)) for pair in grown_tree(weights))
    degrees = np.bincount(np.array(tree).ravel(), minlength=count)
    odd = np.flatnonzero(degrees % 2).tolist()
    # The lightest perfect matching: NetworkX finds the one of greatest weight, so that weights change their sign.
    graph = nx.Graph()
    graph.add_weighted_edges_from((a, b, -weights[a, b]) for a, b in combinations(odd, 2))
    walk = nx.MultiGraph()
    walk.add_nodes_from(range(count))
    walk.add_edges_from(tree)
    walk.add_edges_from(_pairs(nx.max_weight_matching(graph, maxcardinality=True)))
    nodes_of_walk = [source for source, _ in nx.eulerian_circuit(walk, source=0)]
    # Each node once, where the walk first comes to it.
    return list(dict.fromkeys(nodes_of_walk))


def _pairs(matching: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return pairs in an order that does not depend on that of a set."""
    return sorted((min(pair), max(pair)) for pair in matching)

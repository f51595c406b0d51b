"""Trees of bounded degree: the best of a Hamiltonian path and of delta-Prim (Marfoq et al. 2020, Algorithm 1)."""

from __future__ import annotations

import itertools

from models.overlays.overlay import StaticOverlay
from models.overlays.silos import Silos, both_ways
from models.overlays.trees import Pairs, grown_tree


class DeltaMbst(StaticOverlay):
    """Overlay of the tree of least cycle time: of delta-Prim's, delta = 2 .. n - 1, and a path in the cube of the minimum tree.

    The path is a 3-approximation of the bottleneck spanning tree of degree 2. The weights are those of the published code:
    s T_c + l + 2 max(M / C_up, M / C_down, M / A). Where access is slow, hops cost nothing.
    """

    kind = "delta-mbst"

    def __init__(self, silos: Silos) -> None:
        weights = silos.work_ms + silos.latency_ms + 2.0 * silos.share_ms
        trees = [grown_tree(weights, most) for most in range(2, silos.count)]
        trees.append(path_in_cube(grown_tree(weights), silos.count))
        overlays = [StaticOverlay(silos, both_ways(tree)) for tree in trees]
        # Of equal cycle times the first counts.
        best = min(overlays, key=StaticOverlay.cycle_ms)
        super().__init__(silos, best.arcs)


def path_in_cube(tree: Pairs, count: int) -> Pairs:
    """Return a Hamiltonian path of the cube of a tree: neighbours on it are at most three edges of the tree apart.

    The cube of a tree has one between any two nodes (Karaganis 1968). Here it joins the ends of an edge: cut that edge, and in
    each part go from its end, in the same way, to a node beside that end.
    """
    neighbours: list[list[int]] = [[] for _ in range(count)]
    for a, b in tree:
        neighbours[a].append(b)
        neighbours[b].append(a)
    a, b = tree[0]
    return list(itertools.pairwise(_order_nodes(a, b, neighbours)))


def _order_nodes(a: int, b: int, neighbours: list[list[int]]) -> list[int]:
    """Return all nodes of the tree that holds the edge (a, b), ordered as a path from a to b in the cube of the tree.

    In the cube, nodes are neighbours if they are at most three edges of the tree apart.

    Without (a, b) the tree falls into two, with a and with b: the path goes through the first from a to a neighbour of a, and
    through the second backwards, to b. Edges are removed from `neighbours` as they are used.
    """
    neighbours[a].remove(b)
    neighbours[b].remove(a)
    first = _order_nodes(a, neighbours[a][0], neighbours) if neighbours[a] else [a]
    last = _order_nodes(b, neighbours[b][0], neighbours) if neighbours[b] else [b]
    return [*first, *reversed(last)]

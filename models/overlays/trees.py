"""Spanning trees on (n, n) weights."""

from __future__ import annotations

from itertools import combinations

from models.overlays.cycle_time import FloatArray

Pairs = list[tuple[int, int]]


def grown_tree(weights: FloatArray, most: int | None = None) -> Pairs:
    """Return a tree grown from node 0 by the lightest edge (Prim 1957); no node gets more than `most` edges.

    With `most` = delta it is delta-Prim (Andrews and Zhang): a heuristic for trees of bounded degree.
    """
    count = len(weights)
    degrees = [0] * count
    inside, outside = [0], list(range(1, count))
    pairs: Pairs = []
    while outside:
        # Nodes of the tree that may get one more edge.
        open_nodes = [node for node in inside if most is None or degrees[node] < most]
        candidates = weights[open_nodes][:, outside]
        row, column = divmod(int(candidates.argmin()), len(outside))
        node, new_node = open_nodes[row], outside.pop(column)
        pairs.append((node, new_node))
        inside.append(new_node)
        degrees[node] += 1
        degrees[new_node] += 1
    return pairs


def lightest_tree(weights: FloatArray) -> Pairs:
    """Return the minimum spanning tree by Kruskal's algorithm (1956); of equal edges the one whose nodes come first.

    Equal weights make many trees the lightest. They differ in the degrees of their nodes, and so in the time of a round.
    """
    # Label of the piece that each node belongs to; an edge between two pieces joins them.
    piece = list(range(len(weights)))
    pairs: Pairs = []
    lightest_first = sorted(combinations(range(len(weights)), 2), key=lambda pair: float(weights[pair]))
    for a, b in lightest_first:
        if piece[a] != piece[b]:
            pairs.append((a, b))
            old, new = piece[b], piece[a]
            piece = [new if label == old else label for label in piece]
    return pairs

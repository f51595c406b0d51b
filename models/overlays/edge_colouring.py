"""Matchings that together hold all edges of a graph (Misra and Gries 1992)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Pair = tuple[int, int]
"""Two nodes: the ends of an edge."""
Colouring = list[dict[int, int]]
"""For each node, the colours of its edges: colour -> neighbour at the other end. An edge stands in the dictionaries of both."""


def matchings(count: int, edges: Sequence[Pair]) -> list[list[Pair]]:
    """Return matchings of a simple graph of `count` nodes that hold each edge once; at most one more than the greatest degree.

    Neighbours are tried in the order of `edges`, as in the code of Marfoq et al. 2020, so that the matchings are theirs.

    >>> matchings(3, [(0, 1), (1, 2), (0, 2)])
    [[(1, 2)], [(0, 2)], [(0, 1)]]
    """
    neighbours: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        neighbours[a].append(b)
        neighbours[b].append(a)
    colours = max(map(len, neighbours), default=0) + 1
    colouring: Colouring = [{} for _ in range(count)]
    for edge in edges:
        _colour(edge, colouring, neighbours, colours)
    # Edges of one colour share no node: they are a matching.
    result: list[list[Pair]] = [[] for _ in range(colours)]
    for a, b in edges:
        result[_colour_of(a, b, colouring)].append((a, b))
    return [matching for matching in result if matching]


def _colour(edge: Pair, colouring: Colouring, neighbours: Sequence[Sequence[int]], colours: int) -> None:
    """Give the uncoloured `edge` one of the `colours` by a step of Misra and Gries; other edges may get another colour.

    Before and after it `colouring` is proper: edges of one node have different colours. `neighbours`: those of each node.
    `colours` must exceed every degree, so that each node has a free colour, which none of its edges has.
    """
    centre, first = edge
    colour_to = {neighbour: colour for colour, neighbour in colouring[centre].items()}
    fan = _find_fan(first, colour_to, colouring, neighbours[centre])
    free_at_centre, free_at_last = _free_colour(centre, colouring, colours), _free_colour(fan[-1], colouring, colours)
    # Swap both colours along the path from the centre. Then `free_at_last` is free at the centre, too.
    path = _swap_on_path(centre, free_at_last, free_at_centre, colouring)
    # The swap changed the colour of at most one edge of the fan, the one that had `free_at_last`. The fan before this edge is
    # still a fan, and `free_at_last` is free at its last node; but if the path ends at that node, the whole fan must be rotated.
    rotated = fan
    for place, node in enumerate(fan):
        # The first edge of the fan has no colour yet.
        if place > 0 and colour_to[node] == free_at_last:
            if fan[place - 1] not in path:
                rotated = fan[:place]
            break
    _rotate(centre, rotated, free_at_last, colouring)


def _find_fan(first: int, colour_to: Mapping[int, int], colouring: Colouring, neighbours_of_centre: Sequence[int]) -> list[int]:
    """Return a fan: distinct neighbours of a node, its centre, from `first` on, to which no further one can be added.

    The colour of the edge from the centre to each of them, but `first`, is free at the neighbour before it. `colour_to`: colours
    of the edges of the centre, by neighbour.
    """
    fan = [first]
    while True:
        used_colours = colouring[fan[-1]]
        for node in neighbours_of_centre:
            if node in colour_to and colour_to[node] not in used_colours and node not in fan:
                fan.append(node)
                break
        else:
            # No neighbour can be added.
            return fan


def _free_colour(node: int, colouring: Colouring, colours: int) -> int:
    """Return the lowest colour that no edge of `node` has."""
    return next(colour for colour in range(colours) if colour not in colouring[node])


def _swap_on_path(start: int, first: int, second: int, colouring: Colouring) -> list[int]:
    """Swap the colours `first` and `second` on the longest path from `start` whose edges have them in turn; return its nodes.

    The first edge of the path has the colour `first`. No edge of `start` may have the colour `second`: else the edges could form
    a cycle, and the walk would not end.
    """
    swapped = {first: second, second: first}
    # Nodes of the path, and its edges as (node, node, old colour).
    path, edges = [start], []
    node, colour = start, first
    while colour in colouring[node]:
        next_node = colouring[node][colour]
        path.append(next_node)
        edges.append((node, next_node, colour))
        node, colour = next_node, swapped[colour]
    # Remove all old colours first: the new colour of an edge is the old one of the next.
    for a, b, colour in edges:
        del colouring[a][colour], colouring[b][colour]
    for a, b, colour in edges:
        colouring[a][swapped[colour]], colouring[b][swapped[colour]] = b, a
    return path


def _colour_of(a: int, b: int, colouring: Colouring) -> int:
    """Return the colour of the coloured edge between `a` and `b`."""
    return next(colour for colour, other in colouring[a].items() if other == b)


def _rotate(centre: int, fan: list[int], last: int, colouring: Colouring) -> None:
    """Give each edge from `centre` to the `fan` the colour of the next one, and the last edge the colour `last`."""
    shifted = [_colour_of(centre, node, colouring) for node in fan[1:]]
    # Remove all old colours first: the new colour of an edge is the old one of the next.
    for node, colour in zip(fan[1:], shifted, strict=True):
        del colouring[centre][colour], colouring[node][colour]
    for node, colour in zip(fan, [*shifted, last], strict=True):
        colouring[centre][colour], colouring[node][colour] = node, centre

"""Matchings that together hold all edges of a graph (Misra and Gries 1992)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

Pair = tuple[int, int]


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
    at: list[dict[int, int]] = [{} for _ in range(count)]
    """Neighbour of each node by the colour of the edge."""
    for edge in edges:
        _colour(edge, at, neighbours, colours)
    # Edges of one colour share no node: they are a matching.
    result: list[list[Pair]] = [[] for _ in range(colours)]
    for a, b in edges:
        result[next(colour for colour, other in at[a].items() if other == b)].append((a, b))
    return [matching for matching in result if matching]


def _free(node: int, at: list[dict[int, int]], colours: int) -> int:
    """Return the lowest colour that no edge of `node` has."""
    return next(colour for colour in range(colours) if colour not in at[node])


def _colour(edge: Pair, at: list[dict[int, int]], neighbours: Sequence[Sequence[int]], colours: int) -> None:
    """Colour `edge`, and recolour other edges if necessary; `at` remains a proper colouring.

    `at[node]` maps the colour of each edge of a node to the neighbour at its other end. An edge stands in two of these
    dictionaries, which change together. `neighbours`: those of each node. `colours` is above every degree, so that each node has
    a free colour.
    """
    centre, first = edge
    colour_to = {neighbour: colour for colour, neighbour in at[centre].items()}
    # A fan: neighbours of the centre, where the colour of each edge is free at the neighbour before it.
    fan = [first]
    while True:
        used = at[fan[-1]]
        following = next(
            (node for node in neighbours[centre] if node in colour_to and colour_to[node] not in used and node not in fan), None
        )
        if following is None:
            break
        fan.append(following)
    # Two colours: one that is free at the centre, and one that is free at the last of the fan.
    of_centre, of_last = _free(centre, at, colours), _free(fan[-1], at, colours)
    # Swap both colours along the path from the centre: after it `of_last` is free at the centre, too.
    path = _invert(centre, of_last, of_centre, at)
    # `of_last` is free at the neighbour before the edge that had it, or, where the path comes to that neighbour, at the last one.
    end = next((place for place, node in enumerate(fan) if place and colour_to[node] == of_last), len(fan))
    if fan[end - 1] in path:
        end = len(fan)
    _rotate(centre, fan[:end], of_last, at)


def _invert(start: int, first: int, second: int, at: list[dict[int, int]]) -> list[int]:
    """Swap two colours along the path from `start` whose edges have them in turn, `first` to begin with; return its nodes."""
    path, colour = [start], first
    while colour in at[path[-1]]:
        path.append(at[path[-1]][colour])
        colour = second if colour == first else first
    swapped = {first: second, second: first}
    edges = []
    colour = first
    for a, b in itertools.pairwise(path):
        edges.append((a, b, colour))
        del at[a][colour], at[b][colour]
        colour = swapped[colour]
    for a, b, colour in edges:
        at[a][swapped[colour]], at[b][swapped[colour]] = b, a
    return path


def _colour_of(centre: int, node: int, at: list[dict[int, int]]) -> int | None:
    """Return the colour of the edge between `centre` and `node`; None before it has one."""
    return next((colour for colour, other in at[centre].items() if other == node), None)


def _rotate(centre: int, fan: list[int], last: int, at: list[dict[int, int]]) -> None:
    """Give each edge from `centre` to the `fan` the colour of the next one, and the last edge the colour `last`.

    All old colours are removed before new ones are set: each new colour is the old one of another edge.
    """
    shifted = [_colour_of(centre, node, at) for node in fan[1:]]
    for node, colour in zip(fan[1:], shifted, strict=True):
        assert colour is not None
        del at[centre][colour], at[node][colour]
    for node, colour in zip(fan, [*shifted, last], strict=True):
        assert colour is not None
        at[centre][colour], at[node][colour] = node, centre

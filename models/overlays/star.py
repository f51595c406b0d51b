"""Star: a centre sends its model to all silos, and waits for theirs (Marfoq et al. 2020, Section 4)."""

from __future__ import annotations

from heapq import heappop, heappush

from models.overlays.overlay import StaticOverlay, Waiting
from models.overlays.silos import Arc, Silos


class Star(StaticOverlay):
    """Overlay with a centre, the first silo of the underlay: Marfoq's code takes the greatest load centrality, 0 for all.

    An arc follows the shortest path in s T_c + l + M / A through other silos, as in that code: latencies add up, and the
    bandwidth is that of the last link. `direct`: every silo has its own route to the centre instead.
    """

    kind = "star"
    waiting: Waiting = "centre"

    def __init__(self, silos: Silos, *, direct: bool = False) -> None:
        ways = [(0, silo) for silo in range(silos.count)] if direct else _shortest_paths(silos)
        there = [Arc(0, silo, way if len(way) > 2 else ()) for silo, way in enumerate(ways) if silo]
        super().__init__(silos, [*there, *(Arc(arc.target, 0, arc.via[::-1]) for arc in there)])
        self._clients = silos.count - 1

    def cycle_ms(self) -> float:
        """Return the time of a round in ms, 2 (c - s T_c) + s T_c, c the largest mean over silos of both directions' delays."""
        # First the arcs from the centre, then those to it, both in the order of the silos.
        times_ms = self.silos.message_ms(self.arcs)
        there_and_back_ms = times_ms[: self._clients] + times_ms[self._clients :]
        return float(there_and_back_ms.max()) + self.silos.work_ms


def _shortest_paths(silos: Silos) -> list[tuple[int, ...]]:
    """Return the shortest path from silo 0 to each silo, (n,), in the complete graph of path delays (Dijkstra)."""
    weights = silos.path_ms
    paths: dict[int, tuple[int, ...]] = {}
    queue: list[tuple[float, tuple[int, ...]]] = [(0.0, (0,))]
    while len(paths) < silos.count:
        length, path = heappop(queue)
        if path[-1] in paths:
            continue
        paths[path[-1]] = path
        for other in range(silos.count):
            if other not in paths:
                heappush(queue, (length + float(weights[path[-1], other]), (*path, other)))
    return [paths[silo] for silo in range(silos.count)]

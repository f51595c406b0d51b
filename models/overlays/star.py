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
        paths = [(0, silo) for silo in range(silos.count)] if direct else _shortest_paths(silos)
        from_centre = []
        for silo in range(1, silos.count):
            is_relayed = len(paths[silo]) > 2
            from_centre.append(Arc(0, silo, via=paths[silo] if is_relayed else ()))
        to_centre = [Arc(arc.target, 0, via=arc.via[::-1]) for arc in from_centre]
        super().__init__(silos, [*from_centre, *to_centre])
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
        end = path[-1]
        if end in paths:
            # A shorter path to it came first.
            continue
        paths[end] = path
        for other in range(silos.count):
            if other not in paths:
                heappush(queue, (length + float(weights[end, other]), (*path, other)))
    return [paths[silo] for silo in range(silos.count)]

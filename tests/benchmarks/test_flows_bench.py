"""Flows: starts and ends a second on one link, and on a tree of clients, edges and a cloud."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from netsim.core.clock import Clock
from netsim.network.flows.flows import Flows
from netsim.network.flows.sharing import Link


def events_per_s(links: list[Link], routes: list[list[str]], rounds: int, spread: float) -> float:
    """Return starts and ends a second of processor time; the best of three.

    In every round each route carries one flow; all begin together, and their sizes differ by up to `spread`.
    """
    best = 0.0
    for _ in range(3):
        clock = Clock()
        flows = Flows(clock=clock, links=[Link(link.name, link.capacity) for link in links])
        paths = [flows.path(">".join(route), [(name, 1.0) for name in route]) for route in routes]
        sizes = 1.0 + spread * np.random.default_rng(1).random((rounds, len(routes)))

        def start(round: int, flows: Flows = flows, paths: Any = paths, sizes: Any = sizes) -> None:
            for path, size in zip(paths, sizes[round].tolist(), strict=True):
                flows.start(path, size)

        for round in range(rounds):
            clock.call_at(1e9 * round, start, round)
        began = time.process_time()
        clock.run()
        assert not len(flows)
        best = max(best, 2 * rounds * len(routes) / (time.process_time() - began))
    return best


def tree(clients: int, edges: int, cloud: float, edge: float) -> tuple[list[Link], list[list[str]]]:
    """Return links of 1 byte/s a client, and the given share of what its clients could send for each edge and the cloud."""
    links = [Link("cloud", cloud * clients), *(Link(f"edge {number}", edge * clients / edges) for number in range(edges))]
    links += [Link(f"client {number}", 1.0) for number in range(clients)]
    return links, [[f"client {number}", f"edge {number % edges}", "cloud"] for number in range(clients)]


def test_flows_on_one_link(benchmark: Any) -> None:
    found = benchmark.pedantic(events_per_s, args=([Link("a", 100.0)], [["a"]] * 1000, 10, 1.0), rounds=1)
    benchmark.extra_info |= {"events_per_s": found}
    assert found > 5_000


def test_flows_on_a_tree(benchmark: Any) -> None:
    cases = {"clients limit": (2.0, 2.0), "edges limit": (2.0, 0.5), "the cloud limits": (0.5, 2.0), "both": (0.5, 0.55)}
    found = {name: events_per_s(*tree(1000, 20, *shares), 2, 1.0) for name, shares in cases.items()}
    alike = events_per_s(*tree(1000, 20, 0.5, 2.0), 10, 0.0)
    benchmark.extra_info |= found | {"sizes alike": alike}
    benchmark.pedantic(lambda: None)
    assert min(found.values()) > 1_000

"""Flows: starts and ends a second on one link and on a tree of clients, edges and a cloud; cost of a change of a bandwidth."""

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


def reference_per_s(links: list[Link], routes: list[list[str]], spread: float) -> tuple[float, float]:
    """Return starts and ends a second of a plain solver in NumPy, and the time of the last end.

    One round of `events_per_s`; all rates are found anew after each end, by progressive filling.
    """
    places = {link.name: place for place, link in enumerate(links)}
    crossed = np.zeros((len(links), len(routes)))
    for flow, route in enumerate(routes):
        crossed[[places[name] for name in route], flow] = 1.0
    left = 1.0 + spread * np.random.default_rng(1).random(len(routes))
    capacities, now, began = np.array([link.capacity for link in links]), 0.0, time.process_time()
    while left.size:
        rates, open_flows = np.zeros(left.size), np.ones(left.size, bool)
        while open_flows.any():
            counts = crossed @ open_flows
            levels = np.divide(capacities - crossed @ rates, counts, out=np.full(len(links), np.inf), where=counts > 0)
            frozen = open_flows & (crossed[levels <= levels.min() * (1 + 1e-12)].any(axis=0))
            rates[frozen], open_flows = levels.min(), open_flows & ~frozen
        wait = (left / rates).min()
        now, left = now + wait, left - rates * wait
        keep = left > 1e-12
        left, crossed = left[keep], crossed[:, keep]
    return 2 * len(routes) / (time.process_time() - began), now


def test_flows_on_one_link(benchmark: Any) -> None:
    network: Any = [Link("a", 100.0)], [["a"]] * 1000
    found = benchmark.pedantic(events_per_s, args=(*network, 10, 1.0), rounds=1)
    reference = reference_per_s(*network, 1.0)[0]
    benchmark.extra_info |= {"events_per_s": found, "NumPy": reference, "ratio": found / reference}
    assert found > 2.5 * reference


def test_the_plain_solver_finds_the_same_end() -> None:
    links, routes = tree(60, 4, 0.5, 0.55)
    clock = Clock()
    flows = Flows(clock=clock, links=links)
    sizes = 1.0 + np.random.default_rng(1).random(len(routes))
    for route, size in zip(routes, sizes.tolist(), strict=True):
        flows.start(flows.path(">".join(route), [(name, 1.0) for name in route]), size)
    ends: list[float] = []
    flows.listen(lambda flow: ends.append(clock.now))
    clock.run()
    assert abs(ends[-1] / reference_per_s(links, routes, 1.0)[1] - 1.0) < 1e-9


def test_flows_on_a_tree(benchmark: Any) -> None:
    cases = {"clients limit": (2.0, 2.0), "edges limit": (2.0, 0.5), "the cloud limits": (0.5, 2.0), "both": (0.5, 0.55)}
    found = {name: events_per_s(*tree(1000, 20, *shares), 2, 1.0) for name, shares in cases.items()}
    alike = events_per_s(*tree(1000, 20, 0.5, 2.0), 10, 0.0)
    reference = reference_per_s(*tree(1000, 20, 0.5, 0.55), 1.0)[0]
    benchmark.extra_info |= found | {"sizes alike": alike, "NumPy, both": reference, "ratio, both": found["both"] / reference}
    benchmark.pedantic(lambda: None)
    assert found["both"] > 30 * reference


def change_s(links: int) -> tuple[int, float]:
    """Return the links that a change of one bandwidth reaches, and its processor time, the least of nine.

    Three flows for each link cross it and two others, drawn at random, so that a change reaches nearly every link.
    """
    draws = np.random.default_rng(1)
    flows = Flows(clock=Clock(), links=[Link(f"link {n}", 1.0 + draws.random()) for n in range(links)])
    for n in range(3 * links):
        others = draws.choice(links - 1, 2, replace=False)
        route = [n % links, *(int(other) + (other >= n % links) for other in others)]
        flows.start(flows.path(str(n), [(f"link {one}", 1.0) for one in route]), 1e9)
    flows.rate(0)
    least, reached = np.inf, 0
    for repetition in range(9):
        began = time.process_time()
        flows._sharing.change(flows.links["link 0"], 1.0 + 0.05 * repetition, 0.0)
        bundles = flows._sharing.solve(0.0)
        least = min(least, time.process_time() - began)
        reached = len({link for bundle in bundles for link, _ in bundle.shared})
    return reached, least


def test_cost_of_a_change_by_the_links_that_it_reaches(benchmark: Any) -> None:
    found = [change_s(links) for links in (50, 100, 200, 400, 800)]
    logs = np.log(np.array(found))
    exponent = float(np.polyfit(*logs.T, 1)[0])
    benchmark.extra_info |= {"links": [reached for reached, _ in found], "seconds": [seconds for _, seconds in found]}
    benchmark.extra_info["exponent"] = exponent
    benchmark.pedantic(lambda: None)
    print(found, exponent)
    assert exponent < 2.0

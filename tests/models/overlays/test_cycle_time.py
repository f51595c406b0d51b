"""Maximum cycle means against the enumeration of all cycles, and closed forms."""

from __future__ import annotations

import random

import networkx as nx
import numpy as np
import pytest

from models.overlays.cycle_time import matrix_of, maximum_cycle_mean, product


@pytest.mark.parametrize("seed", range(40))
def test_against_all_cycles(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 7)
    pairs = [(a, b) for a in range(count) for b in range(count) if rng.random() < 0.4]
    arcs = [(a, b, rng.uniform(-5.0, 20.0)) for a, b in pairs]
    weights = {(a, b): weight for a, b, weight in arcs}
    cycles = list(nx.simple_cycles(nx.DiGraph(pairs)))
    means = [np.mean([weights[a, b] for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True)]) for cycle in cycles]
    assert maximum_cycle_mean(matrix_of(count, arcs)) == pytest.approx(max(means, default=-np.inf), rel=1e-9)


def test_a_ring_has_the_mean_of_its_delays_and_a_tree_the_largest_mean_of_an_edge() -> None:
    assert maximum_cycle_mean(matrix_of(3, [(0, 1, 1.0), (1, 2, 2.0), (2, 0, 6.0)])) == 3.0
    tree = [(0, 1, 1.0), (1, 0, 4.0), (1, 2, 3.0), (2, 1, 3.5)]
    assert maximum_cycle_mean(matrix_of(3, tree)) == 3.25


def test_a_product_walks_an_arc_of_each() -> None:
    first, second = matrix_of(2, [(0, 1, 1.0), (0, 0, 5.0)]), matrix_of(2, [(1, 0, 2.0), (0, 0, 4.0)])
    assert product(first, second).tolist() == [[9.0, -np.inf], [-np.inf, -np.inf]]

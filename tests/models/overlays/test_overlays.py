"""Overlays: small ones by hand, properties that define them, and refusals."""

from __future__ import annotations

import itertools
import random
from itertools import combinations

import networkx as nx
import numpy as np
import pytest

from models.errors import ParameterError
from models.overlays.delta_mbst import path_in_cube
from models.overlays.edge_colouring import matchings
from models.overlays.exponential import Exponential, OnePeerExponential, strides
from models.overlays.matcha import Matcha, best_probabilities, draw_plan
from models.overlays.mst import Mst
from models.overlays.ring import Ring, christofides
from models.overlays.silos import Arc, Silos
from models.overlays.star import Star
from models.overlays.trees import grown_tree
from models.overlays.underlay import Cable, Underlay

LINE = Underlay("line", ("A", "B", "C"), (Cable(0, 1, delay_ms=10.0), Cable(1, 2, delay_ms=20.0)))


def silos(underlay: Underlay = LINE, **values: float) -> Silos:
    given = {"model_bits": 1e6, "compute_ms": 3.0, "up_bits_per_s": 1e9, "down_bits_per_s": 5e8, "core_bits_per_s": 1e8} | values
    return Silos(underlay, **given)  # type: ignore[arg-type]


def test_delays_by_hand() -> None:
    # Up 1 ms and down 2 ms for each message at a silo, core 10 ms a hop.
    both = [Arc(0, 1), Arc(0, 2), Arc(1, 2)]
    assert silos().message_ms(both).tolist() == [10.0 + 10.0, 30.0 + 20.0, 20.0 + 10.0]
    # With a fast core the access decides: A sends two messages, C gets two.
    assert silos(core_bits_per_s=1e12).message_ms(both).tolist() == pytest.approx([10.0 + 2.0, 30.0 + 4.0, 20.0 + 4.0])
    assert silos(core_bits_per_s=1e12, up_bits_per_s=1e8).message_ms(both).tolist() == [10.0 + 20.0, 30.0 + 20.0, 20.0 + 10.0]


def test_cables_with_bandwidths_of_their_own() -> None:
    cables = (Cable(0, 1, delay_ms=0.0, bits_per_s=1e8), Cable(1, 2, delay_ms=0.0, bits_per_s=5e7))
    line = Underlay("line", ("A", "B", "C"), cables)
    assert silos(line).core_ms[0].tolist() == [0.0, 10.0, pytest.approx(30.0)]


def test_star_mst_and_ring_of_a_line() -> None:
    it = silos(steps=2)
    # The farthest silo, C: 50 ms there, 50 ms back, 6 ms of work.
    assert Star(it, direct=True).cycle_ms() == 106.0
    # Over B each message takes both delays, and the 10 ms of the last cable.
    assert Star(silos(core_bits_per_s=1e7)).arcs[1] == Arc(0, 2)
    assert Mst(it).cycle_ms() == 6.0 + 20.0 + 10.0
    assert {(arc.source, arc.target) for arc in Mst(it).arcs} == {(0, 1), (1, 0), (1, 2), (2, 1)}
    assert Ring(it).cycle_ms() == pytest.approx((20.0 + 30.0 + 50.0) / 3 + 6.0)


def test_a_star_relays_where_two_paths_are_shorter_than_one() -> None:
    # A and C are 100 ms apart by their own cable, which is the shortest route in km, and 10 + 10 ms by way of B.
    cables = (Cable(0, 1, km=600.0), Cable(1, 2, km=600.0), Cable(0, 2, km=1200.0))
    network = Underlay("triangle", ("A", "B", "C"), cables)
    it = silos(network, core_bits_per_s=1e12)
    assert all(not arc.via for arc in Star(it).arcs)
    slow = Underlay("triangle", ("A", "B", "C"), (*cables[:2], Cable(0, 2, km=1200.0, bits_per_s=1e6)))
    assert [arc.via for arc in Star(silos(slow)).arcs] == [(), (0, 1, 2), (), (2, 1, 0)]
    assert all(not arc.via for arc in Star(silos(slow), direct=True).arcs)


@pytest.mark.parametrize("seed", range(20))
def test_trees_and_tours(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 9))
    points = rng.random((count, 2))
    weights = np.linalg.norm(points[:, None] - points[None], axis=2)
    tree = grown_tree(weights)
    lightest = nx.minimum_spanning_tree(nx.from_numpy_array(weights)).size(weight="weight")
    assert sum(weights[pair] for pair in tree) == pytest.approx(lightest)
    bounded = grown_tree(weights, 2)
    assert nx.is_connected(nx.Graph(bounded))
    assert max(dict(nx.Graph(bounded).degree).values()) == 2
    path = path_in_cube(tree, count)
    near = dict(nx.all_pairs_shortest_path_length(nx.Graph(tree)))
    assert nx.is_connected(nx.Graph(path))
    assert max(dict(nx.Graph(path).degree).values()) == 2
    assert all(near[a][b] <= 3 for a, b in path)
    tour = christofides(weights)
    assert sorted(tour) == list(range(count))
    length = sum(weights[a, b] for a, b in zip(tour, [*tour[1:], tour[0]], strict=True))
    # The tree, and a matching of at most half of the best tour, which is itself at most twice the tree.
    assert length <= 2 * lightest


@pytest.mark.parametrize("seed", range(60))
def test_matchings_hold_every_edge_once(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(2, 14)
    edges = [pair for pair in combinations(range(count), 2) if rng.random() < rng.choice([0.2, 0.5, 1.0])]
    rng.shuffle(edges)
    found = matchings(count, edges)
    assert sorted(pair for matching in found for pair in matching) == sorted(edges)
    for matching in found:
        ends = [node for pair in matching for node in pair]
        assert len(ends) == len(set(ends))
    degrees = dict(nx.Graph(edges).degree)
    assert len(found) <= max(degrees.values(), default=0) + 1


def connectivity(count: int, groups: list[list[tuple[int, int]]], probabilities: np.ndarray) -> float:
    graph = nx.Graph()
    graph.add_nodes_from(range(count))
    for group, probability in zip(groups, probabilities, strict=True):
        graph.add_weighted_edges_from((a, b, float(probability)) for a, b in group)
    return float(np.linalg.eigvalsh(nx.laplacian_matrix(graph).toarray())[1])


def test_probabilities_of_matcha_are_the_best() -> None:
    # Of a path of four with three matchings and a budget of 1.5, by a search over a fine grid.
    groups = [[(0, 1)], [(1, 2)], [(2, 3)]]
    grid = np.linspace(0.0, 1.0, 51)
    pairs = [(a, b) for a in grid for b in grid if 0.5 <= a + b <= 1.5]
    best = max(connectivity(4, groups, np.array([a, b, min(1.5 - a - b, 1.0)])) for a, b in pairs)
    found = best_probabilities(4, groups, 0.5)
    assert found.sum() <= 1.5 + 1e-9
    assert connectivity(4, groups, found) == pytest.approx(best, rel=2e-3)


@pytest.mark.parametrize("seed", range(10))
def test_no_probabilities_drawn_at_random_are_better(seed: int) -> None:
    rng = random.Random(seed)
    graph = nx.gnp_random_graph(8, 0.5, seed=seed)
    edges = [*graph.edges, *((a, a + 1) for a in range(7) if not graph.has_edge(a, a + 1))]
    groups = matchings(8, edges)
    best = connectivity(8, groups, best_probabilities(8, groups, 0.5))
    for _ in range(200):
        drawn = np.array([rng.random() for _ in groups])
        drawn *= min(0.5 * len(groups) / drawn.sum(), 1 / drawn.max())
        assert connectivity(8, groups, drawn) <= best * (1 + 2e-3)


def test_the_mixing_step_of_matcha_contracts_most() -> None:
    # E[W^2] - J, from all 2^m sets of matchings that may be on.
    plan = draw_plan(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 3), (1, 4)], 0.6)
    count = len(plan.groups)

    def norm(step: float) -> float:
        mean = -np.full((6, 6), 1 / 6)
        for on in itertools.product((False, True), repeat=count):
            weights = np.eye(6)
            for a, b in (pair for group, active in zip(plan.groups, on, strict=True) if active for pair in group):
                weights[[a, b], [b, a]] += step
                weights[[a, b], [a, b]] -= step
            mean += np.prod(np.where(on, plan.probabilities, 1 - plan.probabilities)) * weights @ weights
        return float(np.linalg.norm(mean, 2))

    assert norm(plan.step) == pytest.approx(plan.contraction, abs=1e-9)
    assert plan.contraction < 1
    assert all(norm(plan.step + shift) > plan.contraction for shift in (-0.2, -0.01, 0.01, 0.2))
    assert norm(1.0) >= 1


def test_a_round_of_matcha_lasts_as_long_as_its_slowest_message() -> None:
    matcha = Matcha(silos())
    rounds = [matcha.round_arcs(round) for round in range(200)]
    expected = [float(silos().message_ms(arcs).max(initial=0.0)) + 3.0 for arcs in rounds]
    assert [matcha._round_ms(round) for round in range(200)] == pytest.approx(expected, rel=1e-12)
    assert {len(arcs) for arcs in rounds} > {2}


def test_exponential_graphs() -> None:
    assert strides(2) == [1]
    assert strides(8) == [1, 2, 4]
    assert strides(11) == [1, 2, 4, 8]
    ring = Underlay("ring", tuple("ABCDEFGH"), tuple(Cable(a, (a + 1) % 8, delay_ms=5.0) for a in range(8)))
    static, one = Exponential(silos(ring)), OnePeerExponential(silos(ring))
    assert len(static.arcs) == len(one.arcs) == 24
    assert [arc.target for arc in static.arcs if not arc.source] == [1, 2, 4]
    assert [one.round_arcs(round)[0].target for round in range(4)] == [1, 2, 4, 1]
    # All silos do the same: the slowest stride decides, and of one a round their mean. A hop takes 5 ms and 10 ms.
    assert static.cycle_ms() == pytest.approx(3.0 + 60.0)
    assert one.cycle_ms() == pytest.approx(3.0 + (15.0 + 30.0 + 60.0) / 3)


@pytest.mark.parametrize(
    ("cables", "message"),
    [
        ((Cable(0, 1, km=1.0),), "no route joins A and C; add a link"),
        ((Cable(0, 0, km=1.0),), "link between A and A: is a loop"),
        ((Cable(0, 1, km=1.0), Cable(1, 0, km=1.0)), "link between B and A: stands twice"),
        ((Cable(0, 3, km=1.0),), "link between A and node 3: names a node that does not exist"),
        ((Cable(0, 1, km=-1.0),), "link between A and B: must have a length"),
        ((Cable(0, 1, km=1.0, bits_per_s=0.0),), "must have a bandwidth > 0"),
        ((Cable(0, 1, km=1.0, bits_per_s=8e15),), "1e\\+15 bytes/s: must have a bandwidth > 0 and at most 1e15 bits/s"),
    ],
)
def test_bad_networks_are_refused(cables: tuple[Cable, ...], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Underlay("bad", ("A", "B", "C"), cables)


def test_bad_silos_are_refused() -> None:
    bad = (({"model_bits": 0.0}, "model_bits = 0.0: must be > 0"), ({"steps": 0}, "steps = 0: must be at least 1"))
    for values, message in bad:
        with pytest.raises(ParameterError, match=message):
            silos(**values)
    with pytest.raises(ParameterError, match="'A': stands twice"):
        Underlay("bad", ("A", "A"), (Cable(0, 1, km=1.0),))

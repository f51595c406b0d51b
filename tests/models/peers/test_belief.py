"""Belief propagation: by hand, against enumeration of all states, against the bound its contraction gives."""

from __future__ import annotations

import itertools
import math
import warnings

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.peers.belief import (
    ConvergenceWarning,
    Ising,
    Opinion,
    answers_until_quiet,
    beliefs,
    convergence_constant,
    make_message,
    node_messages,
    settle,
    step,
)
from models.peers.graph import FloatArray, PeerGraph
from models.peers.topologies import complete, erdos_renyi, random_geometric


def graph_of(links: list[tuple[int, int]], clients: int, distance_km: float = 0.5) -> PeerGraph:
    pairs = np.array(links, np.int64).reshape(-1, 2)
    return PeerGraph.from_links(
        clients=clients, links=pairs, distance_km=np.full(len(pairs), distance_km), allow_disconnected=True
    )


def distance_to_fixed_point(constant: float, residual_sum: float, damping: float = 0.0) -> float:
    """Bound c / (1 - c) times the last change on any message's distance from the fixed point, c the factor of a step."""
    factor = damping + (1 - damping) * constant
    return residual_sum * factor / (1 - factor) if factor < 1 else math.inf


def random_tree(clients: int, rng: np.random.Generator) -> PeerGraph:
    return graph_of([(int(rng.integers(i)), i) for i in range(1, clients)], clients)


def symmetric(graph: PeerGraph, rng: np.random.Generator, low: float, high: float) -> FloatArray:
    values = rng.uniform(low, high, graph.edges)
    return np.where(graph.source < graph.target, values, values[graph.reverse])


def enumerated(graph: PeerGraph, couplings: FloatArray, fields: FloatArray) -> FloatArray:
    """P(state of n = 1) from all 2^K states: nothing of the module under test."""
    weight = np.zeros(graph.clients)
    total = 0.0
    for state in itertools.product((0, 1), repeat=graph.clients):
        exponent = sum(f for f, s in zip(fields, state, strict=True) if s)
        for i, j, c in zip(graph.source, graph.target, couplings, strict=True):
            if i < j:
                exponent += c if state[i] == state[j] else -c
        p = math.exp(exponent)
        total += p
        weight += p * np.array(state)
    return weight / total


def logit(p: FloatArray) -> FloatArray:
    return np.log(p) - np.log1p(-p)


def test_two_clients_by_hand() -> None:
    # phi_0 = (0.5, 0.5) (r^2 = 1/2), phi_1 = (0.75, 0.25) (r = 1/2), agreement weighs e^J : e^-J = 3 : 1.
    graph = graph_of([(0, 1)], 2)
    coupling = 0.5 * math.log(3)
    fields = Ising.fields(np.array([math.sqrt(0.5), 0.5]))
    assert fields == pytest.approx([0.0, math.log(1 / 3)])
    # Message 1 -> 0 to state 1: 0.25 * 3 + 0.75 * 1 = 1.5; to state 0: 0.25 * 1 + 0.75 * 3 = 2.5. Belief of 0: 1.5 / 4.
    done = settle(graph, np.full(2, coupling), fields)
    assert beliefs(graph, fields, done.messages) == pytest.approx([0.375, 0.25])
    assert done.messages == pytest.approx([math.log(1.5 / 2.5), 0.0])
    assert done.converged
    assert done.iterations == 2


def test_couplings_by_hand() -> None:
    graph = graph_of([(0, 1)], 2, distance_km=2.0)
    assert Ising(coupling=0.3, attenuation=0.5, exponent=2.0).couplings(graph) == pytest.approx([0.3 * math.exp(-2.0)] * 2)


def test_distance_does_not_matter_in_a_square_kilometre() -> None:
    """exp(-C d^beta) with C = 0.001, beta = 3.7 is 1.00 to three digits up to the diagonal, 0.9964 there."""
    worst = math.exp(-0.001 * math.sqrt(2) ** 3.7)
    assert f"{worst:.2f}" == "1.00"
    assert worst == pytest.approx(0.9964, abs=5e-5)
    graph = random_geometric(clients=60, generator=np.random.default_rng(0), radius_km=1.5)
    values = np.exp(-0.001 * graph.distance_km**3.7)
    assert np.all(np.round(values, 2) == 1.0)
    assert np.all(values >= worst)


def test_opinion_model_by_hand() -> None:
    assert Opinion.beliefs(np.array([1.0, 0.5, 0.5])) == pytest.approx([2 / 3, 1 / 6, 1 / 6])
    assert Opinion.beliefs(np.zeros(4)) == pytest.approx([0.25] * 4)


@pytest.mark.parametrize("seed", range(12))
def test_exact_on_trees(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_tree(int(rng.integers(2, 11)), rng)
    couplings = symmetric(graph, rng, 0.0, 3.0)
    fields = Ising.fields(rng.random(graph.clients))
    done = settle(graph, couplings, fields, tolerance=1e-12)
    found = beliefs(graph, fields, done.messages)
    assert np.abs(found - enumerated(graph, couplings, fields)).max() < 1e-10
    # After as many exchanges as the tree is long only rounding changes anything.
    tree = nx.Graph(list(zip(graph.source.tolist(), graph.target.tolist(), strict=True)))
    assert done.iterations <= nx.diameter(tree) + 1


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_an_independent_library_on_trees(seed: int) -> None:
    # Imported here: it takes seconds, and no other test needs it.
    from pgmpy.factors.discrete import DiscreteFactor
    from pgmpy.inference import BeliefPropagation
    from pgmpy.models import DiscreteMarkovNetwork

    rng = np.random.default_rng(seed)
    graph = random_tree(9, rng)
    couplings = symmetric(graph, rng, 0.0, 1.0)
    opinions = rng.uniform(0.05, 0.95, graph.clients)
    model = DiscreteMarkovNetwork()
    for n, r in enumerate(opinions):
        model.add_node(str(n))
        model.add_factors(DiscreteFactor([str(n)], [2], [1 - r**2, r**2]))
    for i, j, c in zip(graph.source, graph.target, couplings, strict=True):
        if i < j:
            model.add_edge(str(i), str(j))
            model.add_factors(DiscreteFactor([str(i), str(j)], [2, 2], np.exp([[c, -c], [-c, c]])))
    other = BeliefPropagation(model)
    other.calibrate()
    fields = Ising.fields(opinions)
    found = beliefs(graph, fields, settle(graph, couplings, fields).messages)
    expected = [other.query([str(n)], show_progress=False).values[1] for n in range(graph.clients)]
    assert found == pytest.approx(expected, abs=1e-10)


def walk_bound(graph: PeerGraph, couplings: FloatArray, root: int) -> float:
    """How far loopy BP's log-odds at `root` can be from the truth.

    The truth is that of the tree of self-avoiding walks from the root, whose walks end pinned where they close a cycle (Weitz
    2006); BP has its own message there. Two messages through a link differ by at most 4 J, and a link passes on at most tanh J
    of a difference.
    """
    neighbours: dict[int, list[tuple[int, float]]] = {n: [] for n in range(graph.clients)}
    for i, j, c in zip(graph.source.tolist(), graph.target.tolist(), couplings.tolist(), strict=True):
        neighbours[j].append((i, c))

    def differs(sender: int, coupling: float, path: list[int]) -> float:
        if sender in path:
            return 4 * coupling
        heard = sum(differs(k, c, [*path, sender]) for k, c in neighbours[sender] if k != path[-1])
        return min(4 * coupling, math.tanh(coupling) * heard)

    return sum(differs(i, c, [root]) for i, c in neighbours[root])


@pytest.mark.parametrize("seed", range(8))
def test_loopy_graphs_within_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chords = [[(0, 2)], [(0, 3), (2, 5)], [(1, 4), (3, 6)], [(0, 3)]][seed % 4]
    graph = graph_of([(n, (n + 1) % 7) for n in range(7)] + chords, 7)
    couplings = symmetric(graph, rng, 0.1, 0.4)
    fields = Ising.fields(rng.uniform(0.1, 0.9, 7))
    constant = convergence_constant(graph, couplings)
    assert constant < 1
    exact = settle(graph, couplings, fields, tolerance=1e-15).messages
    far = settle(graph, couplings, fields, start=rng.normal(0, 3, graph.edges), max_iterations=4, tolerance=0.0)
    # The residual alone bounds how far the messages still are from the fixed point ..
    bound = distance_to_fixed_point(constant, far.residual_sum)
    assert 0 < np.abs(far.messages - exact).sum() <= bound
    odds = logit(beliefs(graph, fields, far.messages))
    assert np.abs(odds - logit(beliefs(graph, fields, exact))).max() <= bound
    # .. and with what the loops add it bounds how far the beliefs are from the exact marginals.
    truth = logit(enumerated(graph, couplings, fields))
    loops = np.array([walk_bound(graph, couplings, n) for n in range(7)])
    assert np.all(np.abs(odds - truth) <= bound + loops + 1e-12)
    assert np.all(np.abs(logit(beliefs(graph, fields, exact)) - truth) <= loops + 1e-12)


def test_same_fixed_point_from_twenty_starts() -> None:
    rng = np.random.default_rng(5)
    graph = complete(clients=20, generator=rng)
    ising = Ising()
    couplings = ising.couplings(graph)
    assert convergence_constant(graph, couplings) < 1
    fields = Ising.fields(rng.random(20))
    ends = [settle(graph, couplings, fields, start=rng.normal(0, 10, graph.edges), tolerance=1e-14) for _ in range(20)]
    assert all(end.converged for end in ends)
    assert max(np.abs(end.messages - ends[0].messages).max() for end in ends) < 1e-12


def test_beyond_the_condition_two_fixed_points() -> None:
    """A strong ferromagnet without fields keeps the side it started on: the condition is not empty."""
    graph = complete(clients=6, generator=np.random.default_rng(0))
    couplings = np.full(graph.edges, 0.6)
    assert convergence_constant(graph, couplings) == pytest.approx(4 * math.tanh(0.6))
    up, down = (
        beliefs(graph, np.zeros(6), settle(graph, couplings, np.zeros(6), start=np.full(graph.edges, s)).messages)
        for s in (1, -1)
    )
    assert up.min() > 0.9
    assert down.max() < 0.1


def test_convergence_constant_by_hand() -> None:
    # A star of three leaves around 0, tanh J = 0.1, 0.2, 0.4: without the weakest 0.6; a leaf leaves out its only neighbour.
    graph = graph_of([(0, 1), (0, 2), (0, 3)], 4)
    strength = np.array([0.0, 0.1, 0.2, 0.4])
    couplings = np.arctanh(strength[np.maximum(graph.source, graph.target)])
    assert convergence_constant(graph, couplings) == pytest.approx(0.6)
    assert convergence_constant(graph_of([], 2), np.empty(0)) == 0.0


def test_answers_until_quiet_by_hand() -> None:
    # A path 0 - 1 - 2: 0 -> 1 changes once, of itself; 1 -> 2 of itself and of what 0 said, unless that is within the tolerance.
    path = graph_of([(0, 1), (1, 2)], 3)
    couplings = np.full(4, 0.1)
    once = 2 * 0.1 * math.tanh(0.1)
    assert answers_until_quiet(path, couplings, tolerance=1e-9, limit=99) == 2
    assert answers_until_quiet(path, couplings, tolerance=once * 1.001, limit=99) == 1
    # Five clients, all linked: three more messages for each, 1 + 3 + 9 of changes down to 0.2 tanh^2, and 27 next.
    full = complete(clients=5, generator=np.random.default_rng(0))
    couplings = np.full(full.edges, 0.1)
    assert answers_until_quiet(full, couplings, tolerance=once * math.tanh(0.1) * 0.999, limit=99) == 13
    assert answers_until_quiet(full, couplings, tolerance=1e-9, limit=99) == 99
    assert answers_until_quiet(full, np.zeros(full.edges), tolerance=0.0, limit=99) == 0
    assert answers_until_quiet(full, np.full(full.edges, 50.0), tolerance=0.0, limit=99) == 99


def test_condition_broken_warns_or_raises() -> None:
    graph = complete(clients=10, generator=np.random.default_rng(0))
    with pytest.warns(ConvergenceWarning, match=r"coupling = 0.5: .* is 3\.6"):
        Ising(coupling=0.5).couplings(graph)
    with pytest.raises(ValueError, match=r"^coupling = 0.5: "):
        Ising(coupling=0.5, strict=True).couplings(graph)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Ising(coupling=0.1, strict=True).couplings(graph)
        # The default holds for 22 clients, all linked, and no more.
        Ising().couplings(complete(clients=22, generator=np.random.default_rng(0)))
    with pytest.raises(ValueError, match=r"^coupling"):
        Ising(strict=True).couplings(complete(clients=23, generator=np.random.default_rng(0)))


@given(st.floats(-60, 60), st.floats(0, 30))
def test_one_message_is_the_sum_product_rule(cavity: float, coupling: float) -> None:
    expected = np.logaddexp(cavity + coupling, -coupling) - np.logaddexp(cavity - coupling, coupling)
    assert make_message(cavity, coupling) == pytest.approx(expected, abs=1e-13 * (1 + abs(cavity) + coupling))
    assert abs(make_message(cavity, coupling)) <= min(abs(cavity), 2 * coupling) + 1e-15


def test_repulsion_turns_the_message_round() -> None:
    assert make_message(0.8, -0.3) == pytest.approx(-make_message(0.8, 0.3))


def test_scalar_and_vector_updates_agree() -> None:
    rng = np.random.default_rng(3)
    graph = erdos_renyi(clients=30, generator=rng, probability=0.2)
    couplings, messages = symmetric(graph, rng, 0.0, 1.0), rng.normal(0, 1, graph.edges)
    fields = Ising.fields(rng.random(30))
    following = step(graph, couplings, fields, messages)
    for n in range(30):
        heard = graph.incoming(n)
        out = graph.reverse[heard]
        new = node_messages(float(fields[n]), messages[heard].tolist(), couplings[heard].tolist(), messages[out].tolist(), 0.0)
        assert new == pytest.approx(following[out].tolist(), abs=1e-13)
        damped = node_messages(
            float(fields[n]), messages[heard].tolist(), couplings[heard].tolist(), messages[out].tolist(), 0.25
        )
        assert damped == pytest.approx((0.25 * messages[out] + 0.75 * following[out]).tolist(), abs=1e-13)


def test_updates_on_arrival_reach_the_same_fixed_point() -> None:
    """Messages delivered one at a time in random order, with damping, end where synchronous exchanges do."""
    rng = np.random.default_rng(9)
    graph = erdos_renyi(clients=12, generator=rng, probability=0.4)
    couplings = Ising(coupling=0.08).couplings(graph)
    fields = Ising.fields(rng.random(12))
    synchronous = settle(graph, couplings, fields, tolerance=1e-14).messages
    messages = np.zeros(graph.edges)
    for _ in range(4000):
        n = int(rng.integers(12))
        heard = graph.incoming(n)
        out = graph.reverse[heard]
        new = node_messages(float(fields[n]), messages[heard].tolist(), couplings[heard].tolist(), messages[out].tolist(), 0.3)
        one = int(rng.integers(len(new)))
        messages[out[one]] = new[one]
    assert np.abs(messages - synchronous).max() < 1e-9


def test_damping_keeps_the_fixed_point_and_its_bound() -> None:
    rng = np.random.default_rng(2)
    graph = complete(clients=8, generator=rng)
    couplings, fields = np.full(graph.edges, 0.1), Ising.fields(rng.random(8))
    plain = settle(graph, couplings, fields, tolerance=1e-15).messages
    damped = settle(graph, couplings, fields, damping=0.5, tolerance=1e-4)
    constant = convergence_constant(graph, couplings)
    assert np.abs(damped.messages - plain).sum() <= distance_to_fixed_point(constant, damped.residual_sum, 0.5)
    assert distance_to_fixed_point(1.0, 1e-9) == math.inf
    # One damped exchange from 0 goes half the way of an undamped one.
    half = settle(graph, couplings, fields, damping=0.5, max_iterations=1).messages
    assert half == pytest.approx(0.5 * step(graph, couplings, fields, np.zeros(graph.edges)))


def test_client_without_neighbours_believes_itself() -> None:
    graph = graph_of([(0, 1)], 3)
    opinions = np.array([0.5, 0.5, 0.6])
    fields = Ising.fields(opinions)
    found = beliefs(graph, fields, settle(graph, np.full(2, 0.4), fields).messages)
    assert found[2] == pytest.approx(0.36)


def test_certain_opinions_are_clipped() -> None:
    fields = Ising.fields(np.array([0.0, 1.0]))
    assert np.isfinite(fields).all()
    assert fields == pytest.approx([math.log(1e-12), -math.log(2e-6)], abs=1e-5)


def test_iteration_limit_is_kept() -> None:
    graph = complete(clients=5, generator=np.random.default_rng(0))
    done = settle(graph, np.full(graph.edges, 0.1), Ising.fields(np.full(5, 0.9)), max_iterations=2, tolerance=0.0)
    assert (done.iterations, done.converged) == (2, False)
    assert done.residual > 0


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"max_iterations": 0}, r"^max_iterations = 0: must be >= 1"),
        ({"damping": 1.0}, r"^damping = 1.0: "),
        ({"damping": -0.1}, r"^damping = -0.1: "),
        ({"tolerance": -1e-9}, r"^tolerance = -1e-09: "),
        ({"tolerance": math.nan}, r"^tolerance = nan: "),
        ({"start": np.zeros(3)}, r"^start has shape \(3,\)"),
        ({"start": np.array([0.0, math.inf])}, r"^start"),
    ],
)
def test_bad_limits(parameters: dict[str, object], match: str) -> None:
    graph = graph_of([(0, 1)], 2)
    with pytest.raises(ValueError, match=match):
        settle(graph, np.zeros(2), np.zeros(2), **parameters)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["coupling", "attenuation", "exponent"])
def test_bad_parameters(name: str) -> None:
    for value in (-0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"^{name} = "):
            Ising(**{name: value})


@pytest.mark.parametrize("bad", [np.array([0.5, 1.5]), np.array([-0.1, 0.5]), np.array([math.nan, 0.5])])
def test_bad_opinions(bad: FloatArray) -> None:
    for use in (Ising.fields, Opinion.beliefs):
        with pytest.raises(ValueError, match=r"^opinions = .* of client [01]: "):
            use(bad)
    with pytest.raises(ValueError, match=r"^opinions has shape"):
        Ising.fields(np.zeros((2, 2)))

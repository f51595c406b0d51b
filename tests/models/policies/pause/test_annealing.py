"""The annealers' graphs, walk and cooling against their definitions, by enumeration on small numbers of clients."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import chi2

from models.policies.pause.annealing import AnySwap, Graph, ListSwap, Walk, anneal, energy_range, finite_ucb, uniform_source
from models.policies.pause.enumeration import best_by_enumeration
from models.policies.pause.exact_search import best_set, energy
from models.policies.protocols import FloatArray, IntArray
from tests.helpers.selection import random_instance

Set = frozenset[int]


def first_on_a_list(members: Set, lists: tuple[FloatArray, ...]) -> Set:
    """The members that minimise one of the lists, equal values in the order of clients (R2)."""
    return frozenset(min(members, key=lambda k: (values[k], k)) for values in lists)


def are_neighbours(v: Set, u: Set, lists: tuple[FloatArray, ...]) -> bool:
    """R1 and R2 of the paper."""
    if len(v & u) != len(v) - 1:
        return False
    return bool((v - u) & first_on_a_list(v, lists)) or bool((u - v) & first_on_a_list(u, lists))


def all_sets(n: int, size: int) -> list[Set]:
    return [frozenset(s) for s in itertools.combinations(range(n), size)]


def some_lists(seed: int, n: int, ties: bool) -> tuple[FloatArray, ...]:
    values = np.random.default_rng(seed).random((3, n))
    return tuple(np.round(values, 1) if ties else values)


def proposals(graph: Graph, members: Set, n: int, draws: int, seed: int) -> dict[Set, int]:
    uniform = uniform_source(np.random.default_rng(seed))
    place = sorted(members)
    inside = bytearray(k in members for k in range(n))
    graph.prepare(place)
    counts: dict[Set, int] = {}
    for _ in range(draws):
        position, incoming = graph.propose(place, inside, uniform)
        reached = members - {place[position]} | {incoming}
        counts[reached] = counts.get(reached, 0) + 1
    return counts


@pytest.mark.parametrize(("n", "size", "ties"), [(6, 3, False), (6, 3, True), (5, 1, False), (7, 5, True), (5, 4, False)])
def test_neighbours_are_those_of_the_definition_and_equally_likely(n: int, size: int, ties: bool) -> None:
    lists = some_lists(n * size, n, ties)
    graph = ListSwap(lists)
    sets = all_sets(n, size)
    found = {}
    for i, v in enumerate(sets):
        wanted = {u for u in sets if are_neighbours(v, u, lists)}
        draws = 150 * len(wanted)
        found[v] = proposals(graph, v, n, draws, seed=i)
        assert set(found[v]) == wanted
        if len(wanted) > 1:
            statistic = sum((count - 150) ** 2 / 150 for count in found[v].values())
            # One test in 35 sets at most: 1e-6 each leaves no doubt about a failure.
            assert statistic < chi2.isf(1e-6, len(wanted) - 1)
    assert all(v in found[u] for v in sets for u in found[v])


def test_definition_by_hand() -> None:
    # One list thrice: members {1, 3} of clients 0..4, client k of value k. Active: 1 goes, any of 0, 2, 4 comes.
    # Passive: 3 goes and 0 comes (below 1); 1 goes and 0 or 2 comes (below 3), active already.
    values = np.arange(5.0)
    counts = proposals(ListSwap((values, values, values)), frozenset({1, 3}), 5, 400, seed=1)
    assert set(counts) == {frozenset({0, 3}), frozenset({2, 3}), frozenset({4, 3}), frozenset({1, 0})}


def test_any_swap_reaches_every_swap() -> None:
    counts = proposals(AnySwap(), frozenset({0, 1, 2}), 6, 9 * 150, seed=2)
    assert len(counts) == 9
    assert sum((count - 150) ** 2 / 150 for count in counts.values()) < chi2.isf(1e-6, 8)


def transition_matrix(energies: FloatArray, neighbours: list[list[int]], temperature: float) -> FloatArray:
    """Metropolis on a graph, uniform neighbour: from the definition of Algorithm 2 with the sign that climbs."""
    P = np.zeros((len(energies), len(energies)))
    for v, others in enumerate(neighbours):
        for u in others:
            P[v, u] = min(1.0, math.exp((energies[u] - energies[v]) / temperature)) / len(others)
        P[v, v] = 1.0 - P[v].sum()
    return P


def small_problem(graph: str) -> tuple[FloatArray, FloatArray, Graph, list[Set], FloatArray, list[list[int]]]:
    rng = np.random.default_rng(11)
    ucb, p, g = rng.random(6), rng.random(6), rng.random(6)
    modular = 0.5 * p + 0.8 * g
    sets = all_sets(6, 3)
    energies = np.array([energy(ucb, modular, np.array(sorted(s))) for s in sets])
    lists = (ucb, p, g)
    tailored = graph == "tailored"
    near = [[j for j, u in enumerate(sets) if (are_neighbours(v, u, lists) if tailored else len(u & v) == 2)] for v in sets]
    return ucb, modular, ListSwap(lists) if tailored else AnySwap(), sets, energies, near


@pytest.mark.parametrize("kind", ["tailored", "vanilla"])
def test_walk_visits_sets_as_its_chain_implies(kind: str) -> None:
    ucb, modular, graph, sets, energies, near = small_problem(kind)
    P = transition_matrix(energies, near, temperature=0.3)
    n = len(sets)
    pi = np.linalg.solve(np.vstack([(P.T - np.eye(n))[:-1], np.ones(n)]), np.eye(n)[-1])
    steps = 15_000
    walk = Walk(ucb, modular, np.array([0, 1, 2]), graph, uniform_source(np.random.default_rng(4)))
    index = {s: i for i, s in enumerate(sets)}
    counts = np.zeros(n)
    for _ in range(steps):
        walk.step(0.3)
        i = index[frozenset(walk.members)]
        counts[i] += 1
        assert walk.energy == pytest.approx(energies[i], abs=1e-12)
    # Central limit theorem of a chain: variance per step from the fundamental matrix Z (Kemeny and Snell, 4.3).
    Z = np.linalg.inv(np.eye(n) - P + pi)
    variance = 2 * pi * np.diag(Z) - pi - pi**2
    assert np.all(np.abs(counts - steps * pi) < 4.5 * np.sqrt(steps * variance) + 5)


@pytest.mark.parametrize("kind", ["tailored", "vanilla"])
def test_annealing_finds_the_optimum_as_often_as_its_chain_implies(kind: str) -> None:
    ucb, modular, graph, sets, energies, near = small_problem(kind)
    n, steps, runs, scale, kappa = len(sets), 12, 3000, 0.8, 2.0
    best = int(np.argmax(energies))
    # Uniform start; the best set seen is the optimum once the walk has touched it: make it absorbing and cool down.
    mass = np.full(n, 1.0 / n)
    for j in range(1, steps + 1):
        P = transition_matrix(energies, near, scale / (kappa * math.log(1 + j)))
        P[best] = np.eye(n)[best]
        mass = mass @ P
    expected = float(mass[best])
    assert 0.2 < expected < 0.95
    rng = np.random.default_rng(21)
    hits = sum(
        frozenset(anneal(ucb, modular, 3, graph, scale=scale, kappa=kappa, steps=steps, rng=rng).tolist()) == sets[best]
        for _ in range(runs)
    )
    assert abs(hits - runs * expected) < 4.5 * math.sqrt(runs * expected * (1 - expected))


class OneWay:
    """A graph with a single neighbour: position 0 goes, `incoming` comes."""

    def __init__(self, incoming: int) -> None:
        self.incoming = incoming

    def prepare(self, members: list[int]) -> None:
        pass

    def propose(self, members: list[int], inside: bytearray, uniform: object) -> tuple[int, int]:
        return 0, self.incoming


@pytest.mark.parametrize(("u", "moves"), [(math.exp(-0.5) - 1e-9, True), (math.exp(-0.5) + 1e-9, False)])
def test_worse_set_is_accepted_with_the_probability_that_falls_with_the_loss(u: float, moves: bool) -> None:
    # From {0} to {1}: energy falls by 1; at temperature 2 with probability exp(-1/2).
    walk = Walk(np.zeros(2), np.array([1.0, 0.0]), np.array([0]), OneWay(1), lambda: u)
    assert walk.step(2.0) is moves
    assert walk.energy == (0.0 if moves else 1.0)


def test_a_temperature_that_underflows_accepts_nothing_worse() -> None:
    walk = Walk(np.zeros(2), np.array([1.0, 0.0]), np.array([0]), OneWay(1), lambda: 0.0)
    assert not walk.step(0.0)
    rng = np.random.default_rng(1)
    found = anneal(np.zeros(2), np.array([0.0, 1.0]), 1, AnySwap(), scale=1.0, kappa=1e308, steps=20, rng=rng)
    assert found.tolist() == [1]


def test_better_and_equal_sets_are_always_accepted() -> None:
    for gain in (0.0, 1.0):
        walk = Walk(np.zeros(2), np.array([0.0, gain]), np.array([0]), OneWay(1), lambda: 1.0 - 2.0**-53)
        assert walk.step(1e-9)


def test_best_set_seen_is_returned_not_the_last() -> None:
    # At an immense temperature the walk alternates between {0} and {1}, whichever comes last.
    for seed in range(8):
        for steps in (1, 2, 3):
            rng = np.random.default_rng(seed)
            found = anneal(np.zeros(2), np.array([0.0, 1.0]), 1, AnySwap(), scale=1e15, kappa=1.0, steps=steps, rng=rng)
            assert found.tolist() == [1]


def test_energy_range_by_hand() -> None:
    # ucb: second highest 5 minus lowest 1; rewards: (3 + 2) - (0 + 1) = 4 and 0.
    span = energy_range(np.array([1.0, 5.0, 2.0, 8.0]), np.array([0.0, 1.0, 2.0, 3.0]), np.ones(4), 2)
    assert span == pytest.approx(8.0)


def test_energy_range_bounds_every_difference() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        ucb, p, g = rng.normal(size=(3, 7))
        energies = [energy(ucb, p + g, np.array(s)) for s in itertools.combinations(range(7), 3)]
        assert max(energies) - min(energies) <= energy_range(ucb, p, g, 3) + 1e-12


def ranking_value(ucb: FloatArray, modular: FloatArray, members: IntArray) -> float:
    reached = energy(ucb, modular, members)
    return float(modular[members].sum()) if reached == math.inf else reached


def uneven_problem() -> tuple[FloatArray, list[list[int]], float]:
    """Energies of the sets of 3 of 7 clients, SA-PAUSE's neighbours, and C of eq. 19.

    One optimum, and one set below it all of whose neighbours are worse, by 0.118 and more.
    """
    rng = np.random.default_rng(2)
    ucb, p, g = rng.random(7), rng.random(7) * 0.5, rng.random(7) * 0.5
    sets = all_sets(7, 3)
    energies = np.array([energy(ucb, p + g, np.array(sorted(s))) for s in sets])
    near = [[j for j, u in enumerate(sets) if are_neighbours(v, u, (ucb, p, g))] for v in sets]
    return energies, near, energy_range(ucb, g, p, 3) + 1e-3


def chances_of_the_optimum(energies: FloatArray, near: list[list[int]], scale: float, doublings: int) -> FloatArray:
    """P(V_j in J) at j = 2, 4, 8, ... from a uniform start, at temperatures scale/ln(1 + j); (doublings,).

    The temperature stays what it was until j has doubled, which is to cool a little more slowly: so steps beyond counting are
    within reach.
    """
    proposed = np.zeros((len(energies), len(energies)))
    for v, others in enumerate(near):
        proposed[v, others] = 1.0 / len(others)
    loss = np.maximum(energies[:, None] - energies[None, :], 0.0)
    mass = np.full(len(energies), 1.0 / len(energies))
    optimal = energies == energies.max()
    chances = []
    for k in range(doublings):
        P = proposed * np.exp(-loss * math.log1p(2.0**k) / scale)
        np.fill_diagonal(P, 1.0 - P.sum(axis=1))
        for _ in range(k):
            P = P @ P
            # Rounding must not add up over 2^k steps.
            P /= P.sum(axis=1, keepdims=True)
        mass = mass @ P
        chances.append(float(mass[optimal].sum()))
    return np.array(chances)


def test_theorem_4_the_walk_ends_at_the_optimum_under_its_conditions() -> None:
    energies, near, scale = uneven_problem()
    # R1, R3: the graph is undirected and of one piece. R2: C exceeds every difference of energies.
    assert all(v in near[u] for v in range(len(near)) for u in near[v])
    reached = {0}
    while wider := {u for v in reached for u in near[v]} - reached:
        reached |= wider
    assert len(reached) == len(energies)
    assert scale > np.ptp(energies)
    # There is a trap: a set below the optimum that every step leaves downwards.
    traps = [v for v in range(len(near)) if energies[v] < energies.max() and all(energies[u] < energies[v] for u in near[v])]
    depth = min(energies[traps[0]] - energies[u] for u in near[traps[0]])
    assert depth > 0.118
    # Eq. 20: the chance to stand at the optimum rises to 1, slowly, as C is far above the least that would do.
    chances = chances_of_the_optimum(energies, near, scale, 320)
    assert (np.diff(chances) > 0.0).all()
    assert chances[0] < 0.1
    assert chances[-1] > 0.98


def test_theorem_4_without_its_condition_the_walk_may_stay_in_a_trap_for_ever() -> None:
    # kappa divides the temperature, and with it C. The least C that will do is the depth of the deepest trap (Hajek 1988).
    energies, near, scale = uneven_problem()
    assert scale / 16.0 > 0.1183 > scale / 17.0
    enough, too_little = (chances_of_the_optimum(energies, near, scale / kappa, 160) for kappa in (15.0, 20.0))
    assert enough[-1] > 0.999
    assert too_little[-1] < 0.8
    assert too_little[-1] == pytest.approx(too_little[40], abs=1e-3)


def test_finite_stand_in_has_the_same_optimum() -> None:
    rng = np.random.default_rng(13)
    for _ in range(1000):
        ucb, modular, size = random_instance(rng)
        stand_in = finite_ucb(ucb, modular, size)
        assert np.isfinite(stand_in).all()
        found = best_by_enumeration(stand_in, modular, size, rng)
        exact = best_set(ucb, modular, size, rng)
        assert math.isinf(energy(ucb, modular, found)) == math.isinf(energy(ucb, modular, exact))
        assert ranking_value(ucb, modular, found) == pytest.approx(ranking_value(ucb, modular, exact), abs=1e-9)

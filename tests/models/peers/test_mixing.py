"""Mixing weights against spectral values worked out elsewhere, and what they do to the mean and to disagreement."""

from __future__ import annotations

import numpy as np
import pytest

from models.errors import ParameterError
from models.peers.mixing import max_degree, metropolis, stated_weights, uniform
from models.peers.regular import exponential, hypercube, ring, star, torus
from models.peers.topologies import complete, grid
from tests.helpers.mixing import keeps_mean, second_modulus

MODULI = {
    "ring": (lambda: ring(clients=16), 0.9492530217),
    "path": (lambda: grid(clients=16, rows=1), 0.9871901869),
    "star": (lambda: star(clients=16), 0.9375),
    "torus": (lambda: torus(clients=16), 0.6),
    "grid": (lambda: grid(clients=16), 0.8686406183),
    "hypercube": (lambda: hypercube(clients=16), 0.6),
    # In both directions: strides 1, 2, 4, 8 and their opposites, 7 neighbours, 1/8 each.
    "exponential": (lambda: exponential(clients=16), 0.5),
    "complete": (lambda: complete(clients=16, generator=np.random.default_rng(1)), 0.0),
}


@pytest.mark.parametrize("name", MODULI)
def test_the_second_modulus_of_metropolis_weights_is_the_known_one(name):
    make, modulus = MODULI[name]
    assert second_modulus(metropolis(graph=make())) == pytest.approx(modulus, abs=1e-9)


@pytest.mark.parametrize(("graph", "strides", "modulus"), [(ring, [1], 0.9807852804), (exponential, [1, 2, 4, 8], 0.6)])
def test_the_second_modulus_of_directed_graphs_is_the_known_one(graph, strides, modulus):
    # Peer i hears from i - s for each stride s, and gives all of them and itself the same weight.
    share = np.eye(16) / (len(strides) + 1)
    weights = sum((np.roll(share, stride, axis=0) for stride in strides), share)
    assert second_modulus(stated_weights(graph=graph(clients=16), weights=weights.tolist())) == pytest.approx(modulus, abs=1e-9)


def test_a_path_of_three_by_hand():
    mixing = metropolis(graph=grid(clients=3, rows=1))
    assert mixing.matrix() @ [0, 0, 3] == pytest.approx([0, 1, 2])
    assert np.sort(np.linalg.eigvals(mixing.matrix())) == pytest.approx([0, 2 / 3, 1])


@pytest.mark.parametrize("rule", [metropolis, max_degree])
def test_symmetric_weights_keep_the_mean_on_an_irregular_graph(rule):
    mixing = rule(graph=star(clients=5))
    assert keeps_mean(mixing)
    assert (mixing.matrix() == mixing.matrix().T).all()


def test_uniform_weights_move_the_mean_where_degrees_differ():
    assert not keeps_mean(uniform(graph=star(clients=5)))
    assert keeps_mean(uniform(graph=ring(clients=5)))


@pytest.mark.parametrize("name", MODULI)
def test_disagreement_shrinks_at_least_by_the_second_modulus(name):
    mixing = metropolis(graph=MODULI[name][0]())
    values = np.random.default_rng(7).normal(size=16)
    before, modulus = values - values.mean(), second_modulus(mixing)
    for _ in range(5):
        after = mixing.matrix() @ before
        assert np.linalg.norm(after) <= modulus * np.linalg.norm(before) + 1e-12
        before = after


def test_given_weights_are_taken_as_they_are():
    weights = [[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.0, 0.5, 0.5]]
    assert stated_weights(graph=grid(clients=3, rows=1), weights=weights).matrix().tolist() == weights


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ([[0.5, 0.4, 0], [0.25, 0.5, 0.25], [0, 0.5, 0.5]], "the weights of peer 0 must sum to 1"),
        ([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0, 0.5, 0.5]], "no neighbours"),
        ([[1.5, -0.5, 0], [0.25, 0.5, 0.25], [0, 0.5, 0.5]], ">= 0"),
        ([[1.0, 0.0], [0.0, 1.0]], "3 rows of 3 numbers"),
        ([[1.0], [0.0, 1.0]], "3 rows of 3 numbers"),
    ],
)
def test_weights_that_are_no_mixing_are_refused(weights, told):
    with pytest.raises(ParameterError, match=told):
        stated_weights(graph=grid(clients=3, rows=1), weights=weights)

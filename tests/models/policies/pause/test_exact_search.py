"""The exact selector against numbers by hand, against enumeration, and against a slow reference for more clients."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from models.policies.pause.enumeration import best_by_enumeration
from models.policies.pause.exact_search import best_set, energy, top_by_score
from models.policies.protocols import FloatArray, IntArray
from tests.helpers.selection import random_instance


def value(ucb: FloatArray, modular: FloatArray, members: IntArray) -> tuple[float, float]:
    """What sets are ranked by: the energy, and the modular sum where the energy is infinite."""
    reached = energy(ucb, modular, members)
    return reached, float(modular[members].sum()) if reached == math.inf else 0.0


def test_by_hand() -> None:
    ucb = np.array([3.0, 2.0, 1.0, 0.5])
    modular = np.array([0.0, 0.5, 2.0, 2.4])
    # Pairs: {0,1} 2 + 0.5 = 2.5; {0,2} 1 + 2 = 3; {1,2} 1 + 2.5 = 3.5; {2,3} 0.5 + 4.4 = 4.9; {1,3} 0.5 + 2.9 = 3.4.
    assert sorted(best_set(ucb, modular, 2, None).tolist()) == [2, 3]
    # With slower clients 2 and 3: {0,1} 2.5; {1,2} -2 + 2.5 = 0.5; {2,3} -3 + 4.4 = 1.4.
    assert sorted(best_set(ucb - [0, 0, 3, 3.5], modular, 2, None).tolist()) == [0, 1]


def test_infinite_ucb_is_the_limit_of_a_large_one() -> None:
    inf = math.inf
    # Two unexplored clients and two places: they are played, whatever the others offer.
    assert sorted(best_set(np.array([1.0, inf, 5.0, inf]), np.array([9.0, 0.0, 9.0, -1.0]), 2, None).tolist()) == [1, 3]
    # Three unexplored: the two of greatest modular score among them.
    assert sorted(best_set(np.array([inf, inf, 5.0, inf]), np.array([0.1, 0.2, 9.0, 0.3]), 2, None).tolist()) == [1, 3]
    # One unexplored of small score: {1,2} is 1 + 2 + 2 = 5, {0,1} is 1 + 0 + 2 = 3, {0,2} the same.
    assert sorted(best_set(np.array([inf, 1.0, 1.0]), np.array([0.0, 2.0, 2.0]), 2, None).tolist()) == [1, 2]
    # With a score as good as theirs it is never the slowest: {0,1} is 1.5 + 4, {1,2} 1 + 4.
    assert sorted(best_set(np.array([inf, 1.5, 1.0]), np.array([2.0, 2.0, 2.0]), 2, None).tolist()) == [0, 1]


def test_equals_enumeration_on_random_instances() -> None:
    rng = np.random.default_rng(1)
    for _ in range(800):
        ucb, modular, size = random_instance(rng)
        found = best_set(ucb, modular, size, rng)
        assert len(found) == len(set(found.tolist())) == size
        every = [value(ucb, modular, np.array(s)) for s in itertools.combinations(range(len(ucb)), size)]
        best = max(every)
        assert value(ucb, modular, found) == pytest.approx(best, rel=1e-12, abs=1e-12)
        assert value(ucb, modular, best_by_enumeration(ucb, modular, size, rng)) == pytest.approx(best, rel=1e-12, abs=1e-12)


def best_value(ucb: FloatArray, modular: FloatArray, size: int) -> float:
    """Optimum by trying every value of ucb as the minimum."""
    best = -math.inf
    for level in np.unique(ucb):
        scores = np.sort(modular[ucb >= level])
        if len(scores) >= size:
            best = max(best, float(level + scores[-size:].sum()))
    return best


@pytest.mark.parametrize("kind", ["independent", "opposed", "aligned", "tied", "one great score"])
def test_equals_reference_at_many_clients(kind: str) -> None:
    rng = np.random.default_rng(5)
    n, size = 20_000, 15
    ucb = rng.integers(0, 150, n) / 50.0
    modular = {
        "independent": rng.random(n),
        "opposed": 0.2 - ucb / 15 + 1e-3 * rng.random(n),
        "aligned": ucb / 15,
        "tied": np.full(n, 0.25),
        "one great score": np.where(np.arange(n) == 77, 50.0, rng.random(n)),
    }[kind]
    found = best_set(ucb, modular, size, rng)
    assert len(set(found.tolist())) == size
    assert energy(ucb, modular, found) == pytest.approx(best_value(ucb, modular, size), rel=1e-12)


def test_few_unexplored_among_many_clients() -> None:
    rng = np.random.default_rng(6)
    ucb, modular = rng.random(20_000), rng.random(20_000) / 15
    ucb[:5] = math.inf
    finite = np.where(ucb == math.inf, 1e6, ucb)
    found = best_set(ucb, modular, 15, rng)
    best = max(
        float(level + np.sort(modular[finite >= level])[-15:].sum()) for level in np.sort(finite)[::-1][14:800]
    )  # the minimum of a good set is among the highest values; lower ones only add to the check
    assert energy(ucb, modular, found) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("unexplored", [True, False])
def test_best_clients_standing_where_samples_are_taken(unexplored: bool) -> None:
    # A level judged from one client in 122 is then so high that fewer than 15 reach it.
    n, size = 1_000_000, 15
    scores = np.random.default_rng(7).random(n) / n
    scores[:: n // 8192] += 1.0 + np.arange(len(scores[:: n // 8192])) / 1e4
    wanted = sorted(np.argsort(scores)[-size:].tolist())
    assert sorted(top_by_score(scores, size, None).tolist()) == wanted
    ucb = np.full(n, math.inf) if unexplored else scores
    assert sorted(best_set(ucb, scores, size, None).tolist()) == wanted


def test_ties_are_broken_uniformly() -> None:
    rng = np.random.default_rng(8)
    ucb, modular = np.ones(6), np.array([1.0, 0.5, 0.5, 0.5, 0.5, 0.0])
    counts = np.zeros(6)
    draws = 6000
    for _ in range(draws):
        counts[best_set(ucb, modular, 3, rng)] += 1
    assert counts[0] == draws
    assert counts[5] == 0
    # Two of four tied clients: each with probability 1/2; 4.5 standard deviations of a binomial.
    assert np.all(np.abs(counts[1:5] - draws / 2) < 4.5 * math.sqrt(draws / 4))


def test_enumeration_breaks_ties_uniformly_across_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.policies.pause.enumeration._CHUNK", 4)
    rng = np.random.default_rng(9)
    hits = np.zeros(4)
    for _ in range(2000):
        hits[best_by_enumeration(np.ones(4), np.zeros(4), 2, rng)] += 1
    assert np.all(np.abs(hits - 1000) < 4.5 * math.sqrt(500))


def test_enumeration_refuses_what_it_cannot_do() -> None:
    with pytest.raises(ValueError, match=r"^per_round = 15: 300 clients make 7.69e\+24 sets"):
        best_by_enumeration(np.ones(300), np.ones(300), 15, None)


def test_top_by_score() -> None:
    scores = np.array([0.3, 0.9, 0.3, 0.1, 0.3])
    assert sorted(top_by_score(scores, 2, None).tolist()) == [0, 1]
    assert sorted(top_by_score(scores, 9, None).tolist()) == [0, 1, 2, 3, 4]
    seen = {tuple(sorted(top_by_score(scores, 2, np.random.default_rng(s)).tolist())) for s in range(60)}
    assert seen == {(0, 1), (1, 2), (1, 4)}

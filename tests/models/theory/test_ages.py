"""Lemma 1 of the channel study against clients that are drawn at random, and against schedulers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chisquare

from models.schedulers.random import Random
from models.theory.ages import expected_age
from models.theory.aoi import ages, simulate


def age_probabilities(ages: np.ndarray, *, clients: int, delivered: float) -> np.ndarray:
    """Return P(age = j) of a client in the long run for each j of `ages` (eq. 12)."""
    p = delivered / clients
    return p * (1.0 - p) ** (ages - 1)


def test_by_hand() -> None:
    assert expected_age(clients=6, delivered=2) == 3.0
    far = np.arange(1, 400)
    assert (far * age_probabilities(far, clients=7, delivered=3)).sum() == pytest.approx(expected_age(clients=7, delivered=3))


def test_ages_of_clients_drawn_at_random_follow_the_lemma() -> None:
    # |S| = 3 of 8 clients each round, uniformly; 70 rounds forget the first age but for (5/8)^70. One client of each history.
    clients, delivered, histories = 8, 3, 6000
    rng = np.random.default_rng(2)
    good = rng.permuted(np.tile(np.arange(clients) < delivered, (70, histories, 1)), axis=2)
    last = ages(good[:, :, 0])[-1]
    longest = 14
    law = age_probabilities(np.arange(1, longest + 1), clients=clients, delivered=delivered)
    counted = np.append(np.bincount(last, minlength=longest + 1)[1 : longest + 1], (last > longest).sum())
    assert chisquare(counted, histories * np.append(law, 1.0 - law.sum())).pvalue > 1e-3
    p = delivered / clients
    assert abs(last.mean() - expected_age(clients=clients, delivered=delivered)) < 4 * math.sqrt((1 - p) / p**2 / histories)
    # The sum over all clients is K^2 / |S|, what eq. 11 prints as their average.
    everyone = np.mean([ages(good[:, h])[-1].sum() for h in range(1000)])
    assert everyone == pytest.approx(clients**2 / delivered, rel=0.03)


def test_random_scheduling_has_the_age_of_the_lemma_and_unequal_clients_a_greater_one() -> None:
    rounds, clients = 8000, 3
    rng = np.random.default_rng(6)
    states = rng.random((rounds, 5)) < np.array([0.9, 0.7, 0.5, 0.3, 0.2])
    history = simulate(Random(clients=clients, channels=5), states, clients=clients, draws=rng)
    mean = float(history.good.sum(axis=1).mean())
    # An age's autocorrelation dies out by a factor 1 - p a round: variance of the mean (1 - p) (2 - p) / p^3 / T for one client,
    # at most three times that of the mean of three.
    p = mean / clients
    deviation = math.sqrt((1 - p) * (2 - p) / p**3 / rounds)
    assert abs(history.ages.mean() - expected_age(clients=clients, delivered=mean)) < 4 * deviation
    # As many deliveries, but each client on a channel of its own: 1/mu is convex.
    fixed = states[:, [0, 2, 4]]
    assert ages(fixed).mean() > 1.1 * expected_age(clients=3, delivered=float(fixed.sum(axis=1).mean()))


@pytest.mark.parametrize(
    ("clients", "delivered", "start"), [(0, 1.0, "clients = 0"), (3, 0.0, "delivered = 0.0"), (3, 4, "delivered = 4")]
)
def test_what_cannot_be_is_refused(clients: int, delivered: float, start: str) -> None:
    with pytest.raises(ValueError, match=f"^{start}"):
        expected_age(clients=clients, delivered=delivered)

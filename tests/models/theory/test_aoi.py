"""Ages of information: the recursion, the geometric law, regret and variance, the bounds of Theorems 2 to 5."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import chisquare

from models.schedulers.round_robin import RoundRobin
from models.theory.aoi import (
    ages,
    lemma3_constant,
    regret,
    simulate,
    theorem2_lower,
    theorem3_holds_from,
    theorem3_upper,
    theorem4_lower,
    theorem5_upper,
    variance,
)


def test_ages_by_hand() -> None:
    good = np.array([[0, 1], [0, 1], [1, 0], [0, 0], [0, 1]], bool)
    np.testing.assert_array_equal(ages(good), [[2, 1], [3, 1], [1, 2], [2, 3], [3, 1]])


def test_ages_of_play_are_the_recursion_on_what_arrived() -> None:
    states = np.random.default_rng(1).random((300, 6)) < 0.4
    history = simulate(RoundRobin(clients=4, channels=6), states, clients=4, draws=np.random.default_rng(2))
    np.testing.assert_array_equal(history.ages, ages(history.good))
    np.testing.assert_array_equal(history.good, np.take_along_axis(states, history.channels, axis=1))


def test_ages_are_geometric_on_a_stationary_channel() -> None:
    # 60 rounds forget the first age but for 0.7^60; every client is an independent sample.
    mu, clients = 0.3, 20_000
    last = ages(np.random.default_rng(5).random((60, clients)) < mu)[-1]
    longest = 20
    law = mu * (1.0 - mu) ** np.arange(longest)
    expected = clients * np.append(law, 1.0 - law.sum())
    counted = np.append(np.bincount(last, minlength=longest + 1)[1 : longest + 1], (last > longest).sum())
    assert chisquare(counted, expected).pvalue > 1e-3
    deviation = math.sqrt((1.0 - mu) / mu**2 / clients)
    assert abs(last.mean() - 1.0 / mu) < 4 * deviation


def expected_ages(means: np.ndarray) -> np.ndarray:
    """Return E[a(t)] = 1 + (1 - mean) E[a(t - 1)] of a channel that is Good with `means[t - 1]` in round t (eq. 15)."""
    return np.array(list(itertools.accumulate(means, lambda age, mean: 1.0 + (1.0 - mean) * age, initial=1.0)))[1:]


def test_expected_ages_by_hand_and_by_enumeration() -> None:
    np.testing.assert_allclose(expected_ages(np.array([0.5, 0.25])), [1.5, 2.125])
    means = np.array([0.2, 0.9, 0.0, 0.6, 1.0, 0.3])
    total = np.zeros(6)
    for outcome in itertools.product([False, True], repeat=6):
        good = np.array(outcome)
        total += ages(good[:, None])[:, 0] * np.where(good, means, 1.0 - means).prod()
    np.testing.assert_allclose(expected_ages(means), total)
    assert expected_ages(np.full(400, 0.3))[-1] == pytest.approx(1.0 / 0.3)


def test_regret_and_variance_by_hand() -> None:
    mine, oracle = np.array([[2, 1], [1, 4], [3, 1]]), np.array([[1, 1], [1, 1], [2, 3]])
    np.testing.assert_array_equal(regret(mine, oracle), [1, 4, 3])
    np.testing.assert_allclose(variance(mine), [0.5, 4.5, 2.0])
    np.testing.assert_allclose(np.cumsum(variance(mine)), [0.5, 5.0, 7.0])
    with pytest.raises(ValueError, match=r"^oracle_ages has shape"):
        regret(mine, oracle[:2])


def test_theorem_2_has_the_order_and_the_constant_of_its_proof() -> None:
    order = (5 - 2) ** 2 / 5**2 * math.sqrt(5 * 10**12)
    assert theorem2_lower(10**12, clients=2, channels=5) / order == pytest.approx(3 / 8, rel=1e-4)
    assert theorem2_lower(100, clients=3, channels=3) == 0.0
    # e = 1/(4 sqrt(2 T)) = 1/8 for K = 1, N = 2, T = 2: 2e/(1+2e) = 1/5 times 2 - 1 - 1 sqrt(-ln(15/16)).
    assert theorem2_lower(2, clients=1, channels=2) == pytest.approx((1.0 - math.sqrt(math.log(16 / 15))) / 5)


def test_theorem_3_by_hand() -> None:
    # N = 2, K = 1: C = 2.
    assert theorem3_upper(100, clients=1, channels=2) == pytest.approx(16 * math.sqrt(math.e - 1) * math.sqrt(200 * math.log(2)))
    assert theorem3_holds_from(clients=1, channels=2) == 153  # 16 (e - 1) 8 ln 2 = 152.45


def test_theorem_4_has_the_order_and_the_constant_of_its_proof() -> None:
    order = math.sqrt(2 * 10**12 / 5)
    assert theorem4_lower(10**12, clients=2, channels=5) / order == pytest.approx(2 * (1 - 2 / 5), rel=1e-4)
    # K = 2, N = 4, T = 32: K T / N = 16, e = 1/4: 2e/(1+2e) = 1/3 times 16 - 4 - 2 sqrt(16 ln(4/3)).
    assert theorem4_lower(32, clients=2, channels=4) == pytest.approx((12 - 8 * math.sqrt(math.log(4 / 3))) / 3)


def test_theorem_5_by_hand() -> None:
    # Two channels of mean 1 - 1/e: ln of the product is -2, so c' = 2/2 = 1.
    c = lemma3_constant(np.full(2, 1.0 - math.exp(-1.0)))
    assert c == pytest.approx(1.0)
    assert lemma3_constant(np.array([0.5, 1.0])) == 0.0
    log_t = math.log(1000)
    wrong = 3 * math.sqrt(5 * 1000 * log_t)
    expected = (3 * 2 * (log_t + 1) + 2 * log_t * wrong) / 0.25
    bound = theorem5_upper(1000, clients=2, channels=5, segments=3, c=c, mu_min=0.25)
    assert bound == pytest.approx(expected)


@pytest.mark.parametrize(
    ("call", "start"),
    [
        (lambda: theorem2_lower(0, clients=1, channels=2), "rounds = 0"),
        (lambda: theorem2_lower(10, clients=3, channels=2), "channels = 2"),
        (lambda: theorem2_lower(1, clients=1, channels=100), "rounds = 1: too few"),
        (lambda: theorem3_upper(10, clients=0, channels=2), "clients = 0"),
        (lambda: theorem4_lower(2, clients=1, channels=2), "rounds = 2: too few"),
        (lambda: theorem5_upper(9, clients=1, channels=2, segments=0, c=1.0, mu_min=0.5), "segments = 0"),
        (lambda: theorem5_upper(9, clients=1, channels=2, segments=1, c=1.0, mu_min=0.0), "mu_min = 0.0"),
        (lambda: theorem5_upper(9, clients=1, channels=2, segments=1, c=-1.0, mu_min=0.5), "c = -1.0"),
        (lambda: lemma3_constant(np.zeros(2)), "best_means"),
    ],
)
def test_bad_values_are_refused(call: object, start: str) -> None:
    with pytest.raises(ValueError, match=f"^{start}"):
        call()  # type: ignore[operator]

"""How AoI regret grows with the horizon on piecewise-stationary channels: the promise of Theorem 5, and that random breaks it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student

from models.schedulers.glr_cucb import GlrCucb
from models.schedulers.protocols import BoolArray, FloatArray, Scheduler
from models.schedulers.random import Random
from models.theory.aoi import ages, regret, simulate

CLIENTS, CHANNELS = 2, 5
HORIZONS = (1000, 2000, 4000)
# Three segments of equal length: the best set moves twice, and one of its channels stays good the first time.
MEANS = np.array([[0.9, 0.8, 0.4, 0.3, 0.2], [0.3, 0.8, 0.9, 0.2, 0.4], [0.2, 0.3, 0.4, 0.9, 0.8]])
GROUPS, GROUP = 6, 4


def instance(rounds: int, seed: int) -> tuple[BoolArray, FloatArray]:
    """States and means of every round, each (T, N)."""
    means = MEANS[np.arange(rounds) * len(MEANS) // rounds]
    return np.random.default_rng(seed).random(means.shape) < means, means


def oracle_ages(states: BoolArray, means: FloatArray) -> np.ndarray:
    """Ages of the oracle `means`: the K best channels, client j on the ((j + t) mod K)-th of them."""
    best = np.argsort(-means, axis=1, kind="stable")[:, :CLIENTS]
    turn = (np.arange(CLIENTS) + np.arange(1, len(states) + 1)[:, None]) % CLIENTS
    return ages(np.take_along_axis(states, np.take_along_axis(best, turn, axis=1), axis=1))


def final_regret(make: type[Scheduler], rounds: int, seed: int) -> float:
    states, means = instance(rounds, seed)
    sizes = {"clients": CLIENTS, "channels": CHANNELS} | ({"rounds": rounds} if make is GlrCucb else {})
    history = simulate(make(**sizes), states, clients=CLIENTS, draws=np.random.default_rng(seed))
    return float(regret(history.ages, oracle_ages(states, means))[-1])


def slope_interval(make: type[Scheduler], confidence: float) -> tuple[float, float]:
    """Two-sided interval for the slope of log regret on log horizon: one slope for the mean regrets of each group of seeds."""
    slopes = []
    for group in range(GROUPS):
        seeds = range(100 + group * GROUP, 100 + (group + 1) * GROUP)
        mean = [np.mean([final_regret(make, rounds, seed) for seed in seeds]) for rounds in HORIZONS]
        slopes.append(np.polyfit(np.log(HORIZONS), np.log(mean), 1)[0])
    half = student.ppf(0.5 + confidence / 2, GROUPS - 1) * np.std(slopes, ddof=1) / np.sqrt(GROUPS)
    return float(np.mean(slopes) - half), float(np.mean(slopes) + half)


def test_the_oracle_above_is_the_one_of_the_simulator() -> None:
    from models.schedulers.oracles.means import Means

    states, means = instance(500, 1)

    class Truth:
        def means(self, round: int) -> FloatArray:
            return means[round - 1]

        def states(self, round: int) -> BoolArray:
            return states[round - 1]

    history = simulate(
        Means(clients=CLIENTS, channels=CHANNELS, truth=Truth()), states, clients=CLIENTS, draws=np.random.default_rng(1)
    )
    np.testing.assert_array_equal(history.ages, oracle_ages(states, means))


@pytest.mark.slow
def test_regret_of_glr_cucb_grows_slower_than_the_horizon() -> None:
    # With a confidence of 99.9 %: 24 instances at each horizon, in 6 groups.
    low, high = slope_interval(GlrCucb, 0.998)
    assert high < 1.0
    assert low > 0.0


@pytest.mark.slow
def test_regret_of_random_scheduling_grows_with_the_horizon() -> None:
    low, high = slope_interval(Random, 0.998)
    assert low < 1.0 < high
    assert high - low < 0.3

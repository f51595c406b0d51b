"""Cost of channel scheduling and of change detection, as ratios within one run: `make bench`, or pytest with
`-m "" --benchmark-only -s` on this file."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from scipy.special import xlogy

from models.detection.glr_exact import GlrExact
from models.laws.sub_channels.sequences import StateSequence
from models.schedulers.aoi_aware import AoiAware
from models.schedulers.cucb import Cucb
from models.schedulers.glr_cucb import GlrCucb
from models.schedulers.m_exp3 import MExp3
from models.schedulers.oracles.csi import Csi
from models.schedulers.oracles.means import Means
from models.schedulers.oracles.means_age import MeansAge
from models.schedulers.random import Random
from models.schedulers.round_robin import RoundRobin
from models.theory.aoi import simulate
from tests.helpers.piecewise_states import piecewise_states

ROUNDS = 20_000


def states(channels: int, rounds: int = ROUNDS) -> StateSequence:
    return piecewise_states(channels=channels, rounds=rounds, generator=np.random.default_rng(1), breakpoints=5, min_spacing=500)


def round_s(make: Callable[[], Any], truth: StateSequence, clients: int, repeats: int = 3) -> float:
    """Least processor time of a round, the untimed world included."""
    times = []
    for _ in range(repeats):
        scheduler = make()
        start = process_time()
        simulate(scheduler, truth.table, clients=clients, draws=np.random.default_rng(2))
        times.append((process_time() - start) / truth.rounds)
    return min(times)


def test_rounds_per_second_at_5_choose_2(benchmark: BenchmarkFixture) -> None:
    """GLR-CUCB and M-Exp3 above 20,000 rounds a second of one core, without an engine."""
    truth = states(5)
    size = {"clients": 2, "channels": 5}
    makers: dict[str, Callable[[], Any]] = {
        "random": lambda: Random(**size),
        "round-robin": lambda: RoundRobin(**size),
        "cucb": lambda: Cucb(**size),
        "m-exp3": lambda: MExp3(**size),
        "glr-cucb": lambda: GlrCucb(**size, rounds=ROUNDS),
        "aa-m-exp3": lambda: AoiAware(**size, scheduler=MExp3(**size)),
        "aa-glr-cucb": lambda: AoiAware(**size, scheduler=GlrCucb(**size, rounds=ROUNDS)),
        "means": lambda: Means(**size, truth=truth),
        "means-age": lambda: MeansAge(**size, truth=truth),
        "csi": lambda: Csi(**size, truth=truth),
    }
    cost = {name: round_s(make, truth, 2) for name, make in makers.items()}
    for name, seconds in cost.items():
        print(f"\n{name}: {1 / seconds:,.0f} rounds/s ({seconds * 1e6:.1f} us)", end="")
    assert 1 / cost["glr-cucb"] > 20_000
    assert 1 / cost["m-exp3"] > 20_000
    benchmark.pedantic(lambda: simulate(MExp3(**size), truth.table[:500], clients=2, draws=np.random.default_rng(2)), rounds=5)


def test_m_exp3_round_at_30_choose_20(benchmark: BenchmarkFixture) -> None:
    """At most 3 times a round at N = 5, K = 2, over 20,000 rounds with as many arms stored."""
    small, large = states(5), states(30)
    few = round_s(lambda: MExp3(clients=2, channels=5), small, 2)
    many = round_s(lambda: MExp3(clients=20, channels=30), large, 20)
    print(f"\nN = 5, K = 2: {few * 1e6:.1f} us; N = 30, K = 20: {many * 1e6:.1f} us, {many / few:.2f} times as long")
    assert many <= 3 * few
    benchmark.pedantic(
        lambda: simulate(MExp3(clients=20, channels=30), large.table[:500], clients=20, draws=np.random.default_rng(2)), rounds=5
    )


def test_m_exp3_memory_goes_by_the_arms_played(benchmark: BenchmarkFixture) -> None:
    def bytes_an_arm(clients: int, channels: int, rounds: int) -> tuple[float, int]:
        truth = states(channels, max(rounds, 3500))
        scheduler = MExp3(clients=clients, channels=channels)
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        history = simulate(scheduler, truth.table[:rounds], clients=clients, draws=np.random.default_rng(2))
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        kept = sum(array.nbytes for array in history)
        return (after - before - kept) / len(scheduler._weights), len(scheduler._weights)

    figures = {rounds: bytes_an_arm(20, 30, rounds) for rounds in (1000, 4000, 16_000)}
    for rounds, (size, arms) in figures.items():
        print(f"\n{rounds} rounds of C(30, 20): {arms} arms stored, {size:.0f} bytes each", end="")
    # A tree that has just doubled is half empty.
    assert figures[16_000][0] <= 2 * figures[4000][0]
    assert figures[16_000][0] <= 1000
    benchmark.pedantic(lambda: bytes_an_arm(20, 30, 200), rounds=1)


class AllSplits:
    """The GLR statistic over every split point of a stream of zeros and ones, in NumPy: n ln n is looked up, and what concerns
    only the observations before a split point is kept, so that a test takes two look-ups a split point."""

    def __init__(self, x: np.ndarray) -> None:
        self.table = xlogy(np.arange(len(x) + 1.0), np.arange(len(x) + 1.0))
        self.ones = np.cumsum(x).astype(np.int64)
        self.zeros = np.arange(1, len(x) + 1) - self.ones
        self.before = self.table[self.ones] + self.table[self.zeros] - self.table[1:]

    def statistic(self, count: int) -> float:
        """Of the first `count` observations."""
        splits, last = slice(0, count - 1), count - 1
        behind = self.table[self.ones[last] - self.ones[splits]] + self.table[self.zeros[last] - self.zeros[splits]]
        return float((self.before[splits] + behind - self.table[last:0:-1]).max() - self.before[last])


def cost_at(xs: list[float], last: int) -> tuple[float, float, GlrExact]:
    """Processor time of an observation averaged over the `last` ones, and of the statistic alone."""
    best = math.inf, math.inf
    glr = GlrExact()
    for _ in range(3):
        glr = GlrExact()
        for x in xs[:-last]:
            glr.update(x)
        start = process_time()
        for x in xs[-last:]:
            glr.update(x)
        update = (process_time() - start) / last
        start = process_time()
        for _ in range(500):
            glr.statistic()
        best = min(best[0], update), min(best[1], (process_time() - start) / 500)
    return *best, glr


@pytest.mark.parametrize("mean", [0.2, 0.5])
def test_exact_glr_against_all_splits(benchmark: BenchmarkFixture, mean: float) -> None:
    """At D = 20,000 an observation, test included, costs at most a tenth of all split points in NumPy."""
    x = (np.random.default_rng(3).random(20_000) < mean).astype(np.float64)
    update, alone, glr = cost_at(x.tolist(), 2000)
    rival = AllSplits(x)
    times = []
    for _ in range(20):
        start = process_time()
        for count in range(19_991, 20_001):
            value = rival.statistic(count)
        times.append((process_time() - start) / 10)
    splits = min(times)
    points = sum(map(len, glr.state_dict()["path"].values()))
    print(
        f"\nmean {mean}: observation {update * 1e6:.2f} us, statistic {alone * 1e6:.2f} us ({points} points stored), "
        f"all splits {splits * 1e6:.0f} us: {splits / update:.0f} and {splits / alone:.1f} times as long"
    )
    assert glr.statistic() == pytest.approx(value, abs=1e-8)
    assert splits >= 10 * update
    benchmark(glr.statistic)


def test_cost_of_an_observation_hardly_grows(benchmark: BenchmarkFixture) -> None:
    """From D = 10^3 to 10^5 on stationary data the cost of an observation grows slower than D^0.2."""
    rng = np.random.default_rng(4)
    cost = {1000: 0.0, 100_000: 0.0}
    alone = dict(cost)
    streams = 4
    for _ in range(streams):
        xs = (rng.random(100_000) < 0.5).astype(np.float64).tolist()
        for count in cost:
            update, statistic, _ = cost_at(xs[:count], 500)
            cost[count] += update / streams
            alone[count] += statistic / streams
    slope = math.log(cost[100_000] / cost[1000]) / math.log(100)
    of_statistic = math.log(alone[100_000] / alone[1000]) / math.log(100)
    print(
        f"\nobservation: {cost[1000] * 1e6:.2f} us at 10^3, {cost[100_000] * 1e6:.2f} us at 10^5: D^{slope:.2f}; "
        f"statistic: {alone[1000] * 1e6:.2f}, {alone[100_000] * 1e6:.2f} us: D^{of_statistic:.2f}"
    )
    assert slope < 0.2
    glr = GlrExact()
    xs = (rng.random(1000) < 0.5).astype(np.float64).tolist()
    benchmark(lambda: [glr.update(x) for x in xs])

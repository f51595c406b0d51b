"""Cost of PAUSE's exact selection, as ratios within one run; pytest with `-m "" --benchmark-only -s` prints the figures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from time import perf_counter

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from models.policies.pause.enumeration import best_by_enumeration
from models.policies.pause.exact_search import best_set, energy
from models.policies.pause.pause import Pause
from models.policies.protocols import FloatArray, IntArray
from models.privacy import GeometricSchedule
from netsim.core.protocols import RoundView

ALMOST = 1e-12


def best_time_s(call: Callable[[], object], repeats: int, number: int = 1) -> float:
    """Least mean time of `number` calls over `repeats`: what the code costs when nothing else runs."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        for _ in range(number):
            call()
        times.append((perf_counter() - start) / number)
    return min(times)


def by_itertools(ucb: FloatArray, modular: FloatArray, size: int) -> IntArray:
    """Enumeration in plain Python, on lists: the loop of the paper's authors without their arrays."""
    u, w = ucb.tolist(), modular.tolist()
    best = max(itertools.combinations(range(len(u)), size), key=lambda s: min([u[k] for k in s]) + sum([w[k] for k in s]))
    return np.array(best)


def test_exact_against_enumeration_at_30_choose_5(benchmark: BenchmarkFixture) -> None:
    rng = np.random.default_rng(1)
    ucb, modular = 1.0 + rng.random(30), rng.random(30)
    rivals = {
        "itertools, plain Python": lambda: by_itertools(ucb, modular, 5),
        "itertools and NumPy, 65,536 sets at a time (pause.enumeration)": lambda: best_by_enumeration(ucb, modular, 5, rng),
    }
    benchmark(lambda: best_set(ucb, modular, 5, rng))
    exact_s = best_time_s(lambda: best_set(ucb, modular, 5, rng), repeats=20, number=200)
    reached = energy(ucb, modular, best_set(ucb, modular, 5, rng))
    print(f"\nexact, 30 choose 5: {exact_s * 1e6:.1f} us")
    for name, rival in rivals.items():
        rival_s = best_time_s(rival, repeats=3)
        assert energy(ucb, modular, rival()) == pytest.approx(reached, rel=ALMOST)
        print(f"  {name}: {rival_s * 1e3:.1f} ms, {rival_s / exact_s:,.0f} times as long")
        assert rival_s >= 1000 * exact_s


def pause_at(clients: int, per_round: int, state: str) -> tuple[Pause, RoundView]:
    """A policy late in a run, as if restored from a checkpoint, and the view of its next round.

    `unexplored`: the first round. `exploring`: a tenth of the clients played once to five times. `explored`: all of them.
    """
    rng = np.random.default_rng(clients)
    sizes = rng.gamma(2.0, size=clients)
    schedule = GeometricSchedule(epsilon_total=20.0, eta=0.04)
    policy = Pause(clients=clients, per_round=per_round, data_sizes=sizes, schedule=schedule)
    counts = np.zeros(clients, np.int64)
    played = {"unexplored": 0, "exploring": clients // 10, "explored": clients}[state]
    counts[rng.permutation(clients)[:played]] = rng.integers(1, 6, played)
    ratios = counts * (0.05 + 0.9 * rng.random(clients))
    played_counts = counts.astype(np.float64)
    policy.load_state_dict({"rewards": {"counts": played_counts}, "latency": {"counts": played_counts, "sums": ratios}})
    round = max(1, int(counts.sum()) // per_round)
    return policy, RoundView(round, 0.0, np.ones(clients, bool), counts, rng)


@pytest.mark.parametrize("state", ["unexplored", "exploring", "explored"])
def test_fifteen_of_a_million(benchmark: BenchmarkFixture, state: str) -> None:
    policy, view = pause_at(1_000_000, 15, state)
    assert len(set(policy.select(view).tolist())) == 15
    benchmark.pedantic(lambda: policy.select(view), rounds=5)
    select_s = best_time_s(lambda: policy.select(view), repeats=7)
    print(f"\n15 of 1,000,000, {state}: {select_s * 1e3:.1f} ms of policy time")
    assert select_s <= 0.1


@pytest.mark.parametrize("state", ["unexplored", "exploring", "explored"])
def test_cost_grows_no_faster_than_k_log_k(benchmark: BenchmarkFixture, state: str) -> None:
    runs = {clients: pause_at(clients, 15, state) for clients in (10_000, 100_000, 1_000_000)}
    costs = dict.fromkeys(runs, math.inf)
    # In turn, so that what else the machine does in the meantime meets all sizes alike.
    for _ in range(40):
        for clients, (policy, view) in runs.items():
            once_s = best_time_s(lambda p=policy, v=view: p.select(v), repeats=max(2, 200_000 // clients))  # type: ignore[misc]
            costs[clients] = min(costs[clients], once_s)
    policy, view = pause_at(10_000, 15, state)
    benchmark(lambda: policy.select(view))
    print(f"\ncost of a selection, {state}: " + ", ".join(f"K = {k:,}: {s * 1e3:.2f} ms" for k, s in costs.items()))
    # Arrays of 10^6 leave the processor's cache, those of 10^5 do not: a single step is allowed twice as much, both together not.
    for small, large, slack in ((10_000, 100_000, 2.0), (100_000, 1_000_000, 2.0), (10_000, 1_000_000, 1.0)):
        allowed = large * math.log(large) / (small * math.log(small))
        print(f"  {small:,} to {large:,}: {costs[large] / costs[small]:.1f} times; K log K allows {allowed:.1f}")
        assert costs[large] <= slack * allowed * costs[small]


def test_small_networks(benchmark: BenchmarkFixture) -> None:
    for clients, per_round in ((30, 5), (300, 15)):
        policy, view = pause_at(clients, per_round, "explored")
        select_s = best_time_s(lambda p=policy, v=view: p.select(v), repeats=20, number=100)  # type: ignore[misc]
        print(f"\n{per_round} of {clients}: {select_s * 1e6:.0f} us of policy time")
        # A round of a study without a learner may take 500 us in all (2,000 rounds per second).
        assert select_s <= 250e-6
    policy, view = pause_at(300, 15, "explored")
    benchmark(lambda: policy.select(view))

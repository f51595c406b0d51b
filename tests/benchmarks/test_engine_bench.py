"""Speed and memory of the engine, as ratios within one run against named references.

`make bench` runs them. A reference and the engine are timed in turn, several times, in seconds of one core, and the best of each
is compared, so that what else the machine does matters little.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy
from scipy.special import ndtri

from models.policies.pause.pause import Pause
from models.privacy import GeometricSchedule
from netsim.core.clock import Clock
from netsim.core.protocols import RoundView
from netsim.core.reports import RoundOutcome
from scenarios.runs.reading import parse
from scenarios.runs.run import simulate
from scenarios.wiring.simulation import build

MESSAGES = 200_000
DELAYS = np.random.default_rng(1).random(4096).tolist()


def bare_heap(clients: int) -> float:
    """Messages per second of a loop that pops the next message and pushes its successor, and does nothing else."""
    queue: list[tuple[float, int, int]] = []
    numbers = itertools.count()
    for client in range(clients):
        heappush(queue, (DELAYS[client % 4096], next(numbers), client))
    began = time.process_time()
    for count in range(MESSAGES):
        now, _, client = heappop(queue)
        heappush(queue, (now + DELAYS[count & 4095], next(numbers), client))
    return MESSAGES / (time.process_time() - began)


def engine(clients: int) -> float:
    """The same messages as timed calls of the clock, each sending its successor."""
    clock = Clock()
    over = clock.event()
    count = 0

    def receive(client: int) -> None:
        nonlocal count
        count += 1
        if count == MESSAGES:
            over.succeed()
        clock.call_in(DELAYS[count & 4095], receive, client)

    for client in range(clients):
        clock.call_in(DELAYS[client % 4096], receive, client)
    began = time.process_time()
    clock.run_until(over)
    return MESSAGES / (time.process_time() - began)


def stores(clients: int) -> float:
    """The same traffic through a SimPy Store for each client's mailbox, with a process that reads it."""
    environment = simpy.Environment()
    boxes = [simpy.Store(environment) for _ in range(clients)]
    total = MESSAGES // 10
    over = environment.event()
    count = 0

    def deliver(client: int, delay: float) -> Generator[Any, Any, None]:
        yield environment.timeout(delay)
        yield boxes[client].put(client)

    def read(client: int) -> Generator[Any, Any, None]:
        nonlocal count
        while True:
            yield boxes[client].get()
            count += 1
            if count == total:
                over.succeed()
            environment.process(deliver(client, DELAYS[count & 4095]))

    for client in range(clients):
        environment.process(read(client))
        environment.process(deliver(client, DELAYS[client % 4096]))
    began = time.process_time()
    environment.run(until=over)
    return total / (time.process_time() - began)


def best(*measures: Callable[[], float], rounds: int = 5) -> list[float]:
    """The best of several measurements of each, taken in turn."""
    found = [[measure() for measure in measures] for _ in range(rounds)]
    return [max(column) for column in zip(*found, strict=True)]


def test_messages(benchmark: Any) -> None:
    benchmark.pedantic(engine, (50,), rounds=1)
    bare, calls, boxes = best(lambda: bare_heap(50), lambda: engine(50), lambda: stores(50))
    bare_many, calls_many = best(lambda: bare_heap(10_000), lambda: engine(10_000))
    share, share_many = calls / bare, calls_many / bare_many
    print(
        f"\nmessages/s: bare heap {bare:,.0f}, engine {calls:,.0f} (share {share:.2f}), Store a mailbox {boxes:,.0f} "
        f"(engine {calls / boxes:.1f} times); with 10,000 clients: bare {bare_many:,.0f}, engine {calls_many:,.0f} "
        f"(share {share_many:.2f}, {share_many / share:.2f} of that with 50)"
    )
    assert share >= 0.30
    assert calls >= 5 * boxes
    assert share_many >= 0.8 * share


CLIENTS, PER_ROUND, ROUNDS = 300, 15, 2000
LEAST_SHARE = 0.27
"""Of the bare sketch's rounds per second. Where the target of 2,000 rounds/s was set the sketch did 5,400; on a machine that does
nothing else both do more than twice as many, the sketch by more, and the share is 0.31 to 0.37."""
STUDY: dict[str, Any] = {
    "name": "speed",
    "rounds": ROUNDS,
    "clients": {"count": CLIENTS, "groups": [{"name": "fast", "share": 0.5}, {"name": "slow", "share": 0.5}]},
    "server": {"per_round": PER_ROUND},
    "policy": {"kind": "pause"},
    "uplink": {
        "delay": {
            "kind": "gaussian",
            "mean_s": {"by_group": {"fast": {"from": 0.05, "to": 0.2}, "slow": {"from": 0.7, "to": 0.9}}},
            "std_s": 0.05,
            "floor_s": 0.05,
        }
    },
    "privacy": {"sensitivity": 0.01, "schedule": {"kind": "geometric", "epsilon_total": 20.0, "eta": 0.04}},
}


def sketch() -> float:
    """Rounds per second of the same study as a script: let the same policy select, draw, take every update through a heap in
    three steps (download, training, upload), let the policy learn. No records, no losses, no names."""
    rng = np.random.default_rng(1)
    half = CLIENTS // 2
    ramp = np.arange(1, half + 1) / half
    means = np.concatenate((0.05 + 0.15 * ramp, 0.7 + 0.2 * ramp))
    schedule = GeometricSchedule(epsilon_total=20.0, eta=0.04)
    policy = Pause(clients=CLIENTS, per_round=PER_ROUND, data_sizes=np.ones(CLIENTS), schedule=schedule)
    everyone, nobody = np.ones(CLIENTS, np.bool_), np.zeros(PER_ROUND, np.bool_)
    releases = np.zeros(CLIENTS, np.int64)
    now = 0.0
    began = time.process_time()
    for t in range(1, ROUNDS + 1):
        start = now
        chosen = policy.select(RoundView(t, start, everyone, releases, rng))
        latency = np.maximum(means[chosen] + 0.05 * ndtri(rng.random(CLIENTS)[chosen]), 0.05)
        values = latency.tolist()
        queue = [(start, 0, i) for i in range(PER_ROUND)]
        while queue:
            now, phase, i = heappop(queue)
            if phase < 2:
                heappush(queue, (now + values[i] if phase == 1 else now, phase + 1, i))
        releases[chosen] += 1
        policy.observe(RoundOutcome(t, start, now, chosen, latency, nobody))
    return ROUNDS / (time.process_time() - began)


def test_a_study_without_a_learner(benchmark: Any, tmp_path: Path) -> None:
    scenario = parse(STUDY)

    def whole() -> float:
        built = build(scenario)
        began = time.process_time()
        simulate(built, scenario, tmp_path / "run", overwrite=True)
        return ROUNDS / (time.process_time() - began)

    benchmark.pedantic(whole, rounds=1)
    rate, bare = best(whole, sketch, rounds=8)
    print(f"\nrounds/s, 15 of 300 by PAUSE, full records: {rate:,.0f}; bare sketch {bare:,.0f}; ratio {rate / bare:.2f}")
    assert rate / bare >= LEAST_SHARE


PEAK = """
import resource, sys
from scenarios.runs.reading import parse
from scenarios.runs.run import run
from tests.benchmarks.test_engine_bench import STUDY
run(parse(STUDY | {"rounds": int(sys.argv[1])}), sys.argv[2])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_rounds(benchmark: Any, tmp_path: Path) -> None:
    def peak_kib(rounds: int) -> int:
        command = [sys.executable, "-c", PEAK, str(rounds), str(tmp_path / str(rounds))]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    short = benchmark.pedantic(peak_kib, (1000,), rounds=1)
    long = peak_kib(100_000)
    print(f"\npeak memory: {short / 1024:.0f} MiB at 1,000 rounds, {long / 1024:.0f} MiB at 100,000 ({long / short - 1:+.1%})")
    assert long <= 1.1 * short

"""Learning speed against a plain sequential torch loop, both in one run (`pytest --benchmark-only`, or the bench target)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from analysis import open_run
from scenarios.runs.reading import parse
from scenarios.runs.run import simulate
from scenarios.schema.scenario import Scenario
from scenarios.wiring.simulation import build
from tests.benchmarks.bmm_sketch import BmmSketch
from tests.benchmarks.learning_workloads import RATE, cnn_of, mlp_100, svm_100, workload_w
from tests.helpers.fl_reference import flatten

# How it is expected to train, and at least how many times as fast as the plain loop.
CASES = {
    "workload-w": (workload_w, 1, "vectorised", 2.2, 40),
    "mlp-784-32-16-10": (mlp_100, 2, "vectorised", 2.5, 3),
    "linear-svm": (svm_100, 2, "vectorised", 1.0, 5),
    "cnn-digits": (cnn_of((1, 8, 8)), 1, "vectorised", 1.2, 10),
    "cnn-mnist": (cnn_of((1, 28, 28)), 1, "sequential", 1.0, 3),
    "cnn-cifar": (cnn_of((3, 32, 32)), 1, "sequential", 1.0, 2),
}


def scenario(*, clients: int, a_round: int, rounds: int, learner: dict[str, Any]) -> Scenario:
    """A study with records of rounds and clients, everything else small and usual."""
    return parse(
        {
            "name": "bench",
            "rounds": rounds,
            "clients": {"count": clients},
            "server": {"per_round": a_round},
            "policy": {"kind": "pause", "alpha": 100.0, "beta": 2.0, "gamma": 5.0, "tau_min_s": 0.05},
            "compute": {"delay": {"kind": "gaussian", "mean_s": {"from": 0.1, "to": 0.9}, "std_s": 0.05, "floor_s": 0.05}},
            "uplink": {"channel": {"kind": "bernoulli", "success": 1.0}},
            "privacy": {
                "mechanism": "none",
                "sensitivity": 1.0,
                "schedule": {"kind": "geometric", "epsilon_total": 40.0, "eta": 0.04},
            },
            "learner": {"device": "cpu", "optimizer": {"kind": "sgd", "learning_rate": RATE}, **learner},
        }
    )


Clock = Callable[[], float]


def played(study: Scenario, folder: Path, *, threads: int, clock: Clock = time.perf_counter) -> float:
    """Seconds a round of the whole simulator, from the first round to complete files; building is not counted."""
    torch.set_num_threads(threads)
    built = build(study)
    start = clock()
    simulate(built, study, folder, overwrite=True)
    spent = clock() - start
    assert len(open_run(folder).clients) == study.rounds * study.server.per_round
    return spent / study.rounds


def best(action: Callable[[], float], times: int, clock: Clock = time.perf_counter) -> float:
    spent = []
    for _ in range(times):
        start = clock()
        action()
        spent.append(clock() - start)
    return min(spent)


def mean_of(action: Callable[[], float], times: int, clock: Clock) -> float:
    start = clock()
    for _ in range(times):
        action()
    return (clock() - start) / times


@pytest.mark.parametrize("case", CASES)
def test_rounds_against_a_plain_loop(benchmark, case):
    make, threads, mode, least, rounds = CASES[case]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        work = make()
        assert work.learner.training_mode.startswith(mode)
        work.learned_round()
        work.plain_round()
        # Taken alternately, so that another load on the machine falls on both; the best of each is the least disturbed.
        plain = min(best(work.plain_round, max(1, rounds // 2)), best(work.plain_round, max(1, rounds // 2)))
        learned = best(work.learned_round, rounds)
        benchmark.pedantic(work.learned_round, rounds=rounds, iterations=1)
        plain = min(plain, best(work.plain_round, max(1, rounds // 2)))
        learned = min(learned, benchmark.stats.stats.min)
    finally:
        torch.set_num_threads(before)
    benchmark.extra_info.update(
        plain_rounds_per_s=round(1 / plain, 1), rounds_per_s=round(1 / learned, 1), ratio=round(plain / learned, 2)
    )
    assert plain / learned >= least
    assert torch.isfinite(flatten(work.network)).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cifar_cnn_on_cuda_against_a_plain_loop(benchmark):
    """Both on the same GPU; the accuracy that ends a round waits for all of its work."""
    work = cnn_of((3, 32, 32), steps=100, device="cuda")()
    assert work.learner.training_mode == "vectorised"
    for _ in range(2):
        work.learned_round()
        work.plain_round()
    plain = best(work.plain_round, 3)
    benchmark.pedantic(work.learned_round, rounds=10, iterations=1)
    learned = benchmark.stats.stats.min
    benchmark.extra_info.update(
        device=torch.cuda.get_device_name(),
        plain_rounds_per_s=round(1 / plain, 2),
        rounds_per_s=round(1 / learned, 2),
        ratio=round(plain / learned, 2),
    )
    assert plain / learned >= 8


def test_the_whole_simulator_against_a_plain_loop(benchmark, tmp_path):
    """Workload W: engine, policy and records included; the plain loop and its steps in bmm simulate nothing.

    Processor time of one thread: a whole run is too long for a busy machine to leave it alone.
    """
    clock = time.process_time
    rounds = 600  # the start and the end of a run, some 20 ms, belong to no round
    study = scenario(
        clients=50,
        a_round=10,
        rounds=rounds,
        learner={"network": {"kind": "mlp", "hidden": [64]}, "batch_size": 16, "epochs": 5, "max_steps": 5},
    )
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        work = workload_w()
        sketch = BmmSketch(workload_w())
        work.plain_round()
        plain, bare = mean_of(work.plain_round, 30, clock), mean_of(sketch, 150, clock)
        played(study.model_copy(update={"rounds": 10}), tmp_path, threads=1, clock=clock)
        whole = benchmark.pedantic(lambda: played(study, tmp_path, threads=1, clock=clock), rounds=3, iterations=1)
        whole = min(whole, *(played(study, tmp_path, threads=1, clock=clock) for _ in range(2)))
        for _ in range(3):
            plain, bare = min(plain, mean_of(work.plain_round, 30, clock)), min(bare, mean_of(sketch, 150, clock))
        accuracy = max(sketch() for _ in range(200))
    finally:
        torch.set_num_threads(before)
    benchmark.extra_info.update(
        plain_rounds_per_s=round(1 / plain, 1), rounds_per_s=round(1 / whole, 1), ratio=round(plain / whole, 2)
    )
    benchmark.extra_info.update(bmm_rounds_per_s=round(1 / bare, 1), share_of_bmm=round(bare / whole, 2))
    print(f"\nW: plain {1 / plain:.1f}, bmm {1 / bare:.1f}, whole simulator {1 / whole:.1f} rounds/s")
    assert accuracy > 0.9  # what it is measured against does learn
    assert plain / whole >= 2
    assert bare / whole >= 0.25


def test_share_of_a_round_spent_outside_torch(benchmark, tmp_path):
    """MLP 784-32-16-10, 15 clients, 100 local steps: the same study with and without its learner."""
    rounds = 30
    learner = {"network": {"kind": "mlp", "hidden": [32, 16]}, "batch_size": 20, "epochs": 100, "max_steps": 100}
    study = scenario(clients=15, a_round=15, rounds=rounds, learner=learner)
    before = torch.get_num_threads()
    try:
        built = build(study)
        torch.set_num_threads(2)
        # In place of digits, images of the size that the network is named after.
        server = built.simulation.server
        server.loop.learner = server.loop.dispatch.learner = mlp_100().learner
        start = time.perf_counter()
        simulate(built, study, tmp_path / "whole", overwrite=True)
        whole = (time.perf_counter() - start) / rounds
    finally:
        torch.set_num_threads(before)
    without = study.model_copy(update={"learner": None})
    played(without, tmp_path / "outside", threads=1)
    outside = min(
        benchmark.pedantic(lambda: played(without, tmp_path / "outside", threads=1), rounds=3, iterations=1),
        *(played(without, tmp_path / "outside", threads=1) for _ in range(3)),
    )
    share = outside / whole
    benchmark.extra_info.update(round_ms=round(whole * 1e3, 1), outside_ms=round(outside * 1e3, 2), share=round(share, 4))
    assert share <= 0.05

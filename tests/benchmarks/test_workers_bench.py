"""What workers gain in one run, and what a job costs beside its training: wall times of an otherwise idle machine."""

from __future__ import annotations

import os
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from scenarios.runs.reading import parse
from scenarios.runs.run import run
from scenarios.runs.training_machines import TrainingMachines

SERVERS: dict[str, dict[str, Any]] = {
    "synchronous": {"kind": "synchronous", "per_round": 10},
    "buffered": {"kind": "buffered", "concurrency": 20, "buffer": 10},
    "asynchronous": {"kind": "buffered", "concurrency": 10, "buffer": 1},
}
# Network, its images, local steps of 20 samples, and the rounds of ten clients that are timed.
STUDIES: dict[str, tuple[dict[str, Any], str, int, int]] = {
    "CNN on 28x28": ({"kind": "cnn", "channels": [16, 32, 32]}, "grey", 40, 3),
    "ResNet-18 on 32x32": ({"kind": "torchvision", "name": "resnet18"}, "colour", 2, 2),
}
PAIRS = 3
MOST_JOB_S = 0.003
MOST_ON_CLUSTER = 1.15
"""Time on two workers of Dask's local cluster, in times of two processes."""


def study(server: str, network: str, workers: int) -> dict[str, Any]:
    """Return a run of twenty clients whose models are tested at its end only."""
    table, images, steps, rounds = STUDIES[network]
    deliveries = 10 // SERVERS[server].get("buffer", 10)
    return {
        "name": "bench",
        # The first ten clients are not timed: workers map the samples, and warm up. Nor is the last round, which tests the model.
        "rounds": (1 + rounds) * deliveries + 1,
        "clients": {"count": 20},
        "server": SERVERS[server],
        "policy": {"kind": "random"},
        "compute": {"delay": {"kind": "uniform", "low_s": 0.5, "high_s": 1.5}},
        "learner": {
            "data": {"kind": f"tests.golden.made_data:{images}", "test_samples": 20},
            "network": table,
            "optimizer": {"kind": "sgd", "learning_rate": 0.01},
            "epochs": steps,
            "max_steps": steps,
            "evaluate_every_rounds": 1000,
            "workers": workers,
            "threads": 1,
        },
    }


def seconds(tables: dict[str, Any], folder: Path, cluster: str | None = None) -> float:
    """Return the wall time of a round of ten clients, without the first; `cluster`: address of the workers, None: processes."""
    ends: list[float] = []

    def note_end(simulation: Any) -> None:
        ends.append(time.perf_counter())

    machines = TrainingMachines(cluster=cluster)
    run(parse(tables), folder, overwrite=True, after_round=note_end, checkpoint_s=1e9, machines=machines)
    rounds = 10 // tables["server"].get("buffer", 10)
    # The model is tested in the first and the last round.
    timed = ends[rounds - 1 : -1]
    return (timed[-1] - timed[0]) / (len(timed) - 1) * rounds


@pytest.mark.needs_torch
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
@pytest.mark.parametrize("network", STUDIES)
@pytest.mark.parametrize("server", SERVERS)
def test_two_workers_against_one(benchmark: Any, tmp_path: Path, server: str, network: str) -> None:
    pairs = [[seconds(study(server, network, workers), tmp_path / f"{workers}") for workers in (1, 2)] for _ in range(PAIRS)]
    gains = sorted(one / two for one, two in pairs)
    benchmark.pedantic(lambda: None, rounds=1)
    benchmark.extra_info.update(gains=gains, seconds=pairs)
    print(f"\n{network}, {server}: {median(one for one, _ in pairs):.2f} s a round of ten, gains {np.round(gains, 2).tolist()}")
    assert median(gains) >= 1.6


@pytest.mark.needs_torch
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
@pytest.mark.parametrize("server", SERVERS)
def test_a_local_cluster_against_processes(benchmark: Any, tmp_path: Path, server: str) -> None:
    tables = study(server, "CNN on 28x28", 2)
    pairs = [[seconds(tables, tmp_path / "run", cluster) for cluster in (None, "local:2")] for _ in range(PAIRS)]
    ratios = sorted(cluster / processes for processes, cluster in pairs)
    benchmark.pedantic(lambda: None, rounds=1)
    benchmark.extra_info.update(ratios=ratios, seconds=pairs)
    print(f"\nCNN on 28x28, {server}: a local cluster takes {np.round(ratios, 2).tolist()} of the time of processes")
    assert median(ratios) <= MOST_ON_CLUSTER


def test_a_job_beside_its_training(benchmark: Any) -> None:
    pytest.importorskip("torch")
    from scenarios.workers.training_processes import TrainingProcesses
    from tests.helpers.learners import batch_normed, deliver, make

    workers = TrainingProcesses(["cpu"])
    learner = make(network=batch_normed(), workers=workers, max_steps=1, threads=1)
    spent = []
    with workers.start_workers():
        for round in range(1, 31):
            before, start = workers.facts(), time.perf_counter()
            learner.aggregate(deliver(round, [0, 1, 2, 3], round - 1), False)
            after, ended = workers.facts(), time.perf_counter()
            trained = after["jobs"] * after["job_s"] - before["jobs"] * before["job_s"]
            spent.append((ended - start - trained) / 4)
    benchmark.pedantic(lambda: None, rounds=1)
    benchmark.extra_info.update(job_s=median(spent))
    print(f"\na job costs {1e3 * median(spent):.2f} ms beside its training ({1e3 * min(spent):.2f} at the least)")
    assert median(spent) < MOST_JOB_S

"""Learning speed against a plain sequential torch loop, both in one run (`pytest --benchmark-only`, or the bench target)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from analysis import open_run
from models.fl.data import Dataset, load_dataset
from models.fl.learner import FederatedLearner
from models.fl.losses import CrossEntropy, Hinge, Loss
from models.fl.mechanisms import NoMechanism
from models.fl.networks import cnn, mlp, svm
from models.fl.optimizers import Sgd
from models.fl.partition import equal
from netsim.interfaces import Deliveries
from netsim.streams import Streams
from scenarios.build import build
from scenarios.reading import parse
from scenarios.run import play
from scenarios.schema import Scenario
from tests.fl_reference import flatten

RATE = 0.05


def made(shape: tuple[int, ...], samples: int) -> Dataset:
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(samples, *shape, generator=g), torch.randint(0, 10, (samples,), generator=g)
    return Dataset("made", 10, x, y, x[:500], y[:500], x[:0], y[:0])


class Workload:
    """The same rounds by the learner and by a loop over clients with torch's modules and optimiser."""

    def __init__(
        self, *, dataset: Dataset, make, loss: Loss, reference, clients: int, a_round: int, steps: int, batch: int
    ) -> None:
        self.parts = equal(dataset.train_y.numpy(), clients=clients, generator=np.random.default_rng(0))
        self.make, self.dataset, self.reference = make, dataset, reference
        self.clients, self.a_round, self.steps, self.batch = clients, a_round, steps, batch
        self.learner = FederatedLearner(
            dataset=dataset,
            partition=self.parts,
            network=make(),
            loss=loss,
            optimizer=Sgd(learning_rate=RATE),
            mechanism=NoMechanism(),
            streams=Streams(0),
            batch_size=batch,
            epochs=steps,
            max_steps=steps,
        )
        self.network, self.worker = make(), make()
        self.round = 0

    def chosen(self) -> np.ndarray:
        return np.random.default_rng(self.round).choice(self.clients, self.a_round, replace=False)

    def learned_round(self) -> float:
        self.round += 1
        chosen, n = self.chosen(), self.a_round
        rounds, versions = np.full(n, self.round), np.full(n, self.learner.version)
        self.learner.aggregate(Deliveries(self.round, chosen, rounds, versions, np.full(n, np.inf)), False)
        quality = self.learner.evaluate(self.round, 0.0, True)
        assert quality is not None
        return quality.accuracy

    def plain_round(self) -> float:
        self.round += 1
        data, start = self.dataset, [p.detach().clone() for p in self.network.parameters()]
        mean = [torch.zeros_like(p) for p in start]
        for client in self.chosen().tolist():
            part, rng = self.parts[client], np.random.default_rng([self.round, client])
            with torch.no_grad():
                for p, q in zip(self.worker.parameters(), start, strict=True):
                    p.copy_(q)
            optimizer = torch.optim.SGD(self.worker.parameters(), lr=RATE)
            done = 0
            while done < self.steps:
                order = rng.permutation(part)
                for first in range(0, len(order), self.batch):
                    index = torch.from_numpy(order[first : first + self.batch])
                    optimizer.zero_grad()
                    self.reference(self.worker(data.train_x[index]), data.train_y[index]).backward()
                    optimizer.step()
                    done += 1
                    if done == self.steps:
                        break
            with torch.no_grad():
                for m, p in zip(mean, self.worker.parameters(), strict=True):
                    m.add_(p, alpha=1 / self.a_round)
        with torch.no_grad():
            for p, m in zip(self.network.parameters(), mean, strict=True):
                p.copy_(m)
            return (self.network(data.test_x).argmax(1) == data.test_y).float().mean().item()


def hinge(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    signs = 2 * functional.one_hot(labels, 10) - 1
    return torch.relu(1 - signs * scores).sum(1).mean()


def workload_w() -> Workload:
    digits = load_dataset(kind="digits", root=Path(), generator=np.random.default_rng(0))
    return Workload(
        dataset=digits,
        make=lambda: mlp((1, 8, 8), 10, seed=0, hidden=[64]),
        loss=CrossEntropy(),
        reference=functional.cross_entropy,
        clients=50,
        a_round=10,
        steps=5,
        batch=16,
    )


def mlp_100() -> Workload:
    return Workload(
        dataset=made((1, 28, 28), 3000),
        make=lambda: mlp((1, 28, 28), 10, seed=0, hidden=[32, 16]),
        loss=CrossEntropy(),
        reference=functional.cross_entropy,
        clients=15,
        a_round=15,
        steps=100,
        batch=20,
    )


def svm_100() -> Workload:
    return Workload(
        dataset=made((1, 28, 28), 6000),
        make=lambda: svm((1, 28, 28), 10, seed=0),
        loss=Hinge(),
        reference=hinge,
        clients=5,
        a_round=5,
        steps=100,
        batch=100,
    )


def cnn_of(shape: tuple[int, ...]) -> Callable[[], Workload]:
    return lambda: Workload(
        dataset=made(shape, 600),
        make=lambda: cnn(shape, 10, seed=0),
        loss=CrossEntropy(),
        reference=functional.cross_entropy,
        clients=15,
        a_round=15,
        steps=2,
        batch=20,
    )


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


def played(study: Scenario, folder: Path, *, threads: int) -> float:
    """Seconds a round of the whole simulator, from the first round to complete files; building is not counted."""
    torch.set_num_threads(threads)
    built = build(study)
    start = time.perf_counter()
    play(built, study, folder, overwrite=True)
    spent = time.perf_counter() - start
    assert len(open_run(folder).clients) == study.rounds * study.server.per_round
    return spent / study.rounds


def best(action: Callable[[], float], times: int) -> float:
    spent = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        spent.append(time.perf_counter() - start)
    return min(spent)


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


def test_the_whole_simulator_against_a_plain_loop(benchmark, tmp_path):
    """Workload W: engine, policy and records included, the plain loop simulates nothing."""
    rounds = 150
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
        work.plain_round()
        plain = best(work.plain_round, 40)
        played(study.model_copy(update={"rounds": 10}), tmp_path, threads=1)
        whole = benchmark.pedantic(lambda: played(study, tmp_path, threads=1), rounds=3, iterations=1)
        whole = min(whole, *(played(study, tmp_path, threads=1) for _ in range(2)))
        plain = min(plain, best(work.plain_round, 40))
    finally:
        torch.set_num_threads(before)
    benchmark.extra_info.update(
        plain_rounds_per_s=round(1 / plain, 1), rounds_per_s=round(1 / whole, 1), ratio=round(plain / whole, 2)
    )
    assert plain / whole >= 2


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
        server.learner = mlp_100().learner
        start = time.perf_counter()
        play(built, study, tmp_path / "whole", overwrite=True)
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

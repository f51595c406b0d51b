"""The same rounds of training by the learner and by a plain sequential torch loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from models.fl.data.datasets import Dataset, load_dataset
from models.fl.data.partition import equal
from models.fl.learners.learner import FederatedLearner
from models.fl.learners.methods import Methods
from models.fl.learners.task import Task
from models.fl.networks.kinds import cnn, mlp, svm
from models.fl.options.names import DataOptions, TrainingOptions
from models.fl.training.losses import CrossEntropy, Hinge, Loss
from models.fl.training.optimizers import Sgd
from netsim.core.protocols import Deliveries
from netsim.core.streams import Streams

RATE = 0.05


def made(shape: tuple[int, ...], samples: int) -> Dataset:
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(samples, *shape, generator=g), torch.randint(0, 10, (samples,), generator=g)
    return Dataset("made", 10, x, y, x[:500], y[:500], x[:0], y[:0])


class Workload:
    """The same rounds by the learner and by a loop over clients with torch's modules and optimiser."""

    def __init__(
        self,
        *,
        dataset: Dataset,
        make,
        loss: Loss,
        reference,
        clients: int,
        a_round: int,
        steps: int,
        batch: int,
        device: str = "cpu",
    ) -> None:
        self.parts = equal(dataset.train_y.numpy(), clients=clients, generator=np.random.default_rng(0))
        self.reference = reference
        self.clients, self.a_round, self.steps, self.batch = clients, a_round, steps, batch
        self.learner = FederatedLearner(
            task=Task(dataset=dataset, partition=self.parts, network=make(), loss=loss),
            streams=Streams(0),
            methods=Methods(optimizer=Sgd(learning_rate=RATE)),
            options=TrainingOptions(batch_size=batch, epochs=steps, max_steps=steps, device=device),
        )
        tensors = (dataset.train_x, dataset.train_y, dataset.test_x, dataset.test_y)
        self.train_x, self.train_y, self.test_x, self.test_y = (tensor.to(device) for tensor in tensors)
        self.network, self.worker = make().to(device), make().to(device)
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
        start = [p.detach().clone() for p in self.network.parameters()]
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
                    index = torch.from_numpy(order[first : first + self.batch]).to(self.train_x.device)
                    optimizer.zero_grad()
                    self.reference(self.worker(self.train_x[index]), self.train_y[index]).backward()
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
            return (self.network(self.test_x).argmax(1) == self.test_y).float().mean().item()


def hinge(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    signs = 2 * functional.one_hot(labels, 10) - 1
    return torch.relu(1 - signs * scores).sum(1).mean()


def workload_w(device: str = "cpu") -> Workload:
    digits = load_dataset(DataOptions(kind="digits"), root=Path(), generator=np.random.default_rng(0))
    return Workload(
        dataset=digits,
        make=lambda: mlp((1, 8, 8), 10, seed=0, hidden=[64]),
        loss=CrossEntropy(),
        reference=functional.cross_entropy,
        clients=50,
        a_round=10,
        steps=5,
        batch=16,
        device=device,
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


def cnn_of(shape: tuple[int, ...], *, steps: int = 2, device: str = "cpu") -> Callable[[], Workload]:
    return lambda: Workload(
        dataset=made(shape, 600),
        make=lambda: cnn(shape, 10, seed=0),
        loss=CrossEntropy(),
        reference=functional.cross_entropy,
        clients=15,
        a_round=15,
        steps=steps,
        batch=20,
        device=device,
    )

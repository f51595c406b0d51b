"""Workload W written out in torch's bmm, nothing else: what the learner and the whole simulator are measured against."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tests.benchmarks.learning_workloads import RATE, Workload


class BmmSketch:
    """Rounds of a workload of one hidden layer and cross-entropy: same clients, batches and test as the workload's own rounds.

    All chosen clients take each step together, on full batches; no records, no clock, no privacy, no checks.
    """

    def __init__(self, work: Workload) -> None:
        self._work = work
        first, second = work.network.layers
        self._model: list[Tensor] = [p.detach().clone() for p in (first.weight, first.bias, second.weight, second.bias)]
        self._x, self._test_x = work.train_x.flatten(1), work.test_x.flatten(1)
        self.round = 0

    def __call__(self) -> float:
        """One round; the accuracy after it."""
        work = self._work
        self.round += 1
        chosen = np.random.default_rng(self.round).choice(work.clients, work.a_round, replace=False)
        index = torch.from_numpy(np.stack([self._batches(client) for client in chosen.tolist()], axis=1))
        w1, b1, w2, b2 = (p.expand(work.a_round, *p.shape).clone() for p in self._model)
        with torch.no_grad():
            for samples in index:
                x, y = self._x[samples], work.train_y[samples]
                hidden = torch.relu(torch.baddbmm(b1.unsqueeze(1), x, w1.transpose(1, 2)))
                scores = torch.baddbmm(b2.unsqueeze(1), hidden, w2.transpose(1, 2))
                slope = torch.softmax(scores, 2)
                slope.scatter_add_(2, y.unsqueeze(2), torch.full_like(slope[..., :1], -1.0)).div_(work.batch)
                below = torch.bmm(slope, w2).mul_(hidden > 0)
                w2.sub_(torch.bmm(slope.transpose(1, 2), hidden), alpha=RATE)
                b2.sub_(slope.sum(1), alpha=RATE)
                w1.sub_(torch.bmm(below.transpose(1, 2), x), alpha=RATE)
                b1.sub_(below.sum(1), alpha=RATE)
            self._model = [p.mean(0) for p in (w1, b1, w2, b2)]
            w1, b1, w2, b2 = self._model
            scores = torch.addmm(b2, torch.relu(torch.addmm(b1, self._test_x, w1.t())), w2.t())
            return (scores.argmax(1) == work.test_y).float().mean().item()

    def _batches(self, client: int) -> np.ndarray:
        """Samples (steps, batch) of a client's steps, permutation after permutation."""
        work, rng = self._work, np.random.default_rng([self.round, client])
        part = work.parts[client]
        needed = work.steps * work.batch
        orders = [rng.permutation(part) for _ in range(-(-needed // len(part)))]
        return np.concatenate(orders)[:needed].reshape(work.steps, work.batch)

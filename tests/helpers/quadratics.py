"""Clients whose losses are quadratics in one parameter, trained as any network is."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from models.fl.data.datasets import Dataset
from models.fl.learners.learner import FederatedLearner
from models.fl.learners.methods import Methods
from models.fl.learners.task import Task
from models.fl.options.names import TrainingOptions
from models.fl.training.optimizers import Sgd
from netsim.core.streams import Streams


class Point(nn.Module):
    """A parameter w, at 0 first, whose value is the score of every class."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self._classes = classes
        self.w = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w.expand(len(x), self._classes)


class Quadratic:
    """Samples of label k have the loss a_k (w - e_k)^2 / 2."""

    def __init__(self, curvatures, optima) -> None:
        self._a, self._e = torch.tensor(curvatures), torch.tensor(optima)

    def value(self, scores, labels):
        return self._a[labels] * (scores[..., 0] - self._e[labels]).square() / 2

    def slope(self, scores, labels):
        raise NotImplementedError("derived by torch")


def quadratics(*, curvatures, optima, aggregation, rate=0.1, sizes=None, plan=None, server_optimizer=None, **options):
    """A learner whose client k has the loss `curvatures[k]` (w - `optima[k]`)^2 / 2, in `sizes[k]` samples (one)."""
    count = len(curvatures)
    labels = np.repeat(np.arange(count), sizes or [1] * count)
    x, y = torch.zeros(len(labels), 1, 1, 1), torch.from_numpy(labels)
    chosen = {} if server_optimizer is None else {"server_optimizer": server_optimizer}
    return FederatedLearner(
        task=Task(
            dataset=Dataset("made", count, x, y, x, y, x[:0], y[:0]),
            partition=[np.flatnonzero(labels == k) for k in range(count)],
            network=Point(count),
            loss=Quadratic(curvatures, optima),
        ),
        methods=Methods(optimizer=Sgd(learning_rate=rate), aggregation=aggregation, **chosen),
        streams=Streams(0),
        options=TrainingOptions(**{"batch_size": 100, "device": "cpu", **options}),
        plan=plan,
    )

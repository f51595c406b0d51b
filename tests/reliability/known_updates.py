"""A learner whose updates are known without training: each client pulls a vector of three numbers towards its own target.

The scores that the network gives are the vector itself, so that metrics tell the model. `sizes` and `update` state in NumPy what
the parts state in torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

FloatArray = NDArray[np.float64]
COUNT = 8
"""Clients; each has the samples of one label."""
WIDTH = 3
"""Numbers of the model."""


def sizes() -> FloatArray:
    """Return the samples (K,) of each client."""
    return 3.0 + 2.0 * (np.arange(COUNT) * 5 % COUNT)


def targets() -> FloatArray:
    """Return the vector (K, d) that each client pulls the model to."""
    return np.cos(1.7 * np.arange(COUNT)[:, None] + np.array([0.3, 1.1, 2.9])) * (1.0 + np.arange(COUNT)[:, None])


def pulls() -> FloatArray:
    """Return how far (K,) each client moves the model, as a share of the way to its target."""
    return 0.15 + 0.1 * (np.arange(COUNT) * 3 % COUNT)


def update(client: int, start: FloatArray) -> FloatArray:
    """Return the update (d,) of a client from the model `start` (d,)."""
    return np.asarray(pulls()[client] * (targets()[client] - start))


def data() -> tuple[Any, Any, Any, Any]:
    """Return samples whose label is the number of their client."""
    labels = np.repeat(np.arange(COUNT), sizes().astype(int))
    return np.zeros((len(labels), 1, 1, 1), np.float32), labels, np.zeros((COUNT, 1, 1, 1), np.float32), np.arange(COUNT)


def partition_by_client(labels: Any, *, clients: int, generator: Any) -> list[Any]:
    """Return the samples of each client: those of its label."""
    return [np.flatnonzero(labels == client) for client in range(clients)]


class Vector(nn.Module):
    """A network whose scores are its parameters, whatever the input."""

    def __init__(self, input_shape: Any, classes: int) -> None:
        super().__init__()
        self._rest = classes - WIDTH
        self.w = nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))

    def forward(self, x: Tensor) -> Tensor:
        """Return the parameters, followed by zeros, as the scores of each sample."""
        return nn.functional.pad(self.w, (0, self._rest)).expand(len(x), -1)


def pull(parameters: Mapping[str, Tensor], data: Any, steps: int, generator: Any) -> tuple[Mapping[str, Tensor], int, Any]:
    """Train a client: move its parameters towards its target."""
    client = int(data.y[0])
    start = parameters["w"]
    target = torch.from_numpy(targets()[client]).to(start)
    processed = sum(len(batch) for batch in data.batches)
    return {"w": start + float(pulls()[client]) * (target - start)}, processed, torch.ones(len(data.y))


def first_number(scores: Tensor, classes: Tensor) -> float:
    """Return the first number of the model."""
    return float(scores[0, 0])


def second_number(scores: Tensor, classes: Tensor) -> float:
    """Return the second number of the model."""
    return float(scores[0, 1])


def third_number(scores: Tensor, classes: Tensor) -> float:
    """Return the third number of the model."""
    return float(scores[0, 2])


def learner() -> dict[str, Any]:
    """Return the table `[learner]` with these parts."""
    module = __name__
    return {
        "data": {"kind": f"{module}:data", "scale": "raw"},
        "partition": {"kind": f"{module}:partition_by_client"},
        "network": {"kind": f"{module}:Vector"},
        "local_training": f"{module}:pull",
        "optimizer": {"kind": "sgd", "learning_rate": 0.1},
        "metrics": [f"{module}:{name}" for name in ("first_number", "second_number", "third_number")],
        "batch_size": 4,
    }

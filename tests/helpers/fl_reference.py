"""Plain local training, one client after another, with torch's own modules and optimisers: what the learner must equal."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from models.fl.data.batches import draw_batches


def hinge(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(())
    for row, label in zip(scores, labels.tolist(), strict=True):
        for j, score in enumerate(row):
            total = total + torch.relu(1 - score if j == label else 1 + score)
    return total / len(scores)


def squared_hinge(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(())
    for row, label in zip(scores, labels.tolist(), strict=True):
        for j, score in enumerate(row):
            total = total + torch.relu(1 - score if j == label else 1 + score) ** 2
    return total / len(scores)


def make_optimizer(kind: str, parameters, options: dict[str, float]) -> torch.optim.Optimizer:
    if kind == "sgd":
        return torch.optim.SGD(
            parameters,
            lr=options["learning_rate"],
            momentum=options.get("momentum", 0.0),
            weight_decay=options.get("weight_decay", 0.0),
        )
    return torch.optim.Adam(parameters, lr=options["learning_rate"], weight_decay=options.get("weight_decay", 0.0))


def train_one(
    module: nn.Module,
    x,
    y,
    batches: np.ndarray,
    *,
    kind: str,
    options: dict[str, float],
    loss=functional.cross_entropy,
    proximal: float = 0.0,
) -> nn.Module:
    """A trained copy of `module`."""
    start = [p.detach().clone() for p in module.parameters()]
    module = copy.deepcopy(module)
    module.train()
    optimizer = make_optimizer(kind, module.parameters(), options)
    for batch in batches:
        index = torch.from_numpy(batch[batch >= 0])
        optimizer.zero_grad()
        value = loss(module(x[index]), y[index])
        if proximal:
            value = value + proximal / 2 * sum(((p - q) ** 2).sum() for p, q in zip(module.parameters(), start, strict=True))
        value.backward()
        optimizer.step()
    return module


def flatten(module: nn.Module) -> torch.Tensor:
    tensors = [*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())]
    return torch.cat([t.detach().flatten() for t in tensors])


def draw_passes(part, generator, *, batch_size, epochs, max_steps=None):
    """The batches of so many passes over `part`, of which at most `max_steps` are taken."""
    whole = epochs * math.ceil(len(part) / batch_size)
    return draw_batches(part, generator, batch_size=batch_size, steps=whole if max_steps is None else min(whole, max_steps))

"""A network and its plain training for tests of aggregations."""

from __future__ import annotations

import torch
from torch import nn
from torch.func import functional_call

from models.fl.networks.kinds import mlp
from models.fl.training.optimizers import Sgd
from tests.helpers.learners import deliver, make_data, model

TWO = {"curvatures": [1.0, 3.0], "optima": [0.0, 1.0]}
"""F_1 = x^2/2 and F_2 = 3 (x - 1)^2/2; their mean has its minimum at 0.75."""


def rounds(learner, count, clients=(0, 1)) -> list[float]:
    found = []
    for round in range(1, count + 1):
        learner.aggregate(deliver(round, list(clients), learner.version), False)
        found.append(float(model(learner)[0]))
    return found


class Tanh(nn.Module):
    """A network that netsim has no gradients for: torch.func stacks it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 6), nn.Linear(6, 5)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x.flatten(1))))


class Alone(Tanh):
    """A network that cannot be stacked: it looks at its data."""

    def forward(self, x):
        if float(x.sum()) > 1e9:
            return torch.zeros(len(x), 5)
        return super().forward(x)


def network(kind) -> nn.Module:
    torch.manual_seed(3)
    return {"hand": lambda: mlp((1, 4, 4), 5, seed=1, hidden=[8]), "vmap": Tanh, "alone": Alone}[kind]()


def trained(module, w, batches, *, rate, shift, pull):
    """(d,) after plain SGD from `w` (d,), one step a batch, each gradient plus `shift` and `pull` times the way from `w`."""
    data = make_data()
    names = [name for name, _ in module.named_parameters()]
    shapes = [p.shape for p in module.parameters()]
    at = w.clone()
    for batch in batches:
        index = torch.from_numpy(batch[batch >= 0])
        leaf = at.clone().requires_grad_()
        parts = torch.split(leaf, [shape.numel() for shape in shapes])
        values = {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        loss = nn.functional.cross_entropy(functional_call(module, values, (data.train_x[index],)), data.train_y[index])
        (gradient,) = torch.autograd.grad(loss, leaf)
        at = at - rate * (gradient + shift + pull * (at - w))
    return at


SGD = Sgd(learning_rate=0.1)

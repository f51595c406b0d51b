"""Networks as users write them: module classes and functions, with the arguments that they happen to have."""

from __future__ import annotations

import torch
from torch import nn


class NoArguments(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(64, 10)

    def forward(self, x):
        return self.last(x.flatten(1))


class OnlyClasses(NoArguments):
    def __init__(self, num_classes=1000):
        super().__init__()
        self.last = nn.Linear(64, num_classes)


class WithKeys(nn.Module):
    def __init__(self, inputs, classes, hidden: int = 4):
        super().__init__()
        self.first = nn.Linear(inputs[1] * inputs[2], hidden)
        self.last = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.last(torch.relu(self.first(x.flatten(1))))


def no_arguments():
    return NoArguments()


def seeded(classes, inputs, seed: int):
    """Draws its first weights from a generator of its own."""
    network = WithKeys(inputs, classes)
    generator = torch.Generator().manual_seed(seed % 2**31)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0.0, 0.1, generator=generator)
    return network


class Narrow(NoArguments):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(784, 10)


class NineClasses(NoArguments):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(64, 9)


class Pair(NoArguments):
    def forward(self, x):
        return x, super().forward(x)


class Nothing(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :10]


def misnamed(shape, n):
    return WithKeys(shape, n)


def fails(inputs):
    raise KeyError("no such thing")

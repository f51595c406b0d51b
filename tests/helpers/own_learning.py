"""What a user may write for training: data, partitions, networks; and what will not do."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from models.errors import ParameterError


class TwoLayers(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.first = nn.Linear(input_shape[0] * input_shape[1] * input_shape[2], 12)
        self.second = nn.Linear(12, classes)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x.flatten(1))))


class Narrow(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.only = nn.Linear(5, classes)

    def forward(self, x):
        return self.only(x.flatten(1))


class Broken(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        raise KeyError("no such thing")


class Normalised(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.norm = nn.BatchNorm2d(input_shape[0])
        self.last = nn.Linear(input_shape[0] * input_shape[1] * input_shape[2], classes)

    def forward(self, x):
        return self.last(self.norm(x).flatten(1))


def dropping(input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, classes))


def averages(input_shape, classes):
    """A network without parameters."""
    return nn.Sequential(nn.Flatten(), nn.AdaptiveAvgPool1d(classes))


def by_turns(labels, *, clients: int, generator, step: int = 1, odd: bool = False):
    """Client k gets every sample whose place in the order of labels is k, modulo their number. `step` is how many are dealt."""
    if step < 1:
        raise ParameterError("step", step, "must be >= 1")
    order = np.argsort(labels, kind="stable") if not odd else generator.permutation(len(labels))
    return [order[np.arange(len(order)) // step % clients == k] for k in range(clients)]


class Turns(list):
    """A class will do as well: its object is a list."""

    def __init__(self, labels, *, clients: int, generator):
        super().__init__(by_turns(labels, clients=clients, generator=generator))


def fails(labels, *, clients: int, generator):
    raise RuntimeError("no luck")


def refuses(labels, *, clients: int, generator):
    raise ValueError("I will not")


def too_few(labels, *, clients: int, generator):
    return by_turns(labels, clients=clients - 1, generator=generator)


def twice(labels, *, clients: int, generator):
    return [np.arange(3 + k) for k in range(clients)]


def far(labels, *, clients: int, generator):
    return [np.array([len(labels) + k]) for k in range(clients)]


def empty(labels, *, clients: int, generator):
    return [np.arange(0)] * clients


def positional(labels, clients, generator, step=1):
    return []


def rings(*, noise=0.1, samples=400, classes=3, shape=(2,)):
    g = np.random.default_rng(0)
    y = g.integers(0, classes, samples)
    angle = g.uniform(0, 2 * np.pi, samples)
    x = (1 + y)[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1) + noise * g.normal(size=(samples, 2))
    return x[:300] * [1.0, 100.0], y[:300], torch.from_numpy(x[300:] * [1.0, 100.0]), y[300:]


def bytes_of_images():
    x = np.random.default_rng(0).integers(0, 256, (120, 3, 8, 8)).astype(np.uint8)
    y = np.arange(120) % 4
    return x[:100], y[:100], x[100:], y[100:]


def wide_images():
    g = np.random.default_rng(1)
    y = np.arange(150) % 3
    x = g.normal(size=(150, 3, 24, 24)).astype(np.float32) + y[:, None, None, None]
    return x[:120], y[:120], x[120:], y[120:]


def small_cifar():
    """Pictures of CIFAR-100's shape, few of them."""
    g = np.random.default_rng(2)
    y = np.arange(240) % 100
    x = g.integers(0, 256, (240, 3, 32, 32)).astype(np.uint8)
    return x[:200], y[:200], x[200:], y[200:]


def short():
    return rings()[:3]


def unequal():
    x, y, *test = rings()
    return x, y[:-1], *test


def not_finite():
    x, *rest = rings()
    return np.where(x > 1, np.nan, x), *rest


def negative():
    x, y, *test = rings()
    return x, y - 1, *test


def scalars():
    x, y, *test = rings()
    return x[:, 0], y, *test


def other_shape():
    x, y, z, w = rings()
    return x, y, z[:, :1], w


def no_data():
    raise OSError("the disk is on fire")

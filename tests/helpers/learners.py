"""Small learners on made data, and what the engine tells them."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import torch

from models.fl.data.datasets import Dataset
from models.fl.learners.learner import FederatedLearner
from models.fl.learners.methods import Methods
from models.fl.learners.task import Task
from models.fl.networks.kinds import cnn, mlp
from models.fl.options.names import TrainingOptions
from models.fl.privacy.mechanisms import NoMechanism
from models.fl.training.losses import CrossEntropy
from models.fl.training.optimizers import Adam
from netsim.core.protocols import Deliveries
from netsim.core.streams import Streams

SIZES = [10, 30, 25, 35]


def make_data(samples: int = 100) -> Dataset:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(samples + 80, 1, 4, 4, generator=g)
    y = (x.flatten(1) @ torch.randn(16, 5, generator=g)).argmax(1)
    test, held = slice(samples, samples + 50), slice(samples + 50, None)
    return Dataset("made", 5, x[:samples], y[:samples], x[test], y[test], x[held], y[held])


def batch_normed() -> torch.nn.Module:
    """Return a network that is trained client by client, and keeps running statistics."""
    return cnn((1, 4, 4), 5, seed=1, channels=[3], hidden=4, norm="batch")


def make(
    mechanism=None, seed=0, network=None, optimizer=None, versions_kept=2, plan=None, cached=False, workers=None, **named
) -> FederatedLearner:
    """A learner of four clients; `named` are methods (fields of `Methods`) and options (fields of `TrainingOptions`)."""
    chosen = {field.name: named.pop(field.name) for field in fields(Methods) if field.name in named}
    return FederatedLearner(
        task=Task(
            dataset=make_data(),
            partition=np.split(np.arange(100), np.cumsum(SIZES)[:-1]),
            network=network or mlp((1, 4, 4), 5, seed=1, hidden=[8]),
            loss=CrossEntropy(),
        ),
        methods=Methods(optimizer=optimizer or Adam(learning_rate=0.02), mechanism=mechanism or NoMechanism(), **chosen),
        streams=Streams(seed),
        options=TrainingOptions(**{"batch_size": 8, "device": "cpu", **named}),
        versions_kept=versions_kept,
        cached=cached,
        plan=plan,
        workers=workers,
    )


def deliver(round, clients, version, epsilon=math.inf, rounds=None) -> Deliveries:
    n = len(clients)
    return Deliveries(
        round,
        np.array(clients, np.int64),
        np.full(n, round) if rounds is None else np.array(rounds),
        np.array(np.broadcast_to(version, n)),
        np.full(n, float(epsilon)),
    )


def model(learner) -> np.ndarray:
    return learner.state_dict()["models"][-1]

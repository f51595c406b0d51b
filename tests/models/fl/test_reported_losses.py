"""Losses at the received model, as updates report them: those of the version that a client started from, over all its samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from models.fl.networks.kinds import mlp
from models.fl.training.optimizers import Sgd
from tests.helpers.learners import SIZES, deliver, make, make_data, model

torch.set_num_threads(1)
PARTS = np.split(np.arange(100), np.cumsum(SIZES)[:-1])


def losses_of(row: np.ndarray, client: int) -> np.ndarray:
    """The loss of each of a client's samples at the parameters `row`."""
    module, data, part = mlp((1, 4, 4), 5, seed=1, hidden=[8]), make_data(), PARTS[client]
    nn.utils.vector_to_parameters(torch.from_numpy(row), module.parameters())
    with torch.no_grad():
        return nn.functional.cross_entropy(module(data.train_x[part]), data.train_y[part], reduction="none").numpy()


def test_losses_are_of_the_model_that_each_client_received() -> None:
    learner = make(optimizer=Sgd(learning_rate=0.5), reported_losses="received")
    first = model(learner)
    learner.aggregate(deliver(1, [0, 1], 0), False)
    second = model(learner)
    # Client 2 started from the first model, 3 from the second.
    content = learner.aggregate(deliver(2, [2, 3], [0, 1]), False, True)
    expected = [losses_of(first, 2), losses_of(second, 3)]
    assert content.loss == pytest.approx([np.mean(one) for one in expected], rel=1e-5)
    assert content.loss_rms == pytest.approx([np.sqrt(np.mean(one.astype(float) ** 2)) for one in expected], rel=1e-5)
    assert learner.notes == ["updates report the loss at the received model over all samples: a pass before training"]


def test_those_of_training_are_others() -> None:
    exact, running = (make(optimizer=Sgd(learning_rate=0.5), reported_losses=which) for which in ("received", "training"))
    told = [learner.aggregate(deliver(1, [0, 1, 2], 0), False, True).loss for learner in (exact, running)]
    assert np.abs(told[0] - told[1]).max() > 1e-3
    # Training itself is the same.
    np.testing.assert_array_equal(model(exact), model(running))
    assert running.notes == []

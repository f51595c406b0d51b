"""Losses of clients who are asked for them: of the present model, on their own samples, without training."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from models.fl.evaluation import quality as evaluation
from models.fl.networks.kinds import from_factory
from models.fl.training.losses import LOSS_CEILING
from models.fl.training.optimizers import Adam
from tests.helpers.learners import SIZES, deliver, make, make_data

torch.set_num_threads(1)
PARTS = np.split(np.arange(100), np.cumsum(SIZES)[:-1])


def plain(learner, rows, row=None):
    """The mean loss on these samples, by torch's own modules."""
    data, module = make_data(), copy.deepcopy(learner._trainer._network).eval()
    row = learner.versions.model if row is None else row
    nn.utils.vector_to_parameters(row[: learner._trainer.parameters], module.parameters())
    with torch.no_grad():
        return float(functional.cross_entropy(module(data.train_x[rows]), data.train_y[rows]))


def test_losses_are_those_of_a_plain_loop(monkeypatch):
    learner = make()
    learner.aggregate(deliver(1, [0, 1, 2, 3], 0), False)
    expected = [plain(learner, PARTS[client]) for client in (3, 0, 2)]
    assert learner.losses_of(np.array([3, 0, 2]), 1, None) == pytest.approx(expected, rel=1e-5)
    # Batches that end in the midst of a client's samples.
    monkeypatch.setattr(evaluation, "_BATCH", 17)
    assert learner.losses_of(np.array([3, 0, 2]), 1, None) == pytest.approx(expected, rel=1e-5)
    assert learner.losses_of(np.zeros(0, np.int64), 1, None).shape == (0,)


def test_nothing_is_trained_and_nothing_changes():
    learner = make()
    before = learner.state_dict()
    learner.losses_of(np.array([1]), 1, None)
    after = learner.state_dict()
    assert learner.trained_updates == learner.version == 0
    np.testing.assert_array_equal(before["models"], after["models"])


def test_so_many_samples_are_drawn_at_the_address_of_round_and_client():
    learner, seen = make(), []
    samples = learner._trainer.samples
    learner._trainer.samples = lambda rows: seen.append(rows.numpy().copy()) or samples(rows)

    def asked(clients, round, count):
        seen.clear()
        losses = learner.losses_of(np.array(clients), round, count)
        return losses, np.concatenate(seen)

    both, rows = asked([1, 0], 7, 12)
    # Client 0 has ten samples only.
    assert len(rows) == 12 + 10
    assert len(set(rows[:12])) == 12
    assert set(rows[:12]) < set(PARTS[1])
    assert set(rows[12:]) == set(PARTS[0])
    assert both == pytest.approx([plain(learner, rows[:12]), plain(learner, rows[12:])], rel=1e-5)
    alone, same = asked([1], 7, 12)
    assert alone[0] == pytest.approx(both[0], rel=1e-6)
    assert list(same) == list(rows[:12])
    assert list(asked([1], 8, 12)[1]) != list(same)


def test_clients_with_their_own_statistics_are_asked_with_them():
    def normalised(inputs, classes):
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))

    def local():
        return make(network=from_factory(normalised, (1, 4, 4), 5, seed=1), batch_statistics="local")

    learner = local()
    learner.aggregate(deliver(1, [1], 0), False)
    own, none = learner.losses_of(np.array([1, 2]), 1, None)
    trainer, data, model = learner._trainer, make_data(), learner.versions.model
    statistics = learner._work.memory.statistics[1]

    def loss(row, client, batch_statistics):
        scores = trainer.scores(row, data.train_x[PARTS[client]], batch_statistics=batch_statistics)
        return float(functional.cross_entropy(scores, data.train_y[PARTS[client]]))

    assert own == pytest.approx(loss(torch.cat([model[: trainer.parameters], statistics]), 1, False), rel=1e-5)
    # Client 2 has none yet: those of its own samples.
    assert none == pytest.approx(loss(model, 2, True), rel=1e-5)
    assert abs(own - loss(model, 1, False)) > 1e-3


def test_a_loss_that_is_no_number_counts_as_the_ceiling():
    wild = make(optimizer=Adam(learning_rate=1e25), max_steps=1)
    wild.aggregate(deliver(1, [1], 0), False)
    assert wild.losses_of(np.array([0]), 1, None)[0] == pytest.approx(LOSS_CEILING, rel=0.5)

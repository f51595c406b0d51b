"""Federated averaging: by hand, against a plain loop, its losses, noise, statistics, and models that diverge."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from models.fl.data.datasets import Dataset
from models.fl.learners.learner import FederatedLearner
from models.fl.learners.methods import Methods
from models.fl.learners.task import Task
from models.fl.networks.kinds import from_factory, mlp, svm
from models.fl.options.names import TrainingOptions
from models.fl.privacy.mechanisms import PerCoordinate
from models.fl.training.losses import LOSS_CEILING, CrossEntropy
from models.fl.training.optimizers import Adam, Sgd
from netsim.core.streams import Streams
from tests.helpers.fl_reference import draw_passes, flatten, train_one
from tests.helpers.learners import SIZES, deliver, make, make_data, model

torch.set_num_threads(1)


def test_fedavg_by_hand():
    # Zero weights, one SGD step at rate 1 on all of a client's data. Sizes 1 and 3: the mean has weights 1/4 and 3/4.
    x = torch.tensor([[[[2.0]]], [[[4.0]]], [[[4.0]]], [[[4.0]]]])
    y = torch.tensor([0, 1, 1, 1])
    learner = FederatedLearner(
        task=Task(
            dataset=Dataset("made", 2, x, y, x, y, x[:0], y[:0]),
            partition=[np.array([0]), np.array([1, 2, 3])],
            network=svm((1, 1, 1), 2, seed=0),
            loss=CrossEntropy(),
        ),
        streams=Streams(0),
        methods=Methods(optimizer=Sgd(learning_rate=1.0)),
        options=TrainingOptions(batch_size=3, device="cpu"),
    )
    assert learner.up_bytes == 16
    updates = learner.aggregate(deliver(1, [0, 1], 0), True).updates
    # Client 0: w_0 - 2 (1/2 - 1) = 1; client 1: w_0 - 4 (1/2) = -2; biases .5 and -.5; class 1 is the mirror image.
    assert updates.tolist() == [[1.0, -1.0, 0.5, -0.5], [-2.0, 2.0, -0.5, 0.5]]
    assert model(learner).tolist() == [-1.25, 1.25, -0.25, 0.25]
    assert learner.version == 1
    # Scores of class 0 at x = 2 and 4: -2.75 and -5.25, of class 1 the opposite: all are called class 1; 3 of 4 are.
    quality = learner.evaluate(1, 0.0, False)
    assert quality.accuracy == 0.75
    assert quality.loss == pytest.approx((math.log1p(math.exp(5.5)) + 3 * math.log1p(math.exp(-10.5))) / 4, rel=1e-5)


@pytest.mark.parametrize(("kind", "optimizer"), [("sgd", Sgd(learning_rate=0.1)), ("adam", Adam(learning_rate=0.02))])
def test_rounds_equal_the_plain_loop(kind, optimizer):
    network = mlp((1, 4, 4), 5, seed=1, hidden=[8])
    learner = make(optimizer=optimizer, network=network, epochs=2, max_steps=6)
    data, streams = make_data(), Streams(0)
    options = {"learning_rate": 0.1 if kind == "sgd" else 0.02}
    starts = np.concatenate([[0], np.cumsum(SIZES)])
    reference = mlp((1, 4, 4), 5, seed=1, hidden=[8])
    for round, clients in enumerate(([0, 3], [2], [1, 2, 0]), start=1):
        learner.aggregate(deliver(round, clients, learner.version), False)
        mean = torch.zeros_like(flatten(reference))
        for client in clients:
            part = np.arange(starts[client], starts[client + 1])
            batches = draw_passes(part, streams.generator("batches", round, client), batch_size=8, epochs=2, max_steps=6)
            trained = train_one(reference, data.train_x, data.train_y, batches, kind=kind, options=options)
            mean += flatten(trained) * SIZES[client] / sum(SIZES[c] for c in clients)
        torch.nn.utils.vector_to_parameters(mean, reference.parameters())
        np.testing.assert_allclose(model(learner), mean.numpy(), atol=2e-5)


def test_training_loss_by_hand():
    # Two classes, one input, zero weights: every sample's first loss is ln 2. One step at rate 1 on {(2, 0)}: the slope of the
    # scores is (-1/2, 1/2), so weights become (1, -1) and offsets (1/2, -1/2); the scores of x = 2 are then +-5/2, its loss
    # ln(1 + e^-5).
    x, y = torch.full((4, 1, 1, 1), 2.0), torch.zeros(4, dtype=torch.int64)

    def learner(**options):
        return FederatedLearner(
            task=Task(
                dataset=Dataset("made", 2, x, y, x, y, x[:0], y[:0]),
                partition=[np.array([0]), np.array([1, 2, 3])],
                network=svm((1, 1, 1), 2, seed=0),
                loss=CrossEntropy(),
            ),
            streams=Streams(0),
            methods=Methods(optimizer=Sgd(learning_rate=1.0)),
            options=TrainingOptions(batch_size=1, max_steps=2, device="cpu", **options),
        )

    measured = learner(training_loss=True)
    measured.aggregate(deliver(1, [0, 1], 0), False)
    # Client 0 takes one step and client 1 two: three samples, the last one with the loss after a step.
    after = math.log1p(math.exp(-5))
    assert measured.evaluate(1, 0.0, False).training_loss == pytest.approx((2 * math.log(2) + after) / 3)
    # Since then nothing was trained; and nobody asked the other one.
    assert math.isnan(measured.evaluate(2, 0.0, False).training_loss)
    plain = learner()
    plain.aggregate(deliver(1, [0, 1], 0), False)
    assert math.isnan(plain.evaluate(1, 0.0, False).training_loss)


def test_training_loss_is_the_same_client_by_client_and_survives_a_pause(monkeypatch):
    def losses(learner, rounds, network=None):
        out = []
        for round in rounds:
            learner.aggregate(deliver(round, [round % 4, (round + 1) % 4], learner.version), False)
            out.append(learner.evaluate(round, 0.0, False))
        return [quality.training_loss for quality in out if quality is not None]

    networks = {
        "by hand": lambda: mlp((1, 4, 4), 5, seed=1, hidden=[8]),
        "stacked": lambda: from_factory(
            lambda classes: nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, classes)), (1, 4, 4), 5, seed=1
        ),
    }
    for make_network in networks.values():
        whole = make(network=make_network(), training_loss=True, evaluate_every_rounds=2)
        got = losses(whole, range(1, 7))
        assert len(got) == 4
        assert got[-1] < got[0]
        single = make(network=make_network(), training_loss=True, evaluate_every_rounds=2)
        monkeypatch.setattr(single._trainer, "vectorised", False)
        monkeypatch.setattr(single._trainer, "_chunk", 1)
        assert losses(single, range(1, 7)) == pytest.approx(got, rel=1e-5)
        # Taken out between two evaluations: what was added up so far goes along.
        first = make(network=make_network(), training_loss=True, evaluate_every_rounds=2)
        begun = losses(first, range(1, 4))
        second = make(network=make_network(), training_loss=True, evaluate_every_rounds=2)
        second.load_state_dict(first.state_dict())
        assert [*begun, *losses(second, range(4, 7))] == got


def test_only_what_was_delivered_is_trained():
    learner = make()
    assert learner.aggregate(deliver(1, [], 0), False) is None
    assert learner.aggregate(deliver(1, [], 0), True).updates.shape == (0, 16 * 8 + 8 + 40 + 5)
    assert (learner.trained_updates, learner.version) == (0, 0)
    before = model(learner)
    learner.aggregate(deliver(2, [1, 3], 0), False)
    assert (learner.trained_updates, learner.version) == (2, 1)
    assert not np.array_equal(model(learner), before)


def test_an_update_depends_on_client_and_round_alone():
    whole = make().aggregate(deliver(4, [3, 0, 2], 0), True).updates
    for row, client in enumerate([3, 0, 2]):
        alone = make()
        np.testing.assert_allclose(alone.aggregate(deliver(9, [client], 0, rounds=[4]), True).updates[0], whole[row], atol=1e-6)
    assert not np.allclose(make().aggregate(deliver(5, [3], 0), True).updates[0], whole[0], atol=1e-3)
    assert not np.allclose(make(seed=1).aggregate(deliver(4, [3], 0), True).updates[0], whole[0], atol=1e-3)


def test_noise_belongs_to_client_and_round():
    def noise(round, clients):
        # Updates are clamped to 1e-6: what is seen is the noise, of scale 2e-6/1e-6.
        return make(PerCoordinate(sensitivity=2e-6)).aggregate(deliver(round, clients, 0, epsilon=1e-6), True).updates

    both = noise(1, [2, 0])
    np.testing.assert_allclose(noise(1, [0])[0], both[1], atol=1e-4)
    assert np.abs(noise(2, [0])[0] - both[1]).mean() > 1
    assert np.abs(both[0] - both[1]).mean() > 1


def test_same_seed_same_bits():
    def run() -> bytes:
        learner = make(PerCoordinate(sensitivity=0.01), epochs=2)
        for round in range(1, 6):
            learner.aggregate(deliver(round, [round % 4, (round + 1) % 4], learner.version, epsilon=5.0), False)
        return model(learner).tobytes()

    assert run() == run()


def norm_first():
    return from_factory(
        lambda inputs, classes: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16), nn.Linear(16, classes)), (1, 4, 4), 5, seed=1
    )


def test_batchnorm_statistics_are_averaged():
    learner = make(network=norm_first())
    assert "running statistics" in learner.training_mode
    before = model(learner)
    learner.aggregate(deliver(1, [1, 3], 0), False)
    assert learner.up_bytes == 4 * (16 * 2 + 16 * 5 + 5 + 32)
    assert np.abs(model(learner)[-32:] - before[-32:]).max() > 0.01


def test_statistics_of_private_inputs_are_not_released_bare():
    with pytest.raises(ValueError, match=r"^batch_statistics = 'averaged': the running statistics .* without protection"):
        make(PerCoordinate(sensitivity=0.1), network=norm_first())
    # The remedies: they stay with the clients, or they are named. A release then says how much of it is bare.
    local = make(PerCoordinate(sensitivity=0.1), network=norm_first(), batch_statistics="local")
    assert (local.release.numbers, local.release.unprotected) == (117, 0)
    named = make(PerCoordinate(sensitivity=0.1), network=norm_first(), unprotected="batch-norm")
    assert (named.release.numbers, named.release.unprotected) == (149, 64)
    assert make(network=norm_first()).release.unprotected == 149
    with pytest.raises(ValueError, match=r"^unprotected = 'batch-norm': the network has no batch normalisation"):
        make(PerCoordinate(sensitivity=0.1), unprotected="batch-norm")
    with pytest.raises(ValueError, match=r"^unprotected = 'all': must be"):
        make(PerCoordinate(sensitivity=0.1), network=norm_first(), unprotected="all")


def test_layers_of_batch_normalisation_are_sent_bare_where_they_are_named():
    plain = make(network=norm_first())
    noisy = make(PerCoordinate(sensitivity=0.1), network=norm_first(), unprotected="batch-norm")
    sent = [learner.aggregate(deliver(1, [1, 3], 0, epsilon=0.1), True).updates for learner in (plain, noisy)]
    # Columns: 32 weights and biases of the normalisation, the 85 of the linear layer, then 32 running statistics.
    np.testing.assert_array_equal(sent[0][:, :32], sent[1][:, :32])
    np.testing.assert_array_equal(model(plain)[117:], model(noisy)[117:])
    # Laplace noise of scale 1 on every protected coordinate: its mean size is 1, 5 deviations of the mean over 170 are 0.38.
    assert np.abs(sent[1][:, 32:] - sent[0][:, 32:]).mean() == pytest.approx(1.0, abs=0.45)
    assert (sent[1][:, 32:] != sent[0][:, 32:]).all()


def test_evaluation_is_due_first_last_and_every_s():
    learner = make(evaluate_every_s=2.5)
    ends = [0.5, 1.5, 2.5, 2.75, 8.75, 9.0, 9.25, 11.75, 12.0]
    due = [end for round, end in enumerate(ends, start=1) if learner.evaluate(round, end, round == 9) is not None]
    # The first; 2.5 on the dot; for 5 and 7.5 at once; for 10; the last.
    assert due == [0.5, 2.5, 8.75, 11.75, 12.0]
    # So often that no number counts it: every time.
    often = make(evaluate_every_s=1e-320)
    assert all(often.evaluate(round, end, False) is not None for round, end in enumerate(ends, start=1))


def test_evaluation_is_due_first_last_and_every_n():
    learner = make(evaluate_every_rounds=4)
    due = [round for round in range(1, 12) if learner.evaluate(round, 0.0, round == 11) is not None]
    assert due == [1, 4, 8, 11]


class Wild(nn.Module):
    """Scores that overflow, or are no numbers, as soon as its weights are large."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(5, 16))

    def forward(self, x):
        return (x.flatten(1) @ self.weight.T) ** 9


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("epsilon", [1e-3, 1e-30, 1e-44, 0.0])
@pytest.mark.parametrize("wild", [False, True])
def test_blown_up_models_still_give_numbers(epsilon, wild):
    network = from_factory(lambda inputs, classes: Wild(), (1, 4, 4), 5, seed=0) if wild else None
    learner = make(PerCoordinate(sensitivity=1.0), network=network)
    for round in range(1, 6):
        updates = learner.aggregate(deliver(round, [0, 1, 2], learner.version, epsilon=epsilon), True).updates
        quality = learner.evaluate(round, 0.0, False)
        assert np.isfinite(updates).all()
        assert np.isfinite(model(learner)).all()
        assert 0 <= quality.accuracy <= 1
        assert 0 <= quality.loss <= LOSS_CEILING
    if epsilon == 0.0:
        assert (learner.refused_updates, learner.version) == (15, 0)


def test_scores_that_are_no_numbers_are_wrong():
    learner = make(network=from_factory(lambda inputs, classes: Wild(), (1, 4, 4), 5, seed=0))
    state = learner.state_dict()
    # The ninth power of 1e10 is infinite in float32: argmax would still name a class.
    state["models"] = np.full_like(np.stack(state["models"]), 1e10)
    learner.load_state_dict(state)
    quality = learner.evaluate(1, 0.0, False)
    assert (quality.accuracy, quality.loss) == (0.0, LOSS_CEILING)


def test_a_diverged_client_is_refused_and_the_others_count():
    dataset = make_data()
    dataset.train_x[:10] = float("nan")
    learner = FederatedLearner(
        task=Task(
            dataset=dataset,
            partition=np.split(np.arange(100), np.cumsum(SIZES)[:-1]),
            network=mlp((1, 4, 4), 5, seed=1, hidden=[8]),
            loss=CrossEntropy(),
        ),
        streams=Streams(0),
        methods=Methods(optimizer=Adam(learning_rate=0.02)),
        options=TrainingOptions(batch_size=8, device="cpu"),
    )
    before = model(learner)
    updates = learner.aggregate(deliver(1, [0, 1], 0), True).updates
    assert (learner.trained_updates, learner.refused_updates) == (2, 1)
    assert not updates[0].any()
    np.testing.assert_allclose(model(learner) - before, updates[1], atol=1e-6)

"""Steps, losses, batches and first parameters of local training, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from models.fl.networks.kinds import check_fit, cnn, from_factory, linear, mlp, svm
from models.fl.options.names import TrainingOptions
from models.fl.training.local_trainer import LocalTrainer
from models.fl.training.losses import CrossEntropy, Hinge, SquaredHinge
from models.fl.training.optimizers import Adam, Sgd
from tests.helpers.fl_reference import draw_passes, flatten
from tests.helpers.training_data import PLAIN, SHAPE, rng

torch.set_num_threads(1)


def test_one_step_by_hand():
    # One feature, two classes, all weights 0: probabilities 1/2; the gradient of w_c is x (1/2 - [c = y]), of b_c with x = 1.
    network = svm((1, 1, 1), 2, seed=0)
    x, y = torch.tensor([[[[2.0]]], [[[4.0]]]]), torch.tensor([0, 1])
    trainer = LocalTrainer(
        network=network, loss=CrossEntropy(), optimizer=Sgd(learning_rate=1.0), x=x, y=y, options=TrainingOptions()
    )
    got = trainer.train(torch.zeros(2, 4), [np.array([[0, -1]]), np.array([[0, 1]])], [0, 0])
    # Client 0: sample 0 alone. Client 1: the mean of both: w_0 gets (1 - 2)/2, b nothing.
    assert got.tolist() == [[1.0, -1.0, 0.5, -0.5], [-0.5, 0.5, 0.0, 0.0]]
    hinged = LocalTrainer(network=network, loss=Hinge(), optimizer=Sgd(learning_rate=1.0), x=x, y=y, options=PLAIN)
    # All margins are 0 < 1: the slope is -1 for the label and +1 for the other.
    assert hinged.train(torch.zeros(1, 4), [np.array([[0, -1]])], [0]).tolist() == [[2.0, -2.0, 1.0, -1.0]]


def test_hinge_by_hand():
    scores = torch.tensor([[2.0, -0.5, 0.25]])
    # Label 0: max(0, 1-2) + max(0, 1-.5) + max(0, 1+.25); label 1: (1+2) + (1+.5) + (1+.25).
    assert [Hinge().value(scores, torch.tensor([k])).item() for k in (0, 1)] == [1.75, 5.75]


def test_squared_hinge_by_hand():
    scores = torch.tensor([[2.0, -0.5, 0.25]])
    # Label 0: 0 + .5^2 + 1.25^2; its margin of 2 has no slope, the others 2 * .5 and 2 * 1.25, upwards in the score.
    assert SquaredHinge().value(scores, torch.tensor([0])).item() == 0.25 + 1.5625
    assert SquaredHinge().slope(scores, torch.tensor([0])).tolist() == [[0.0, 1.0, 2.5]]
    # Label 1: 3^2 + 1.5^2 + 1.25^2.
    assert SquaredHinge().value(scores, torch.tensor([1])).item() == 9 + 2.25 + 1.5625
    assert SquaredHinge().slope(scores, torch.tensor([1])).tolist() == [[6.0, -3.0, 2.5]]


@pytest.mark.parametrize("loss", [CrossEntropy(), Hinge(), SquaredHinge()])
def test_slopes_are_the_derivatives(loss):
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(4, 6, 5, generator=g, dtype=torch.float64).requires_grad_()
    labels = torch.randint(0, 5, (4, 6), generator=g)
    value = loss.value(scores, labels)
    assert value.shape == (4, 6)
    (expected,) = torch.autograd.grad(value.sum(), scores)
    torch.testing.assert_close(loss.slope(scores.detach(), labels), expected)


def test_batches_by_hand():
    part = np.array([3, 5, 8, 9, 11])
    batches = draw_passes(part, rng(1), batch_size=2, epochs=2)
    assert batches.shape == (6, 2)
    for epoch in (batches[:3], batches[3:]):
        assert sorted(epoch.ravel().tolist()) == [-1, 3, 5, 8, 9, 11]
        assert epoch[2, 1] == -1
    assert not np.array_equal(batches[:3], batches[3:])
    cut = draw_passes(part, rng(1), batch_size=2, epochs=2, max_steps=4)
    assert np.array_equal(cut, batches[:4])
    assert draw_passes(part, rng(1), batch_size=8, epochs=1).shape == (1, 8)


@pytest.mark.parametrize("make", [linear, lambda s, c, seed: mlp(s, c, seed=seed, hidden=[5]), cnn])
def test_first_parameters_come_from_the_seed_alone(make):
    state = torch.get_rng_state()
    first, again, other = (flatten(make(SHAPE, 10, seed=s)) for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.isfinite().all()


def test_first_parameters_have_torchs_own_law():
    weights = flatten(mlp((1, 100, 1), 1000, seed=4, hidden=[]))
    # Uniform in +-1/10: 101,000 draws, standard deviation .1/sqrt(3).
    assert weights.abs().max() <= 0.1
    assert weights.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.01)
    user = from_factory(lambda inputs, classes: nn.Sequential(nn.Flatten(), nn.Linear(64, classes)), SHAPE, 10, seed=4)
    again = from_factory(lambda inputs, classes: nn.Sequential(nn.Flatten(), nn.Linear(64, classes)), SHAPE, 10, seed=4)
    assert torch.equal(flatten(user), flatten(again))


def test_networks_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"^network: does not fit input of shape \(3, 8, 8\)"):
        check_fit(cnn(SHAPE, 10, seed=0), (3, 8, 8), 10)
    with pytest.raises(ValueError, match=r"^network: returns scores of shape \(2, 10\) for 2 samples; the data have 7"):
        check_fit(mlp(SHAPE, 10, seed=0, hidden=[4]), SHAPE, 7)
    with pytest.raises(ValueError, match=r"^network\.hidden"):
        mlp(SHAPE, 10, seed=0, hidden=[4, 0])
    with pytest.raises(ValueError, match=r"^network\.channels"):
        cnn(SHAPE, 10, seed=0, channels=[0])


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (Sgd, {"learning_rate": 0.0}),
        (Sgd, {"learning_rate": float("nan")}),
        (Sgd, {"learning_rate": 0.1, "momentum": 1.0}),
        (Sgd, {"learning_rate": 0.1, "weight_decay": -1.0}),
        (Adam, {"learning_rate": -0.1}),
        (Adam, {"learning_rate": 0.1, "beta1": 1.0}),
        (Adam, {"learning_rate": 0.1, "beta2": -0.1}),
        (Adam, {"learning_rate": 0.1, "epsilon": 0.0}),
    ],
)
def test_bad_optimizers_are_refused(make, options):
    name = list(options)[-1]
    with pytest.raises(ValueError, match=rf"^optimizer\.{name} = "):
        make(**options)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 28, 28), (2, 5, 7)])
def test_convolutions_get_channels_last_and_the_same_scores(shape):
    seen = []

    class Spying(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.pool = nn.Conv2d(shape[0], 4, 3, padding=1), nn.MaxPool2d(2)

        def forward(self, x):
            seen.append(self.first(x).stride(1))
            return self.pool(self.first(x)).flatten(1)

    network = Spying()
    x = torch.randn(6, *shape)
    trainer = LocalTrainer(
        network=network,
        loss=CrossEntropy(),
        optimizer=Sgd(learning_rate=0.1),
        x=x,
        y=torch.zeros(6).long(),
        options=TrainingOptions(),
    )
    seen.clear()
    scores = trainer.scores(trainer.initial(), x)
    assert seen == [1]
    torch.testing.assert_close(scores, network(x), rtol=1e-4, atol=1e-5)

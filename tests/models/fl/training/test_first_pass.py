"""The losses that ride along with updates: those of each client's first pass over its samples, out of training itself."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from models.fl.data.batches import draw_batches
from models.fl.data.datasets import Dataset
from models.fl.learners.learner import FederatedLearner
from models.fl.learners.methods import Methods
from models.fl.learners.task import Task
from models.fl.networks.kinds import from_factory, mlp, svm
from models.fl.options.names import TrainingOptions
from models.fl.training.local_trainer import LocalTrainer
from models.fl.training.losses import LOSS_CEILING, CrossEntropy, FirstPass
from models.fl.training.optimizers import OPTIMIZERS, Adam, Sgd
from netsim.core.streams import Streams
from tests.helpers.fl_reference import make_optimizer
from tests.helpers.learners import SIZES, deliver, make

torch.set_num_threads(1)
SHAPE = (1, 4, 4)


def plain_losses(network, x, y, batches, passes, *, kind, options, least=1):
    """One client at a time: the losses of the samples of its first `passes` steps, each before its step."""
    out = []
    for steps, first in zip(batches, passes, strict=True):
        module = copy.deepcopy(network).train()
        optimizer = make_optimizer(kind, module.parameters(), options)
        seen = []
        for number, batch in enumerate(steps):
            index = torch.from_numpy(batch[batch >= 0])
            if len(index) < least:
                continue
            optimizer.zero_grad()
            losses = functional.cross_entropy(module(x[index]), y[index], reduction="none")
            seen += losses.tolist() if number < first else []
            losses.mean().backward()
            optimizer.step()
        out.append(np.array(seen))
    return out


def stacked(inputs, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, classes))


def normalised(inputs, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))


NETWORKS = {
    "by hand": lambda: mlp(SHAPE, 5, seed=1, hidden=[8]),
    "stacked": lambda: from_factory(stacked, SHAPE, 5, seed=1),
    "one after another": lambda: from_factory(normalised, SHAPE, 5, seed=1),
}


def ragged():
    """Samples, labels, and the batches of five clients that hold 40, 7, 64, 17 and 1 of them."""
    sizes, g = [40, 7, 64, 17, 1], torch.Generator().manual_seed(3)
    x, y = torch.randn(135, *SHAPE, generator=g), torch.randint(0, 5, (135,), generator=g)
    ends = np.cumsum(sizes)
    batches = [
        draw_batches(np.arange(end - size, end), np.random.default_rng(k), batch_size=8, steps=min(2 * -(-size // 8), 6))
        for k, (size, end) in enumerate(zip(sizes, ends, strict=True))
    ]
    return x, y, batches


@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("name", NETWORKS)
def test_losses_are_those_of_a_plain_loop(name, kind, monkeypatch):
    # Ragged: client 1 ends its pass in the middle of the others', client 2 is cut off within its first, the pass of client 3 ends
    # with a batch of a single sample, which is all that client 4 has.
    network, options, (x, y, batches) = NETWORKS[name](), {"learning_rate": 0.05}, ragged()
    passes = [5, 1, 6, 3, 1]
    least = 2 if name == "one after another" else 1
    expected = plain_losses(network, x, y, batches, passes, kind=kind, options=options, least=least)
    trainer = LocalTrainer(
        network=network, loss=CrossEntropy(), optimizer=OPTIMIZERS[kind](**options), x=x, y=y, options=TrainingOptions()
    )
    assert trainer.vectorised == (name != "one after another")
    for chunk in (5, 2):
        monkeypatch.setattr(trainer, "_chunk", chunk if trainer.vectorised else 1)
        first = FirstPass(np.array(passes))
        trainer.train(trainer.initial().expand(5, -1), batches, [0] * 5, None, None, None, first)
        for k, losses in enumerate(expected):
            if len(losses):
                assert first.mean[k] == pytest.approx(losses.mean(), rel=1e-5)
                assert first.rms[k] == pytest.approx(math.sqrt((losses**2).mean()), rel=1e-5)
            else:
                assert math.isnan(first.mean[k])
                assert math.isnan(first.rms[k])
    assert (len(expected[4]) == 0) == (name == "one after another")


@pytest.mark.parametrize("measure", ["moving-average", "first-batch", "last-batch"])
@pytest.mark.parametrize("name", NETWORKS)
def test_of_single_batches_they_are_those_of_a_plain_loop(name, measure, monkeypatch):
    network, options, (x, y, batches) = NETWORKS[name](), {"learning_rate": 0.05}, ragged()
    passes, least = [5, 1, 6, 3, 1], 2 if name == "one after another" else 1
    every = plain_losses(network, x, y, batches, [99] * 5, kind="sgd", options=options, least=least)
    trainer = LocalTrainer(
        network=network, loss=CrossEntropy(), optimizer=Sgd(**options), x=x, y=y, options=TrainingOptions()
    )
    for chunk in (5, 2):
        monkeypatch.setattr(trainer, "_chunk", chunk if trainer.vectorised else 1)
        first = FirstPass(np.array(passes), measure)
        trainer.train(trainer.initial().expand(5, -1), batches, [0] * 5, None, None, None, first)
        for k, losses in enumerate(every):
            lengths = [int((batch >= 0).sum()) for batch in batches[k]]
            if not len(losses):
                assert math.isnan(first.rms[k])
                continue
            squares = [(part**2).mean() for part in np.split(losses, np.cumsum([n for n in lengths if n >= least])[:-1])]
            of_pass = squares[: sum(n >= least for n in lengths[: passes[k]])]
            average = of_pass[0]
            for square in of_pass[1:]:
                average = 0.8 * average + 0.2 * square
            expected = {"moving-average": average, "first-batch": squares[0], "last-batch": squares[-1]}[measure]
            assert first.rms[k] == pytest.approx(math.sqrt(expected), rel=1e-5)
            assert first.mean[k] == pytest.approx(losses[: sum(n for n in lengths[: passes[k]] if n >= least)].mean(), rel=1e-5)


def test_losses_by_hand():
    # Two classes, one input of 2, zero weights: the first loss is ln 2, and after a step at rate 1 the next sample's is
    # ln(1 + e^-5), as in the test of the training loss. Client 0 has one sample and two epochs: its second is not counted.
    x, y = torch.full((3, 1, 1, 1), 2.0), torch.zeros(3, dtype=torch.int64)
    def told(measure):
        learner = FederatedLearner(
            task=Task(
                dataset=Dataset("made", 2, x, y, x, y, x[:0], y[:0]),
                partition=[np.array([0]), np.array([1, 2])],
                network=svm((1, 1, 1), 2, seed=0),
                loss=CrossEntropy(),
            ),
            streams=Streams(0),
            methods=Methods(optimizer=Sgd(learning_rate=1.0)),
            options=TrainingOptions(batch_size=1, epochs=2, device="cpu", reported_rms=measure),
        )
        return learner.aggregate(deliver(1, [1, 0], 0), False, True)

    before, after = math.log(2), math.log1p(math.exp(-5))
    assert told("all").updates is None
    assert told("all").loss == pytest.approx([(before + after) / 2, before])
    assert told("all").loss_rms == pytest.approx([math.sqrt((before**2 + after**2) / 2), before])
    assert told("first-batch").loss_rms == pytest.approx([before, before])
    assert told("moving-average").loss_rms == pytest.approx([math.sqrt(0.8 * before**2 + 0.2 * after**2), before])
    # The scores' difference grows by 10 / (1 + e^difference) a step; client 1 takes four steps, client 0 two.
    third = 5 + 10 / (1 + math.exp(5))
    fourth = third + 10 / (1 + math.exp(third))
    assert told("last-batch").loss_rms == pytest.approx([math.log1p(math.exp(-fourth)), after])
    assert told("last-batch").loss == pytest.approx([(before + after) / 2, before])


def counting(learner, monkeypatch):
    """How many samples went forward through the network while it trained, batch by batch."""
    seen = []
    of_copies = learner._trainer._gradients.gradients_of_copies

    def counted(views, slots, x, y, weights):
        seen.append(int((weights > 0).sum()))
        return of_copies(views, slots, x, y, weights)

    monkeypatch.setattr(learner._trainer._gradients, "gradients_of_copies", counted)
    monkeypatch.setattr(learner._trainer, "scores", lambda *given, **named: pytest.fail("a forward pass of its own"))
    return seen


def test_losses_take_no_forward_pass_of_their_own(monkeypatch):
    plain, asked = make(epochs=2), make(epochs=2)
    without, along = counting(plain, monkeypatch), counting(asked, monkeypatch)
    plain.aggregate(deliver(1, [3, 1], 0), False)
    told = asked.aggregate(deliver(1, [3, 1], 0), False, True)
    assert np.isfinite(told.loss).all()
    # Clients 0 and 2 delivered nothing: nothing of theirs is computed.
    assert along == without
    assert sum(along) == 2 * (SIZES[3] + SIZES[1])
    np.testing.assert_array_equal(plain.state_dict()["models"], asked.state_dict()["models"])


def test_whoever_waits_in_the_learners_buffer_has_told_its_losses():
    whole = make().aggregate(deliver(1, [0, 1, 2], 0), False, True)
    learner = make(buffer=3)
    first = learner.aggregate(deliver(1, [0], 0), False, True)
    assert learner.version == 0
    rest = learner.aggregate(deliver(1, [1, 2], 0), True, True)
    assert learner.version == 1
    assert len(rest.updates) == len(rest.loss) == 2
    np.testing.assert_allclose([*first.loss, *rest.loss], whole.loss, rtol=1e-5)
    np.testing.assert_allclose([*first.loss_rms, *rest.loss_rms], whole.loss_rms, rtol=1e-5)
    assert learner.aggregate(deliver(2, [], 1), False, True).loss.shape == (0,)


def test_a_client_that_is_there_twice_has_each_updates_own_losses():
    learner = make(optimizer_state="kept")
    both = learner.aggregate(deliver(1, [2, 0, 2], 0, rounds=[1, 1, 2]), False, True)
    second = make(optimizer_state="kept")
    one = second.aggregate(deliver(1, [2, 0], 0), False, True)
    np.testing.assert_allclose(both.loss[:2], one.loss, rtol=1e-5)
    assert abs(both.loss[2] - both.loss[0]) > 1e-4


def test_a_loss_that_is_no_number_counts_as_the_ceiling():
    told = make(optimizer=Adam(learning_rate=1e38)).aggregate(deliver(1, [1], 0), False, True)
    assert np.isfinite(told.loss[0])
    # The first of four steps is at the model as it was.
    assert 0.5 * LOSS_CEILING < told.loss[0] < LOSS_CEILING
    assert told.loss[0] < told.loss_rms[0] < LOSS_CEILING

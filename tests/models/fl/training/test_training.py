"""Local training: several clients at once against one after another, memory, precision, dropout."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from models.fl.data.augmentation import PADDING, draw_moves
from models.fl.networks.deep import cnn8, resnet18
from models.fl.networks.kinds import cnn, from_factory, linear, mlp, svm
from models.fl.options.names import TrainingOptions
from models.fl.training.client_memory import OptimizerStates
from models.fl.training.local_trainer import LocalTrainer
from models.fl.training.losses import CrossEntropy, Hinge, LossTally, SquaredHinge
from models.fl.training.optimizers import OPTIMIZERS, Adam, Sgd
from tests.helpers.fl_reference import draw_passes, flatten, hinge, squared_hinge, train_one
from tests.helpers.suites import each_nth
from tests.helpers.training_data import PLAIN, SHAPE, rng

torch.set_num_threads(1)


SIZES = [40, 7, 23, 64, 1]


def data(shape=SHAPE, samples=135):
    g = torch.Generator().manual_seed(3)
    return torch.randn(samples, *shape, generator=g), torch.randint(0, 10, (samples,), generator=g)


def ragged(batch_size=8, epochs=2, max_steps=9):
    ends = np.cumsum(SIZES)
    parts = [np.arange(end - size, end) for size, end in zip(SIZES, ends, strict=True)]
    return [draw_passes(p, rng(k), batch_size=batch_size, epochs=epochs, max_steps=max_steps) for k, p in enumerate(parts)]


def user_norm(inputs, classes):
    return nn.Sequential(nn.Conv2d(inputs[0], 8, 3), nn.GroupNorm(2, 8), nn.GELU(), nn.Flatten(), nn.Linear(8 * 36, classes))


def user_batchnorm(inputs, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12, eps=1e-3), nn.ReLU(), nn.Linear(12, classes))


def user_dropout(inputs, classes):
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, classes))


NETWORKS = {
    "linear": lambda: (linear(SHAPE, 10, seed=1), CrossEntropy(), functional.cross_entropy),
    "mlp": lambda: (mlp(SHAPE, 10, seed=1, hidden=[12, 9]), CrossEntropy(), functional.cross_entropy),
    "mlp-hinge": lambda: (mlp(SHAPE, 10, seed=1, hidden=[12]), Hinge(), hinge),
    "svm": lambda: (svm(SHAPE, 10, seed=1), Hinge(), hinge),
    "svm-squared": lambda: (svm(SHAPE, 10, seed=1), SquaredHinge(), squared_hinge),
    "cnn": lambda: (cnn(SHAPE, 10, seed=1, channels=[4, 6, 8], hidden=16), CrossEntropy(), functional.cross_entropy),
    "cnn8": lambda: (cnn8(SHAPE, 10, seed=1, channels=[4] * 4 + [6] * 4), CrossEntropy(), functional.cross_entropy),
    "cnn8-plain": lambda: (cnn8(SHAPE, 10, seed=1, channels=[4] * 8, norm="none"), CrossEntropy(), functional.cross_entropy),
    "user": lambda: (from_factory(user_norm, SHAPE, 10, seed=1), CrossEntropy(), functional.cross_entropy),
}


OPTIONS = {
    "sgd": {"learning_rate": 0.05},
    "sgd-momentum": {"learning_rate": 0.02, "momentum": 0.9, "weight_decay": 0.01},
    "adam": {"learning_rate": 0.01},
    "adam-decay": {"learning_rate": 0.01, "weight_decay": 0.02},
}


def compare(network, loss, reference, kind, options, shape=SHAPE, batches=None, tolerance=2e-5, proximal=0.0):
    x, y = data(shape)
    batches = ragged() if batches is None else batches
    optimizer = OPTIMIZERS[kind](**options)
    trainer = LocalTrainer(network=network, loss=loss, optimizer=optimizer, x=x, y=y, options=TrainingOptions(proximal=proximal))
    start = trainer.initial().expand(len(batches), -1).clone()
    before = start.clone()
    got = trainer.train(start, batches, list(range(len(batches))))
    assert torch.equal(start, before)
    # Batch normalisation cannot train on a single sample: such batches are skipped.
    least = 2 if trainer.buffers else 1
    steps = [b[(b >= 0).sum(1) >= least] for b in batches]
    trained = [train_one(network, x, y, b, kind=kind, options=options, loss=reference, proximal=proximal) for b in steps]
    expected = torch.stack([flatten(module) for module in trained])
    assert (expected - before).abs().max() > 0.01
    torch.testing.assert_close(got, expected, atol=tolerance, rtol=1e-4)
    return trainer


@pytest.mark.parametrize(("name", "option"), each_nth(5, itertools.product(NETWORKS, OPTIONS)))
def test_stacked_training_equals_one_after_another(name, option):
    network, loss, reference = NETWORKS[name]()
    trainer = compare(network, loss, reference, option.split("-")[0], OPTIONS[option])
    assert trainer.vectorised
    assert trainer.reason is None


def test_a_network_with_running_statistics_falls_back_and_says_so():
    network = from_factory(user_batchnorm, SHAPE, 10, seed=1)
    batches = ragged()[:4]
    trainer = compare(network, CrossEntropy(), functional.cross_entropy, "sgd", {"learning_rate": 0.05}, batches=batches)
    assert not trainer.vectorised
    assert trainer.reason == "the network keeps running statistics"
    assert trainer.buffers == 24
    # Weight decay does not touch them: that is part of the comparison.
    compare(
        network, CrossEntropy(), functional.cross_entropy, "sgd", {"learning_rate": 0.05, "weight_decay": 0.1}, batches=batches
    )


@pytest.mark.parametrize("name", ["mlp", "cnn", "svm"])
@pytest.mark.parametrize("option", ["sgd-momentum", "adam-decay"])
def test_the_proximal_term_is_a_loss(name, option):
    network, loss, reference = NETWORKS[name]()
    compare(network, loss, reference, option.split("-")[0], OPTIONS[option], proximal=0.7)


def test_one_proximal_step_by_hand():
    # Two steps of rate 1 on one sample x = 1 of the hinge: slopes -1 and +1 as long as margins are below 1. The first step goes
    # to w = (1, -1), where margins are 2 > 1 (w and b) and only the pull of strength .25 is left.
    network = svm((1, 1, 1), 2, seed=0)
    x, y = torch.ones(1, 1, 1, 1), torch.tensor([0])
    trainer = LocalTrainer(
        network=network, loss=Hinge(), optimizer=Sgd(learning_rate=1.0), x=x, y=y, options=TrainingOptions(proximal=0.25)
    )
    got = trainer.train(torch.zeros(1, 4), [np.array([[0], [0]])], [0])
    assert got.tolist() == [[0.75, -0.75, 0.75, -0.75]]


@pytest.mark.slow
def test_resnet18_stacked_equals_one_after_another():
    shape = (3, 8, 8)
    batches = [draw_passes(np.arange(4 * k, 4 * k + 4), rng(k), batch_size=4, epochs=k + 1) for k in range(2)]
    network = resnet18(shape, 10, seed=1, norm="group")
    trainer = compare(network, CrossEntropy(), functional.cross_entropy, "sgd", {"learning_rate": 0.05}, shape, batches, 1e-4)
    assert trainer.vectorised


@pytest.mark.parametrize(
    "make",
    [
        lambda: cnn8(SHAPE, 10, seed=1, channels=[4] * 8, norm="batch"),
        pytest.param(lambda: resnet18(SHAPE, 10, seed=1), marks=pytest.mark.slow),
    ],
)
def test_networks_with_batch_normalisation_fall_back(make):
    trainer = compare(
        make(), CrossEntropy(), functional.cross_entropy, "sgd", {"learning_rate": 0.02}, batches=ragged(max_steps=2)[:2]
    )
    assert trainer.reason == "the network keeps running statistics"
    assert trainer.buffers > 0


def test_batch_normalisation_without_statistics_is_not_stacked():
    # The samples that fill up a short batch would enter its statistics.
    network = from_factory(
        lambda inputs, classes: nn.Sequential(
            nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12, track_running_stats=False), nn.Linear(12, classes)
        ),
        SHAPE,
        10,
        seed=1,
    )
    batches = [batch[(batch >= 0).sum(1) > 1] for batch in ragged()]
    trainer = compare(network, CrossEntropy(), functional.cross_entropy, "sgd", {"learning_rate": 0.05}, batches=batches[:4])
    assert trainer.reason == "batch normalisation mixes the samples of a batch"


def test_moves_reach_the_batches():
    x, y = data((1, 8, 8), 40)
    parts = [np.arange(20), np.arange(20, 40)]
    batches = [draw_passes(p, rng(k), batch_size=8, epochs=2) for k, p in enumerate(parts)]
    network = mlp(SHAPE, 10, seed=1, hidden=[12])
    trainer = LocalTrainer(
        network=network, loss=CrossEntropy(), optimizer=Sgd(learning_rate=0.1), x=x, y=y, options=TrainingOptions()
    )
    start = trainer.initial().expand(2, -1)
    still = [np.tile([PADDING, PADDING, 0], (*b.shape, 1)) for b in batches]
    plain = trainer.train(start, batches, [0, 0])
    assert torch.equal(trainer.train(start, batches, [0, 0], still), plain)
    # Flipped images, by the moves or beforehand.
    flips = [np.tile([PADDING, PADDING, 1], (*b.shape, 1)) for b in batches]
    mirrored = LocalTrainer(
        network=network, loss=CrossEntropy(), optimizer=Sgd(learning_rate=0.1), x=x.flip(3), y=y, options=TrainingOptions()
    )
    torch.testing.assert_close(trainer.train(start, batches, [0, 0], flips), mirrored.train(start, batches, [0, 0]))
    # Ragged clients, each with its own moves: as alone.
    short = [batches[0][:2], batches[1]]
    moves = [draw_moves(rng(k), steps=len(b), batch_size=8) for k, b in enumerate(short)]
    both = trainer.train(start, short, [0, 0], moves)
    for k in range(2):
        torch.testing.assert_close(trainer.train(start[:1], short[k : k + 1], [0], moves[k : k + 1])[0], both[k])
    assert (both[0] - plain[0]).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["mlp", "cnn", "batchnorm"])
def test_mixed_precision_is_near_and_not_the_same(name):
    network = from_factory(user_batchnorm, SHAPE, 10, seed=1) if name == "batchnorm" else NETWORKS[name]()[0]
    x, y = data()
    batches = ragged()[:3]
    rows = {}
    for precision in ("float32", "bfloat16"):
        trainer = LocalTrainer(
            network=network,
            loss=CrossEntropy(),
            optimizer=Sgd(learning_rate=0.05),
            x=x,
            y=y,
            options=TrainingOptions(precision=precision),
        )
        start = trainer.initial().expand(3, -1)
        rows[precision] = trainer.train(start, batches, [0] * 3)
        assert trainer.vectorised == (name != "batchnorm")
    assert rows["bfloat16"].dtype == torch.float32
    moved = (rows["float32"] - start).norm()
    apart = (rows["float32"] - rows["bfloat16"]).norm()
    # bfloat16 keeps 8 bits: relative errors of 2^-9 a step, a few per cent over 9 steps.
    assert 1e-5 < apart / moved < 0.1


@pytest.mark.parametrize("in_order", [False, True])
def test_out_of_memory_halves_the_chunk_and_says_so(monkeypatch, in_order):
    network, loss, _ = NETWORKS["mlp"]()
    x, y = data()
    # With the most steps first, all clients are trained where they are, without a copy.
    batches = sorted(ragged(), key=len, reverse=True) if in_order else ragged()
    trainer = LocalTrainer(network=network, loss=loss, optimizer=Sgd(learning_rate=0.05), x=x, y=y, options=PLAIN)
    start = trainer.initial().expand(5, -1)
    whole = trainer.train(start, batches, [0] * 5)
    inner, sizes = trainer._train_chunk, []

    def short_of_memory(most: int):
        def train_chunk(rows, *rest):
            sizes.append(len(rows))
            if len(rows) > most:
                rows.fill_(torch.nan)
                raise torch.OutOfMemoryError("CUDA out of memory")
            return inner(rows, *rest)

        return train_chunk

    monkeypatch.setattr(trainer, "_train_chunk", short_of_memory(1))
    torch.testing.assert_close(trainer.train(start, batches, [0] * 5), whole, atol=1e-6, rtol=0)
    assert sizes == [5, 2, 1, 1, 1, 1, 1]
    assert trainer.notes == [
        "out of memory while training 5 clients at once: from then on 2 at once",
        "out of memory while training 2 clients at once: from then on 1 at once",
    ]
    monkeypatch.setattr(trainer, "_train_chunk", short_of_memory(0))
    with pytest.raises(MemoryError, match=r"^device = 'cpu': out of memory while training a single client"):
        trainer.train(start, batches, [0] * 5)


def test_a_chunk_that_ran_out_of_memory_counts_once(monkeypatch):
    network, loss, _ = NETWORKS["mlp"]()
    x, y = data()
    batches = ragged()
    trainer = LocalTrainer(network=network, loss=loss, optimizer=Adam(learning_rate=0.05), x=x, y=y, options=PLAIN)
    start = trainer.initial().expand(5, -1)

    def train():
        tally, states = LossTally(), OptimizerStates([torch.zeros_like(start) for _ in range(2)], np.array([3, 0, 1, 0, 7]))
        rows = trainer.train(start, batches, [0] * 5, None, states, tally)
        return rows, states.moments[0], states.steps, tally.take()

    whole = train()
    inner = trainer._train_chunk

    def short_of_memory(rows, *rest):
        result = inner(rows, *rest)
        if len(rows) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return result

    monkeypatch.setattr(trainer, "_train_chunk", short_of_memory)
    halved = train()
    for one, other in zip(whole, halved, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert whole[2].tolist() == [taken + len(batch) for taken, batch in zip([3, 0, 1, 0, 7], batches, strict=True)]


@pytest.mark.parametrize(("name", "value"), [("proximal", -0.1), ("proximal", float("inf")), ("precision", "float16")])
def test_bad_training_options_are_refused(name, value):
    network, loss, _ = NETWORKS["linear"]()
    x, y = data()
    with pytest.raises(ValueError, match=rf"^{name} = "):
        LocalTrainer(
            network=network, loss=loss, optimizer=Sgd(learning_rate=0.1), x=x, y=y, options=TrainingOptions(**{name: value})
        )


def test_large_images_on_a_cpu_are_trained_one_after_another():
    shape = (3, 32, 32)
    network = cnn(shape, 10, seed=1, channels=[4, 4, 4], hidden=8)
    trainer = compare(network, CrossEntropy(), functional.cross_entropy, "adam", {"learning_rate": 0.01}, shape)
    assert not trainer.vectorised
    assert "faster client by client" in str(trainer.reason)


def test_dropout_draws_from_the_clients_own_seed_and_leaves_the_global_generator_alone():
    network = from_factory(user_dropout, SHAPE, 10, seed=1)
    x, y = data()
    trainer = LocalTrainer(
        network=network, loss=CrossEntropy(), optimizer=Sgd(learning_rate=0.1), x=x, y=y, options=TrainingOptions()
    )
    assert "torch.func cannot stack" in str(trainer.reason)
    batches = ragged()
    start = trainer.initial().expand(len(batches), -1)
    before = torch.get_rng_state()
    whole = trainer.train(start, batches, [5, 6, 7, 8, 9])
    alone = trainer.train(start[:1], batches[2:3], [7])
    other = trainer.train(start[:1], batches[2:3], [70])
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(whole[2], alone[0])
    assert not torch.equal(whole[2], other[0])


def test_company_does_not_change_an_update(monkeypatch):
    network, loss, _ = NETWORKS["mlp"]()
    x, y = data()
    trainer = LocalTrainer(network=network, loss=loss, optimizer=Adam(learning_rate=0.01), x=x, y=y, options=PLAIN)
    batches = ragged()
    start = trainer.initial().expand(len(batches), -1)
    whole = trainer.train(start, batches, [0] * 5)
    for k in range(5):
        torch.testing.assert_close(trainer.train(start[:1], batches[k : k + 1], [0])[0], whole[k], atol=1e-6, rtol=0)
    monkeypatch.setattr(trainer, "_chunk", 2)
    torch.testing.assert_close(trainer.train(start, batches, [0] * 5), whole, atol=1e-6, rtol=0)

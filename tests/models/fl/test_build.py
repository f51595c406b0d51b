"""A learner from plain tables: what is learned from digits, bad tables, every network, the seed."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import torch
from torch import nn

from models.fl.build import Protection, build_learner
from models.fl.options.names import DataOptions, LearnerOptions
from netsim.core.streams import Streams
from tests.helpers.learners import deliver, make, model

torch.set_num_threads(1)


@pytest.mark.parametrize(
    "options",
    [{"epochs": 0}, {"max_steps": 0}, {"evaluate_every_rounds": 0}, {"versions_kept": 0}],
)
def test_bad_numbers_are_refused(options):
    with pytest.raises(ValueError, match=rf"^{next(iter(options))} = 0: must be >= 1"):
        make(**options)


@dataclass
class Config:
    """Arguments of `build_learner` that work; tests change one."""

    def build(self, **changes):
        base = {
            "data": {"kind": "digits", "samples": 300},
            "partition": {"kind": "equal"},
            "network": {"kind": "mlp", "hidden": [16]},
            "optimizer": {"kind": "adam", "learning_rate": 0.01},
            "mechanism": {"mode": "none"},
            "clients": 10,
            "streams": Streams(0),
            "data_root": Path("nowhere"),
            "device": "cpu",
            **changes,
        }
        options = {field.name: base.pop(field.name) for field in fields(LearnerOptions) if field.name in base}
        base["protection"] = Protection(mechanism=base.pop("mechanism"), unprotected=base.pop("unprotected", None))
        return build_learner(LearnerOptions(**{**options, "data": DataOptions(**options["data"])}), **base)


def test_digits_are_learned_and_private_overspending_is_not():
    def accuracy(mechanism, participations):
        learner = Config().build(data={"kind": "digits"}, mechanism=mechanism)
        for round in range(1, 41):
            epsilon = 40 * (math.exp(0.04) - 1) * math.exp(-0.04 * participations(round))
            learner.aggregate(deliver(round, [(3 * round + k) % 10 for k in range(3)], learner.version, epsilon), False)
        return learner.evaluate(40, 0.0, True).accuracy

    noise = {"mode": "per_coordinate", "sensitivity": 0.012}
    # 360 test images: the standard deviation of an accuracy of .9 is .016, that of guessing (.1) the same.
    assert accuracy({"mode": "none"}, lambda round: 1) > 0.9
    assert accuracy(noise, lambda round: 0.3 * round) > 0.85
    assert accuracy(noise, lambda round: 4 * round) < 0.3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"kind": "digit"}}, "data.kind = 'digit': must be one of digits, mnist"),
        ({"data": {"kind": "digits", "samples": 5000}}, "data.samples = 5000: must be in 1..1437"),
        ({"data": {"kind": "mnist"}}, "data.kind = 'mnist': missing nowhere/MNIST/raw/train-images-idx3-ubyte"),
        ({"partition": {"kind": "equal", "minimum": 200}}, "minimum = 200: 10 clients need 2000 samples, but there are 300"),
        ({"clients": 301}, "clients = 301: more clients than the 300 training samples"),
        ({"network": {"kind": "mpl"}}, "network.kind = 'mpl': must be one of linear, svm, mlp, cnn"),
        ({"network": {"kind": "mlp"}}, "network.hidden: missing"),
        ({"network": {"kind": "linear", "hidden": [3]}}, "network.hidden = [3]: unknown key; allowed are: none"),
        ({"loss": "squared"}, "loss = 'squared': must be cross-entropy, hinge or squared-hinge"),
        ({"optimizer": {"kind": "adam"}}, "optimizer.learning_rate: missing"),
        ({"optimizer": {"kind": "sgd", "learning_rate": 0.1, "beta1": 0.1}}, "optimizer.beta1 = 0.1: unknown key"),
        (
            {"mechanism": {"mode": "l3"}},
            "mechanism.mode = 'l3': must be one of none, per_coordinate, l1, gaussian_per_",
        ),
        ({"mechanism": {"mode": "l2", "sensitivity": 1.0}}, "mechanism.delta: missing"),
        ({"mechanism": {"mode": "l2", "sensitivity": 1.0, "delta": 1.0}}, "mechanism.delta = 1.0: must be in (0, 1)"),
        ({"aggregation": {"kind": "mode"}}, "aggregation.kind = 'mode': must be one of size, equal, "),
        ({"aggregation": {"kind": "contribution"}}, "contribution_samples = 0: must be > 0 for aggregation by contribution"),
        ({"aggregation": {"kind": "mixing", "alpha": 1.5}}, "aggregation.alpha = 1.5: must be > 0 and <= 1"),
        ({"contribution_samples": 5}, "contribution_samples = 5: there are no validation samples"),
        ({"staleness": {"kind": "polynomial", "exponent": 0.0}}, "staleness.exponent = 0.0: must be a finite number > 0"),
        ({"staleness": {"kind": "hinge", "free": -1}}, "staleness.free = -1: must be >= 0"),
        ({"staleness": {"kind": "hinge", "slope": 0.0}}, "staleness.slope = 0.0: must be"),
        ({"server_optimizer": {"kind": "sgd", "learning_rate": 0.0}}, "server_optimizer.learning_rate = 0.0: must be"),
        ({"server_optimizer": {"kind": "fedavgm", "momentum": 1.0}}, "server_optimizer.momentum = 1.0: must be >= 0 and < 1"),
        ({"server_optimizer": {"kind": "fedadam", "beta2": -0.1}}, "server_optimizer.beta2 = -0.1: must be >= 0 and < 1"),
        ({"server_optimizer": {"kind": "fedadam", "tau": 0.0}}, "server_optimizer.tau = 0.0: must be >= 1e-37 and <= 1e+38"),
        ({"evaluate_every_s": 1.0, "evaluate_every_rounds": 1}, "evaluate_every_s = 1.0: give either this or"),
        ({"evaluate_every_s": 0.0}, "evaluate_every_s = 0.0: must be a finite number > 0"),
        ({"local_test_samples": 0}, "local_test_samples = 0: must be >= 1"),
        ({"buffer": 0}, "buffer = 0: must be >= 1"),
        ({"proximal": -1.0}, "proximal = -1.0: must be"),
        ({"precision": "half"}, "precision = 'half': must be float32 or bfloat16"),
        ({"augmentation": "mixup"}, "augmentation = 'mixup': must be none or crop-flip"),
        ({"batch_statistics": "global"}, "batch_statistics = 'global': must be averaged or local"),
        ({"optimizer_state": "old"}, "optimizer_state = 'old': must be fresh or kept"),
        (
            {"optimizer_state": "kept", "optimizer": {"kind": "sgd", "learning_rate": 0.1}},
            "optimizer_state = 'kept': this optimizer has no state; leave it out",
        ),
        ({"batch_statistics": "local"}, "batch_statistics = 'local': the network keeps no running statistics"),
        ({"network": {"kind": "cnn8", "channels": [4] * 7}}, "network.channels = [4, 4, 4, 4, 4, 4, 4]: must be 8 widths"),
        ({"network": {"kind": "cnn8", "norm": "layer"}}, "network.norm = 'layer': must be one of batch, group, none"),
        ({"network": {"kind": "resnet18", "norm": "none"}}, "network.norm = 'none': must be one of batch, group"),
        ({"network": {"kind": lambda inputs, classes: 1 / 0}}, "network.kind = <function"),
        ({"network": {"kind": lambda inputs, classes: "mlp"}}, "network.kind = <function"),
        ({"mechanism": {"mode": "l1"}}, "mechanism.sensitivity: missing"),
        ({"mechanism": {"mode": "none", "sensitivity": 1.0}}, "mechanism.sensitivity = 1.0: unknown key"),
        ({"device": "tpu"}, "device = 'tpu': must be auto, cpu or cuda"),
        ({"threads": 0}, "threads = 0: must be >= 1"),
        ({"batch_size": 0}, "batch_size = 0: must be >= 1"),
        ({"network": {"kind": lambda inputs, classes: nn.Flatten()}}, "network: it has no parameters"),
        ({"network": {"kind": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 9))}}, "network: returns scores of shape (2, 9)"),
    ],
)
def test_bad_tables_are_refused(changes, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is compared below)
        Config().build(**changes)
    assert str(caught.value).startswith(message)


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(
    "network",
    [
        {"kind": "linear"},
        {"kind": "svm"},
        {"kind": "cnn"},
        {"kind": "cnn8", "channels": [8] * 8},
        {"kind": lambda inputs, classes: nn.Sequential(nn.Flatten(), nn.Linear(64, classes))},
    ],
)
def test_every_network_trains_from_a_table(network):
    learner = Config().build(network=network)
    before = learner.evaluate(1, 0.0, False)
    for round in range(1, 16):
        learner.aggregate(deliver(round, range(10), learner.version), False)
    assert learner.evaluate(15, 0.0, True).accuracy > before.accuracy + 0.2
    assert learner.training_mode == "vectorised"
    assert learner.label_counts.shape == (10, 10)
    assert learner.label_counts.sum(1).tolist() == learner.data_sizes.tolist() == [30] * 10


@pytest.mark.parametrize("seed", [0, 1])
def test_the_whole_build_is_a_function_of_the_seed(seed):
    first, again = (model(Config().build(streams=Streams(seed))).tobytes() for _ in range(2))
    assert first == again
    assert first != model(Config().build(streams=Streams(seed + 1))).tobytes()

"""Learning the parity of labels: two classes, while everything else goes by the labels as published."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from models.fl.aggregation.rules import ByContribution
from models.fl.data.datasets import Dataset, load_dataset
from models.fl.learners.learner import FederatedLearner
from models.fl.learners.methods import Methods
from models.fl.learners.task import Task
from models.fl.networks.kinds import svm
from models.fl.options.names import DataOptions, TrainingOptions
from models.fl.training.losses import SquaredHinge
from models.fl.training.optimizers import Sgd
from netsim.core.protocols import Deliveries
from netsim.core.streams import Streams

torch.set_num_threads(1)
PARTS = [np.arange(0, 500), np.arange(500, 900), np.arange(900, 1237)]


def digits(labels: str) -> Dataset:
    return load_dataset(
        DataOptions(scale="unit", validation_samples=200, labels=labels),  # type: ignore[arg-type]
        root=Path("nowhere"),
        generator=np.random.default_rng(0),
    )


def as_two_classes(data: Dataset) -> Dataset:
    """The same samples, labelled 0 (even) and 1 (odd)."""
    parts = (data.train_x, data.train_y % 2, data.test_x, data.test_y % 2, data.validation_x, data.validation_y % 2)
    return Dataset("made", 2, *parts)


def trained(data: Dataset) -> FederatedLearner:
    learner = FederatedLearner(
        task=Task(dataset=data, partition=PARTS, network=svm((1, 8, 8), data.classes, seed=0), loss=SquaredHinge()),
        streams=Streams(3),
        methods=Methods(optimizer=Sgd(learning_rate=0.02), aggregation=ByContribution()),
        options=TrainingOptions(contribution_samples=40, local_test_samples=60, device="cpu"),
    )
    clients = np.arange(3)
    for round in range(1, 6):
        version = np.full(3, learner.version)
        learner.aggregate(Deliveries(round, clients, np.full(3, round), version, np.full(3, math.inf)), False)
    return learner


def test_classes_are_two_and_labels_stay() -> None:
    data, published = digits("parity"), digits("published")
    assert (data.classes, data.labels) == (2, 10)
    assert (published.classes, published.labels) == (10, 10)
    assert torch.equal(data.train_y, published.train_y)
    assert data.targets(torch.tensor([[0, 7], [4, 9]])).tolist() == [[0, 1], [0, 1]]
    assert published.targets(published.test_y) is published.test_y
    with pytest.raises(ValueError, match=r"^data.labels = 'odd': must be published or parity"):
        digits("odd")


def test_training_sees_two_classes_and_partitions_ten_labels() -> None:
    data = digits("parity")
    learner, other = trained(data), trained(as_two_classes(data))
    assert learner.up_bytes == 4 * 2 * 65
    counts = np.stack([np.bincount(data.train_y[torch.from_numpy(part)].numpy(), minlength=10) for part in PARTS])
    assert np.array_equal(learner.label_counts, counts)
    quality = learner.evaluate(5, 5.0, True)
    assert quality is not None
    assert quality.accuracy > 0.8
    # Contributions are measured on sets drawn by label, so that only their draws tell the two learners apart.
    assert quality.accuracy == pytest.approx(other.evaluate(5, 5.0, True).accuracy, abs=0.05)  # type: ignore[union-attr]


def test_opinions_by_label_are_what_each_client_would_measure() -> None:
    data = digits("parity")
    learner = trained(data)
    row = torch.from_numpy(learner.state_dict()["models"][-1])
    right = (learner._trainer.scores(row, data.test_x).argmax(1) == data.test_y % 2).double()
    opinions = learner.tests.opinions("own")
    sets = learner.tests._evaluator._sets["own"]
    for client in range(3):
        assert opinions[client] == pytest.approx(right[torch.from_numpy(sets[client])].mean().item())
        drawn = np.bincount(data.test_y.numpy()[sets[client]], minlength=10) / 60
        share = learner.label_counts[client] / learner.label_counts[client].sum()
        np.testing.assert_allclose(drawn, share, atol=1 / 60)

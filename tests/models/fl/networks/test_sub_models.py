"""Learners of which only some parameters are trained and sent."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from models.errors import ParameterError
from models.fl.aggregation.rules import MajorityVote
from models.fl.aggregation.server_optimizers import FedAdam
from models.fl.compression.int8 import Int8
from models.fl.compression.top_k import TopK
from models.fl.networks.kinds import cnn, mlp
from models.fl.networks.sub_models import moving_statistics, trained_tensors
from models.fl.privacy.mechanisms import L1, L2
from models.fl.training.local_work import Update
from models.fl.training.optimizers import Adam, Sgd
from tests.helpers.fl_reference import flatten, train_one
from tests.helpers.learners import deliver, make, make_data, model

NAMES = ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"]
LAST = slice(8 * 16 + 8, None)
"""The columns of the last layer: 5 x 8 weights and 5 biases."""


def test_names_and_patterns():
    assert trained_tensors(NAMES, None) == [0, 1, 2, 3]
    assert trained_tensors(NAMES, ["layers.1.*"]) == [2, 3]
    assert trained_tensors(NAMES, ["*.bias", "layers.1.bias", "layers.1.weight"]) == [1, 2, 3]
    assert moving_statistics(["a.running_mean", "b.running_mean"], ["b.weight"]) == [1]
    assert moving_statistics(["a.running_mean", "b.running_mean"], None) == [0, 1]
    with pytest.raises(
        ParameterError, match=r"^trained = 'layers': no parameter has such a name; the network has layers.0.weight"
    ):
        trained_tensors(NAMES, ["*", "layers"])
    with pytest.raises(ParameterError, match=r"^trained = \[\]: names nothing to train"):
        trained_tensors(NAMES, [])


@pytest.mark.parametrize(
    ("kind", "optimizer", "options"),
    [
        ("sgd", Sgd(learning_rate=0.1, momentum=0.5, weight_decay=0.1), {"momentum": 0.5, "weight_decay": 0.1}),
        ("adam", Adam(learning_rate=0.02, weight_decay=0.1), {"weight_decay": 0.1}),
    ],
)
@pytest.mark.parametrize("trained", [["layers.1.*"], ["layers.0.bias", "layers.1.weight"]])
def test_what_is_not_named_stays_and_the_rest_is_trained_as_torch_does(kind, optimizer, options, trained):
    network = mlp((1, 4, 4), 5, seed=1, hidden=[8])
    learner = make(optimizer=optimizer, network=network, trained=trained, proximal=0.3)
    start = model(learner)
    updates = learner.aggregate(deliver(1, [0, 2], 0), True).updates
    data = make_data()
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name in trained_names(trained))
    rate = optimizer.learning_rate
    for update, client in zip(updates, (0, 2), strict=True):
        batches = learner._work._batches([Update(client, 1, 0, math.inf)])[0]
        # torch leaves alone what has no gradient, weight decay included.
        whole = train_one(
            network, data.train_x, data.train_y, batches, kind=kind, options={"learning_rate": rate, **options}, proximal=0.3
        )
        np.testing.assert_allclose(update, (flatten(whole) - torch.from_numpy(start)).numpy(), atol=1e-5)
    sizes = zip(NAMES, (128, 8, 40, 5), strict=True)
    frozen = ~np.concatenate([np.full(size, name in trained_names(trained)) for name, size in sizes])
    assert (updates[:, frozen] == 0).all()
    assert (updates[:, ~frozen] != 0).mean() > 0.9
    np.testing.assert_array_equal(model(learner)[frozen], start[frozen])


def trained_names(patterns):
    return [NAMES[place] for place in trained_tensors(NAMES, patterns)]


def test_a_network_with_torchs_gradients_trains_the_same_parts():
    plain = mlp((1, 4, 4), 5, seed=1, hidden=[8])
    other = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 5))
    other.load_state_dict(dict(zip(other.state_dict(), plain.state_dict().values(), strict=True)))
    by_hand = make(network=plain, trained=["layers.1.*"])
    by_torch = make(network=other, trained=["3.*"])
    for learner in (by_hand, by_torch):
        learner.aggregate(deliver(1, [0, 1, 3], 0), False)
    assert by_torch.training_mode == "vectorised"
    np.testing.assert_allclose(model(by_hand), model(by_torch), atol=1e-5)


def test_only_what_is_trained_is_sent():
    learner = make(trained=["layers.1.*"], compression=TopK(share=0.1), down_compression=Int8())
    assert (make(trained=["layers.1.*"]).up_bytes, make(trained=["layers.1.*"]).down_bytes) == (4 * 45, 4 * 45)
    assert learner.up_bytes == math.ceil(5 * (32 + 6) / 8)
    assert learner.down_bytes == 45 + 2 * 8
    assert learner.release.numbers == 45
    start = model(learner)
    updates = learner.aggregate(deliver(1, [0, 1], 0), True).updates
    assert ((updates != 0).sum(1) == 5).all()
    assert (updates[:, : LAST.start] == 0).all()
    np.testing.assert_array_equal(model(learner)[: LAST.start], start[: LAST.start])
    assert [len(row) for row in learner.state_dict()["left_out"]["vectors"]] == [45, 45]


def test_only_what_is_sent_is_clipped_and_noised():
    # Norms and noise are of the 45 numbers that are sent; the others stay as they are.
    for mechanism in (L1(sensitivity=0.1), L2(sensitivity=0.1, delta=1e-5)):
        learner = make(mechanism=mechanism, trained=["layers.1.*"])
        updates = learner.aggregate(deliver(1, [0, 1], 0, 1e9), True).updates
        assert (updates[:, : LAST.start] == 0).all()
        norms = np.linalg.norm(updates[:, LAST], 1 if isinstance(mechanism, L1) else 2, axis=1)
        np.testing.assert_allclose(norms, 0.05, rtol=0.05)
        assert (learner.release.numbers, learner.release.unprotected) == (45, 0)


def test_the_optimizers_memory_is_of_what_is_trained():
    kept = {"trained": ["layers.1.*"], "optimizer_state": "kept"}
    straight, resumed = make(**kept), make(**kept)
    straight.aggregate(deliver(1, [0, 1], 0), False)
    assert straight.state_dict()["memory"]["moments"][0].shape == (2, 45)
    resumed.load_state_dict(straight.state_dict())
    for learner in (straight, resumed):
        learner.aggregate(deliver(2, [1, 0], 1), False)
    np.testing.assert_array_equal(model(straight), model(resumed))


@pytest.mark.parametrize(
    "methods",
    [{"server_optimizer": FedAdam()}, {"aggregation": MajorityVote(learning_rate=0.1, tie="random")}],
    ids=["adam", "vote"],
)
def test_no_step_of_the_server_moves_what_is_not_trained(methods):
    learner = make(trained=["layers.1.*"], **methods)
    start = model(learner)
    learner.aggregate(deliver(1, [0, 1], 0), False)
    np.testing.assert_array_equal(model(learner)[: LAST.start], start[: LAST.start])
    assert (model(learner)[LAST] != start[LAST]).all()


def test_votes_on_nothing_do_not_move_running_statistics_that_clients_keep():
    network = cnn((1, 4, 4), 5, seed=1, channels=[2], hidden=[4], norm="batch")
    learner = make(network=network, batch_statistics="local", aggregation=MajorityVote(learning_rate=0.1, tie="random"))
    start, width = model(learner), learner._trainer.parameters
    learner.aggregate(deliver(1, [0, 1], 0), False)
    np.testing.assert_array_equal(model(learner)[width:], start[width:])
    assert (model(learner)[:width] != start[:width]).all()


def test_running_statistics_move_with_their_layer():
    def network():
        return cnn((1, 4, 4), 5, seed=1, channels=[2], hidden=[4], norm="batch")

    everything = make(network=network())
    names = everything._trainer.layout.names
    # layers: convolution 0, norm 2 (or after pooling 3), flatten, dense, its norm, the last dense layer.
    norms = sorted({name.rpartition(".")[0] for name in names if "running" in name})
    learner = make(network=network(), trained=[f"{norms[1]}.*"])
    start = model(learner)
    learner.aggregate(deliver(1, [1, 3], 0), False)
    moved = model(learner) != start
    layout = learner._trainer.layout
    columns = dict(zip(names, np.split(moved, np.cumsum([shape.numel() for shape in layout.shapes])[:-1]), strict=True))
    assert {name for name, changed in columns.items() if changed.any()} == {name for name in names if name.startswith(norms[1])}
    assert learner.release.numbers == 4 * 4
    assert learner.up_bytes == 4 * 4 * 4


def test_local_statistics_of_a_layer_that_is_not_trained_stay():
    network = cnn((1, 4, 4), 5, seed=1, channels=[2], hidden=[4], norm="batch")
    learner = make(network=network, trained=["layers.0.*"], batch_statistics="local")
    learner.aggregate(deliver(1, [1, 3], 0), False)
    kept = learner.state_dict()["memory"]["statistics"]
    # Means are 0 and variances 1 before anything is seen.
    assert sorted(kept[0].tolist()) == sorted(kept[1].tolist()) == [0.0] * 6 + [1.0] * 6


def test_a_pattern_without_a_parameter_is_refused():
    with pytest.raises(ParameterError, match=r"^trained = 'layers.7.\*': no parameter has such a name"):
        make(trained=["layers.7.*"])

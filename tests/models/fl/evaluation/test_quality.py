from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from models.fl.aggregation.rules import Mixing
from models.fl.aggregation.server_optimizers import ServerSgd
from models.fl.evaluation.quality import draw_local_sets
from models.fl.networks.kinds import from_factory
from tests.helpers.learners import deliver, make, make_data, model


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


LABELS = np.repeat(np.arange(4), 25)
COUNTS = np.array([[10, 10, 10, 10], [30, 10, 0, 0], [0, 0, 0, 7], [1, 0, 0, 2]])


def test_iid_shares_are_disjoint_until_all_is_used():
    sets = draw_local_sets(LABELS, COUNTS, "iid", samples=25, generator=rng())
    assert sorted(sets.ravel().tolist()) == list(range(100))
    again = draw_local_sets(LABELS, COUNTS, "iid", samples=60, generator=rng())
    assert np.bincount(again.ravel(), minlength=100).min() == 2
    assert np.bincount(again.ravel(), minlength=100).max() == 3
    assert not np.array_equal(sets, draw_local_sets(LABELS, COUNTS, "iid", samples=25, generator=rng(1)))


def test_own_sets_have_the_clients_own_proportions():
    sets = draw_local_sets(LABELS, COUNTS, "own", samples=20, generator=rng())
    drawn = np.stack([np.bincount(LABELS[row], minlength=4) for row in sets])
    # Thirds of 20: 6.67 and 13.33, the larger remainder gets the one that is left.
    assert drawn.tolist() == [[5, 5, 5, 5], [15, 5, 0, 0], [0, 0, 0, 20], [7, 0, 0, 13]]
    assert all(len(set(row.tolist())) == 20 for row in sets)
    # More of a label than there are: some twice.
    many = draw_local_sets(LABELS, COUNTS, "own", samples=40, generator=rng())
    assert np.bincount(LABELS[many[2]], minlength=4).tolist() == [0, 0, 0, 40]


def test_labels_without_samples_are_left_out():
    sets = draw_local_sets(LABELS[25:], COUNTS, "own", samples=6, generator=rng())
    assert np.bincount(LABELS[25:][sets[0]], minlength=4).tolist() == [0, 2, 2, 2]
    assert np.bincount(LABELS[25:][sets[1]], minlength=4).tolist() == [0, 6, 0, 0]
    with pytest.raises(ValueError, match="there is none of any label that client 2 holds"):
        draw_local_sets(LABELS[:75], COUNTS, "own", samples=6, generator=rng())
    with pytest.raises(ValueError, match=r"^local = 'all': must be"):
        draw_local_sets(LABELS, COUNTS, "all", samples=6, generator=rng())


def test_iid_opinions_average_to_the_accuracy():
    learner = make(local_test_samples=None)
    for round in range(1, 4):
        learner.aggregate(deliver(round, [0, 1, 2, 3], learner.version), False)
    opinions = learner.tests.opinions("iid")
    # 4 clients share 50 test samples: 12 each, 2 left over.
    assert (opinions * 12 == np.rint(opinions * 12)).all()
    assert opinions.mean() * 48 <= learner.evaluate(1, 0.0, True).accuracy * 50 <= opinions.mean() * 48 + 2
    assert np.array_equal(learner.tests.opinions("iid"), opinions)
    learner.aggregate(deliver(4, [0, 1, 2, 3], 3), False)
    assert learner.tests.opinions("iid").shape == (4,)


def test_opinions_are_what_each_client_would_measure():
    learner = make(local_test_samples=7)
    learner.aggregate(deliver(1, [0, 1], 0), False)
    data = make_data()
    row = torch.from_numpy(model(learner))
    scores = learner._trainer.scores(row, data.test_x)
    for local in ("iid", "own"):
        opinions = learner.tests.opinions(local)
        sets = learner.tests._evaluator._sets[local]
        for client in range(4):
            chosen = torch.from_numpy(sets[client])
            right = (scores[chosen].argmax(1) == data.test_y[chosen]).double().mean().item()
            assert opinions[client] == pytest.approx(right)


def test_a_model_that_knows_one_label_serves_those_who_hold_it():
    learner = make()
    state = learner.state_dict()
    # All weights 0, the last bias 1: everything is called 4.
    state["models"] = np.full_like(np.stack(state["models"]), 0)
    state["models"][:, -1] = 1
    learner.load_state_dict(state)
    share = learner.label_counts[:, 4] / learner.label_counts.sum(1)
    np.testing.assert_allclose(learner.tests.opinions("own"), share, atol=1 / 12)
    assert np.ptp(share) > 1 / 12


def norm_network():
    return from_factory(
        lambda inputs, classes: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16), nn.Linear(16, classes)), (1, 4, 4), 5, seed=1
    )


def test_local_batch_statistics_stay_with_their_clients():
    learner = make(network=norm_network(), batch_statistics="local")
    parameters = 16 * 2 + 16 * 5 + 5
    assert learner.up_bytes == 4 * parameters
    before = model(learner)
    learner.aggregate(deliver(1, [1, 3], 0), False)
    np.testing.assert_array_equal(model(learner)[parameters:], before[parameters:])
    state = learner.state_dict()["memory"]
    assert state["clients"] == [1, 3]
    averaged = make(network=norm_network())
    averaged.aggregate(deliver(1, [1, 3], 0), False)
    # The same training: what is averaged there are the statistics that the clients keep here.
    mean = (30 * state["statistics"][0] + 35 * state["statistics"][1]) / 65
    np.testing.assert_allclose(model(averaged)[parameters:], mean, atol=1e-6)
    np.testing.assert_allclose(model(averaged)[:parameters], model(learner)[:parameters], atol=1e-6)
    # In its next round a client goes on from its own.
    learner.aggregate(deliver(2, [1], 1), False)
    after = learner.state_dict()["memory"]["statistics"]
    assert np.abs(after[0] - state["statistics"][0]).max() > 1e-3
    np.testing.assert_array_equal(after[1], state["statistics"][1])


def test_evaluation_with_local_statistics_uses_the_test_batch_and_opinions_the_clients_own():
    learner = make(network=norm_network(), batch_statistics="local", local_test_samples=10)
    learner.aggregate(deliver(1, [1, 3], 0), False)
    data, parameters = make_data(), 16 * 2 + 16 * 5 + 5
    row = torch.from_numpy(model(learner))
    weight, bias, matrix, offset = torch.split(row[:parameters], [16, 16, 80, 5])

    def scores(x, mean, variance):
        normal = (x.flatten(1) - mean) / (variance + 1e-5).sqrt() * weight + bias
        return normal @ matrix.view(5, 16).T + offset

    flat = data.test_x.flatten(1)
    expected = scores(data.test_x, flat.mean(0), flat.var(0, unbiased=False))
    quality = learner.evaluate(1, 0.0, True)
    assert quality.accuracy == (expected.argmax(1) == data.test_y).double().mean().item()
    assert quality.loss == pytest.approx(nn.functional.cross_entropy(expected, data.test_y).item(), rel=1e-4)
    np.testing.assert_array_equal(model(learner), row.numpy())
    opinions, sets = learner.tests.opinions("own"), learner.tests._evaluator._sets["own"]
    own = dict(zip(*(learner.state_dict()["memory"][key] for key in ("clients", "statistics")), strict=True))
    for client in range(4):
        x, y = data.test_x[sets[client]], data.test_y[sets[client]]
        flat = x.flatten(1)
        mean, variance = torch.from_numpy(own[client]).split(16) if client in own else (flat.mean(0), flat.var(0, unbiased=False))
        assert opinions[client] == pytest.approx((scores(x, mean, variance).argmax(1) == y).double().mean().item())


def test_statistics_are_neither_mixed_nor_stepped_by_the_server():
    parameters = 16 * 2 + 16 * 5 + 5
    local = make(network=norm_network(), batch_statistics="local", aggregation=Mixing(alpha=0.5))
    first = model(local)[parameters:]
    for round in range(1, 4):
        local.aggregate(deliver(round, [1, 3], local.version), False)
        np.testing.assert_array_equal(model(local)[parameters:], first)
    plain = make(network=norm_network())
    stepped = make(network=norm_network(), server_optimizer=ServerSgd(learning_rate=0.5))
    for learner in (plain, stepped):
        learner.aggregate(deliver(1, [1, 3], 0), False)
    np.testing.assert_array_equal(model(plain)[parameters:], model(stepped)[parameters:])
    assert np.abs(model(plain)[:parameters] - model(stepped)[:parameters]).max() > 1e-3

from __future__ import annotations

import numpy as np
import pytest
import torch

from models.fl.aggregation.contribution import Contributions
from models.fl.aggregation.rules import ByContribution
from tests.helpers.learners import deliver, make, model


def contributions(error_of=lambda model, client: 1.0, clients=3) -> Contributions:
    return Contributions(clients=clients, parameters=2, error_of=error_of)


def record(c: Contributions, clients, updates, models=None):
    rows = torch.tensor(updates)
    c.record(np.array(clients), rows, rows if models is None else torch.tensor(models))


def test_before_two_have_delivered_all_are_worth_one():
    c = contributions()
    assert c.contribution().tolist() == [1, 1, 1]
    record(c, [1], [[1.0, 0.0]])
    assert c.contribution().tolist() == [1, 1, 1]


def test_by_hand():
    seen = []

    def error_of(model, client):
        seen.append((client, model.tolist()))
        return [0.5, 0.25, 1.0][client]

    c = contributions(error_of)
    # The third column of models (a buffer) is no part of a gradient.
    record(
        c, [0, 1, 2], [[1.0, 0.0, 9.0], [0.0, 2.0, 9.0], [-1.0, 0.0, 9.0]], [[3.0, 0.0, 1.0], [0.0, 3.0, 1.0], [6.0, 6.0, 1.0]]
    )
    # Equal weights first. Others of 0: (-1/2, 1), cos -1/sqrt 5; of 1: (0, 0), cos 0; of 2: (1/2, 1), cos -1/sqrt 5.
    first = [(1 + 0.2**0.5) * 0.5, 0.25, 1 + 0.2**0.5]
    assert c.contribution().tolist() == pytest.approx(first)
    assert seen == [(0, [3.0, 4.5, 1.0]), (1, [4.5, 3.0, 1.0]), (2, [1.5, 1.5, 1.0])]
    # Nothing new: nothing is computed.
    c.contribution()
    assert len(seen) == 3
    # Then zeta = C / sum C weights the others; only client 1 delivered something new, the others' last stand.
    record(c, [1], [[2.0, 0.0, 9.0]], [[0.0, 0.0, 1.0]])
    a, b, d = first
    others = np.array([d * -1 + b * 2, a - d, a + 2 * b])
    own = np.array([1, 2, -1])
    assert c.contribution().tolist() == pytest.approx((1 - np.sign(others * own)) * [0.5, 0.25, 1.0])
    assert seen[3][1] == pytest.approx([6 * d / (b + d), 6 * d / (b + d), 1.0])


def test_leave_one_out_means_are_those_of_the_corrected_equations():
    g = np.random.default_rng(0)
    updates, models = g.normal(size=(4, 2)).astype(np.float32), g.normal(size=(4, 2)).astype(np.float32)
    zeta = np.array([0.1, 0.2, 0.3, 0.4])
    without = {}
    c = contributions(lambda model, client: without.setdefault(client, model.numpy().copy()).size / 2, clients=4)
    record(c, range(4), updates.tolist(), models.tolist())
    state = c.state_dict()
    state["values"] = 5 * zeta
    c.load_state_dict(state, torch.device("cpu"))
    values = c.contribution()
    for i in range(4):
        # Channel study eq. 41 and 42: (grad_all - zeta_i grad_i) / (1 - zeta_i), and alike for the model.
        gradient = (zeta @ updates - zeta[i] * updates[i]) / (1 - zeta[i])
        np.testing.assert_allclose(without[i], (zeta @ models - zeta[i] * models[i]) / (1 - zeta[i]), atol=1e-6)
        cosine = updates[i] @ gradient / np.linalg.norm(updates[i]) / np.linalg.norm(gradient)
        assert values[i] == pytest.approx(1 - cosine, abs=1e-5)


def test_a_client_that_has_delivered_nothing_is_worth_the_mean():
    c = contributions(clients=4)
    record(c, [0, 3], [[1.0, 0.0], [0.0, 1.0]])
    assert c.contribution().tolist() == [1, 1, 1, 1]
    record(c, [1], [[1.0, 1.0]])
    values = c.contribution()
    assert values[2] == pytest.approx(values[[0, 1, 3]].mean())
    assert values[1] < values[0]


def test_degenerate_gradients_give_numbers():
    c = contributions()
    record(c, [0, 1, 2], [[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    assert c.contribution().tolist() == pytest.approx([1.0, 0.0, 0.0])
    # The two others of client 0 were worth 0 together: they weigh the same.
    record(c, [0], [[-1.0, 0.0]])
    assert c.contribution().tolist() == pytest.approx([2.0, 2.0, 2.0])


def test_the_learner_records_what_was_delivered():
    learner = make(contribution_samples=8)
    assert learner.contribution().tolist() == [1, 1, 1, 1]
    learner.aggregate(deliver(1, [0, 1, 2], 0), False)
    values = learner.contribution()
    assert (values >= 0).all()
    assert values[3] == pytest.approx(values[:3].mean())
    assert len(set(values[:3].tolist())) > 1
    # Errors are shares of 8 validation samples.
    updates = make().aggregate(deliver(1, [0, 1, 2], 0), True).updates
    for i in range(3):
        rest = np.delete(updates, i, 0).mean(0)
        cosine = updates[i] @ rest / np.linalg.norm(updates[i]) / np.linalg.norm(rest)
        errors = values[i] / (1 - cosine) * 8
        assert errors == pytest.approx(round(errors), abs=1e-3)
    assert make().contribution().tolist() == [1, 1, 1, 1]


def test_weights_are_the_contributions_known_before_the_round():
    learner = make(contribution_samples=8, aggregation=ByContribution())
    learner.aggregate(deliver(1, [0, 1, 2], 0), False)
    zeta, before = learner.contribution(), model(learner)
    updates = learner.aggregate(deliver(2, [0, 2, 3], 1), True).updates
    weights = zeta[[0, 2, 3]] / zeta[[0, 2, 3]].sum()
    np.testing.assert_allclose(model(learner), before + weights @ updates, atol=1e-6)

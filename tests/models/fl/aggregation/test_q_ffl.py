"""q-FFL by hand and its limits, losses of the received model, and SCAFFOLD's gradient at it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from models.fl.aggregation.q_ffl import QFfl
from models.fl.aggregation.rules import Arrivals
from models.fl.aggregation.scaffold import Scaffold
from models.fl.options.demands import LocalSteps
from models.fl.training import local_trainer as training
from models.fl.training.optimizers import Sgd
from models.laws.work import WorkPlan
from netsim.core.streams import Streams
from tests.helpers.fl_reference import draw_passes, flatten
from tests.helpers.learners import SIZES, deliver, make, make_data, model
from tests.helpers.quadratics import quadratics
from tests.helpers.trained_networks import SGD, TWO, network, rounds, trained

torch.set_num_threads(1)


def arrivals(losses, rate=0.1, parameters=None) -> Arrivals:
    n = len(losses)
    steps = LocalSteps(np.ones(n, np.int64), rate)
    return Arrivals(np.arange(1, n + 1), np.zeros(n, np.int64), None, np.random.default_rng, parameters, steps, np.array(losses))


def q_step(aggregation, updates, losses, **named) -> list[float]:
    rows = torch.tensor(updates, dtype=torch.float32)
    zero = torch.zeros(rows.shape[1])
    return aggregation.step(zero, torch.zeros_like(rows), rows, arrivals(losses, **named), np.ones(len(rows))).tolist()


def test_q_ffl_by_hand():
    # L = 10: z = 10 and 20; sums 1 x 10 + 4 x 20 = 90 and 100 + 400 + 10 (1 + 4) = 550.
    assert q_step(QFfl(q=1.0), [[-1.0], [-2.0]], [1.0, 4.0]) == pytest.approx([-90 / 550])
    # q = 2: 1 x 10 + 16 x 20 = 330, and 2 x 100 + 2 x 4 x 400 + 10 (1 + 16) = 3570.
    assert q_step(QFfl(q=2.0), [[-1.0], [-2.0]], [1.0, 4.0]) == pytest.approx([-330 / 3570])
    # |z|^2 is of the parameters; the running statistic beside them is averaged by F^q.
    assert q_step(QFfl(q=1.0), [[-1.0, 5.0], [-2.0, 10.0]], [1.0, 4.0], parameters=1) == pytest.approx([-90 / 550, 9.0])


def test_limits_of_q_ffl():
    updates, mean = [[1.0, -3.0], [2.0, 5.0], [6.0, 1.0]], [3.0, 1.0]
    assert q_step(QFfl(q=0.0), updates, [0.3, 7.0, 1e6]) == pytest.approx(mean)
    assert q_step(QFfl(q=1.0), updates, [0.0, 0.0, 0.0]) == pytest.approx(mean)
    assert q_step(QFfl(q=0.0), updates, [0.3, math.nan, 2.0]) == pytest.approx([3.5, -1.0])
    assert q_step(QFfl(q=3.0), updates, [math.nan] * 3) == [0.0, 0.0]
    # A power that overflows: only the largest loss is left, 6 F/(q L |Delta|^2 + F) with F = 1e6.
    assert q_step(QFfl(q=100.0), updates, [1.0, 1.0, 1e6]) == pytest.approx([6 / (100 * 37 * 10 / 1e6 + 1), 1 / (0.037 + 1)])


@pytest.mark.slow
def test_a_large_q_evens_losses_out():
    # F_1 = x^2/2 has its least value at 0, F_2 = 3 (x - 1)^2/2 at 1: they are equal where x^2 = 3 (x - 1)^2, at 0.63397.
    far = rounds(quadratics(**TWO, aggregation=QFfl(q=10.0), plan=WorkPlan(steps=1)), 600)[-1]
    middle = rounds(quadratics(**TWO, aggregation=QFfl(q=0.0), plan=WorkPlan(steps=1)), 600)[-1]
    assert middle == pytest.approx(0.75, abs=1e-4)
    assert far == pytest.approx(0.63397, abs=0.02)


@pytest.mark.parametrize("kind", ["hand", "vmap", "alone"])
def test_losses_are_those_of_the_received_model_over_all_samples(kind):
    q, rate, deliveries = 2.0, 0.1, [[0, 3], [1, 0, 2], [3, 1]]
    learner = make(network=network(kind), optimizer=Sgd(learning_rate=rate), aggregation=QFfl(q=q), epochs=2)
    module, streams, data = network(kind), Streams(0), make_data()
    parts, w = np.split(np.arange(100), np.cumsum(SIZES)[:-1]), flatten(network(kind)).detach()
    for round, clients in enumerate(deliveries, 1):
        learner.aggregate(deliver(round, clients, learner.version), False)
        above, below = torch.zeros_like(w), 0.0
        for k in clients:
            nn.utils.vector_to_parameters(w.clone(), module.parameters())
            with torch.no_grad():
                loss = float(nn.functional.cross_entropy(module(data.train_x[parts[k]]), data.train_y[parts[k]])) + 1e-10
            batches = draw_passes(parts[k], streams.generator("batches", round, k), batch_size=8, epochs=2)
            z = (w - trained(module, w, batches, rate=rate, shift=0.0, pull=0.0)) / rate
            above = above + loss**q * z
            below += q * loss ** (q - 1) * float(z.square().sum()) + loss**q / rate
        w = w - above / below
    np.testing.assert_allclose(model(learner), w.numpy(), atol=2e-5)


def test_running_losses_are_others_and_a_summary_says_which():
    exact, running = (make(optimizer=Sgd(learning_rate=0.5), aggregation=QFfl(q=2.0, exact_loss=e)) for e in (True, False))
    for learner in (exact, running):
        learner.aggregate(deliver(1, [0, 1, 2], 0), False)
    assert np.abs(model(exact) - model(running)).max() > 1e-4
    assert exact.notes[0].startswith("clients compute their loss at the received model over all samples")
    assert running.notes[0].startswith("clients report the running loss of training")
    assert make().notes == []
    content = make(optimizer=Sgd(learning_rate=0.5), aggregation=QFfl(exact_loss=False)).aggregate(deliver(1, [0, 1], 0), True)
    assert content.loss is None


@pytest.mark.parametrize("kind", ["hand", "vmap", "alone"])
def test_gradients_of_all_samples_at_the_received_model(kind, monkeypatch):
    monkeypatch.setattr(training, "_BLOCK", 7)
    learner = make(network=network(kind), optimizer=SGD, aggregation=Scaffold(renewal="gradient"))
    module, w = network(kind), flatten(network(kind)).detach()
    learner.aggregate(deliver(1, [2, 0, 3], 0), False)
    state = learner.state_dict()["corrections"]["own"]
    parts = np.split(np.arange(100), np.cumsum(SIZES)[:-1])
    for client, vector in zip(state["clients"], state["vectors"], strict=True):
        # A step of rate 1 along the gradient of a batch of all samples.
        moved = w - trained(module, w, [parts[client]], rate=1.0, shift=0.0, pull=0.0)
        np.testing.assert_allclose(vector, moved.numpy(), atol=1e-6)
    assert learner.notes[0].startswith("clients compute their gradient at the received model")


@pytest.mark.slow
def test_both_options_of_scaffold_find_the_optimum():
    for renewal in ("steps", "gradient"):
        learner = quadratics(**TWO, aggregation=Scaffold(renewal=renewal), plan=WorkPlan(steps=2))
        assert rounds(learner, 200)[-1] == pytest.approx(0.75, abs=1e-5)

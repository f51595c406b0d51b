from __future__ import annotations

import copy
import math
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from models.fl.aggregation import ByContribution
from models.fl.build import Protection, build_learner
from models.fl.data import Dataset
from models.fl.learner import FederatedLearner
from models.fl.losses import LOSS_CEILING, CrossEntropy
from models.fl.mechanisms import PerCoordinate
from models.fl.methods import Methods
from models.fl.networks import from_factory, mlp, svm
from models.fl.optimizers import Adam, Sgd
from models.fl.options import DataOptions, LearnerOptions, TrainingOptions
from models.fl.robust import TrimmedMean
from models.fl.server_optimizers import FedAdagrad, FedAdam, FedAvgM, FedYogi
from models.fl.task import Task
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


def plain_clients(module, deliveries):
    """Clients one after another, each with a torch Adam of its own that lives from one participation to the next."""
    streams, data = Streams(0), make_data()
    parts = np.split(np.arange(100), np.cumsum(SIZES)[:-1])
    copies = {k: copy.deepcopy(module) for k in range(4)}
    adams = {k: torch.optim.Adam(copies[k].parameters(), lr=0.02) for k in range(4)}
    row = flatten(module)
    for round, clients in enumerate(deliveries, 1):
        total, mean = sum(SIZES[k] for k in clients), torch.zeros_like(row)
        for k in clients:
            nn.utils.vector_to_parameters(row.clone(), copies[k].parameters())
            batches = draw_passes(parts[k], streams.generator("batches", round, k), batch_size=8, epochs=1)
            for batch in batches:
                index = torch.from_numpy(batch[batch >= 0])
                adams[k].zero_grad()
                nn.functional.cross_entropy(copies[k](data.train_x[index]), data.train_y[index]).backward()
                adams[k].step()
            mean += SIZES[k] / total * flatten(copies[k])
        row = mean
    return row.detach().numpy()


def test_every_clients_optimizer_goes_on_where_it_ended():
    deliveries = [[0, 1], [1, 2], [3, 1], [0, 3], [1, 0, 2]]
    expected = plain_clients(mlp((1, 4, 4), 5, seed=1, hidden=[8]), deliveries)
    kept, fresh = make(optimizer_state="kept"), make()
    for round, clients in enumerate(deliveries, 1):
        for learner in (kept, fresh):
            learner.aggregate(deliver(round, clients, learner.version), False)
    np.testing.assert_allclose(model(kept), expected, atol=2e-5)
    assert np.abs(model(fresh) - expected).max() > 0.01
    # Both moments and the number of steps: 10, 30, 25, 35 samples in batches of 8 are 2, 4, 4, 5 steps.
    memory = kept.state_dict()["memory"]
    assert dict(zip(memory["clients"], memory["steps"], strict=True)) == {0: 3 * 2, 1: 4 * 4, 2: 2 * 4, 3: 2 * 5}
    assert {moments.shape for moments in memory["moments"]} == {(2, kept.release.numbers)}


def test_kept_optimizers_are_the_same_client_by_client(monkeypatch):
    learners = [make(optimizer_state="kept"), make(optimizer_state="kept")]
    monkeypatch.setattr(learners[1]._trainer, "_chunk", 1)
    for round, clients in enumerate([[0, 1], [1, 2, 3], [0, 3, 2]], 1):
        for learner in learners:
            learner.aggregate(deliver(round, clients, learner.version), False)
    np.testing.assert_allclose(model(learners[0]), model(learners[1]), atol=1e-6)
    for one, other in zip(*(learner.state_dict()["memory"]["moments"] for learner in learners), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_client_that_is_twice_in_one_aggregation_goes_on_from_its_first_training():
    one_by_one, buffered = make(optimizer_state="kept"), make(optimizer_state="kept", buffer=2)
    # Both start from the first model; only the optimizer has gone on in between.
    updates = [one_by_one.aggregate(deliver(round, [1], 0), True).updates[0] for round in (1, 2)]
    start = model(buffered)
    for round in (1, 2):
        buffered.aggregate(deliver(round, [1], 0), False)
    np.testing.assert_allclose(model(buffered) - start, np.mean(updates, 0), atol=1e-6)
    assert buffered.state_dict()["memory"]["steps"] == [8]


def test_an_update_that_diverged_leaves_its_clients_optimizer_as_it_was():
    learner = make(optimizer_state="kept")
    learner.aggregate(deliver(1, [0, 1], 0), False)
    before = learner.state_dict()["memory"]
    wild = make(optimizer=Adam(learning_rate=1e38), optimizer_state="kept")
    wild.load_state_dict(learner.state_dict())
    wild.aggregate(deliver(2, [1], wild.version), False)
    after = wild.state_dict()["memory"]
    assert wild.refused_updates == 1
    assert after["steps"] == before["steps"] == [2, 4]
    np.testing.assert_array_equal(after["moments"], before["moments"])


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
            lambda s, c: nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, c)), (1, 4, 4), 5, seed=1
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


def batchnorm_network():
    return from_factory(
        lambda shape, classes: nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.BatchNorm1d(6), nn.Linear(6, classes)),
        (1, 4, 4),
        5,
        seed=1,
    )


# Everything that carries state from round to round.
STATEFUL = {
    "plain": dict,
    "batchnorm": lambda: {"network": batchnorm_network(), "unprotected": "batch-norm"},
    "batchnorm-local": lambda: {"network": batchnorm_network(), "batch_statistics": "local"},
    "optimizer-kept": lambda: {"optimizer_state": "kept"},
    "both-kept": lambda: {"network": batchnorm_network(), "batch_statistics": "local", "optimizer_state": "kept", "buffer": 3},
    "fedavgm": lambda: {"server_optimizer": FedAvgM()},
    "fedadam": lambda: {"server_optimizer": FedAdam()},
    "fedadagrad": lambda: {"server_optimizer": FedAdagrad()},
    "fedyogi": lambda: {"server_optimizer": FedYogi(), "aggregation": TrimmedMean(share=0.3)},
    "buffer": lambda: {"buffer": 3},
    "by-seconds": lambda: {"evaluate_every_s": 2.5},
    "contribution": lambda: {"aggregation": ByContribution(), "contribution_samples": 6},
}


@pytest.mark.parametrize("case", STATEFUL)
def test_state_taken_out_in_mid_run_continues_exactly(case):
    def play(learner, rounds):
        out = []
        for round in rounds:
            learner.aggregate(deliver(round, [round % 4, (round + 2) % 4], learner.version, epsilon=50.0), False)
            out.append(learner.evaluate(round, float(round), False))
            out += [*learner.opinions("own").tolist(), *learner.contribution().tolist()]
        return out

    mechanism = PerCoordinate(sensitivity=0.05)
    whole = make(mechanism, **STATEFUL[case]())
    play(whole, range(1, 6))
    state = whole.state_dict()
    kept = copy.deepcopy(state)
    tail = play(whole, range(6, 10))
    np.testing.assert_equal(state, kept)
    fresh = make(mechanism, **STATEFUL[case]())
    fresh.load_state_dict(state)
    state["models"][:] = 0
    for value in [
        *state["server_optimizer"].values(),
        *state["memory"]["moments"],
        *state.get("contributions", {}).get("models", []),
    ]:
        value[:] = 0
    assert play(fresh, range(6, 10)) == tail
    assert model(fresh).tobytes() == model(whole).tobytes()
    assert (fresh.version, fresh.trained_updates) == (whole.version, whole.trained_updates)
    assert whole.trained_updates == (16 if "buffer" in STATEFUL[case]() else 18)


def test_state_of_another_network_is_refused():
    state = make().state_dict()
    with pytest.raises(ValueError, match=r"^models = \(1, 181\): this network has 93 numbers"):
        make(network=mlp((1, 4, 4), 5, seed=1, hidden=[4])).load_state_dict({**state})


def norm_first():
    return from_factory(
        lambda shape, classes: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16), nn.Linear(16, classes)), (1, 4, 4), 5, seed=1
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


def test_other_versions_need_to_be_kept():
    learner = make(versions_kept=1)
    learner.aggregate(deliver(1, [0], 0), False)
    with pytest.raises(ValueError, match=r"version 0, but only \[1\] are kept"):
        learner.aggregate(deliver(2, [1], 0), False)
    longer = make(versions_kept=2)
    longer.aggregate(deliver(1, [0], 0), False)
    before = model(longer)
    updates = longer.aggregate(deliver(2, [1], 0, rounds=[1]), True).updates
    # Trained from version 0, added to version 1.
    np.testing.assert_allclose(updates, make().aggregate(deliver(1, [1], 0), True).updates, atol=1e-6)
    np.testing.assert_allclose(model(longer) - before, updates[0], atol=1e-6)
    assert longer.state_dict()["versions"] == [1, 2]


def test_retained_versions_stay_and_no_others():
    learner = make()
    starts = {0: model(learner)}
    # What an asynchronous engine does: clients start from the newest version, and after each aggregation it tells what is in use.
    in_flight = dict.fromkeys(range(4), 0)
    for round, delivered in enumerate(([0, 1], [0, 2], [], [1], [3], [2, 0]), start=1):
        for client, version in in_flight.items():
            in_flight[client] = learner.version if version < 0 else version
        versions = np.array([in_flight[client] for client in delivered], np.int64)
        learner.aggregate(deliver(round, delivered, versions, rounds=versions + 1), False)
        starts[learner.version] = model(learner)
        in_flight |= dict.fromkeys(delivered, -1)
        used = [version for version in in_flight.values() if version >= 0]
        learner.retain(used)
        state = learner.state_dict()
        assert set(state["versions"]) == {learner.version, max(0, learner.version - 1), *used}
        for version, held in zip(state["versions"], state["models"], strict=True):
            assert np.array_equal(held, starts[version])
    with pytest.raises(ValueError, match="version 0, but only"):
        learner.retain([0])


def test_one_call_trains_updates_of_several_versions():
    learner = make(versions_kept=3)
    learner.aggregate(deliver(1, [0], 0), False)
    learner.aggregate(deliver(2, [1], 1), False)
    both = learner.aggregate(deliver(3, [2, 3], np.array([2, 0]), rounds=[3, 1]), True).updates
    np.testing.assert_allclose(both[1], make().aggregate(deliver(1, [3], 0), True).updates[0], atol=1e-6)
    again = make()
    again.aggregate(deliver(1, [0], 0), False)
    again.aggregate(deliver(2, [1], 1), False)
    np.testing.assert_allclose(both[0], again.aggregate(deliver(3, [2], 2), True).updates[0], atol=1e-6)


def test_evaluation_is_due_first_last_and_every_s():
    learner = make(evaluate_every_s=2.5)
    ends = [0.5, 1.5, 2.5, 2.75, 8.75, 9.0, 9.25, 11.75, 12.0]
    due = [end for round, end in enumerate(ends, start=1) if learner.evaluate(round, end, round == 9) is not None]
    # The first; 2.5 on the dot; for 5 and 7.5 at once; for 10; the last.
    assert due == [0.5, 2.5, 8.75, 11.75, 12.0]


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


@pytest.mark.parametrize("epsilon", [1e-3, 1e-30, 1e-44, 0.0])
@pytest.mark.parametrize("wild", [False, True])
def test_blown_up_models_still_give_numbers(epsilon, wild):
    network = from_factory(lambda shape, classes: Wild(), (1, 4, 4), 5, seed=0) if wild else None
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
    learner = make(network=from_factory(lambda shape, classes: Wild(), (1, 4, 4), 5, seed=0))
    state = learner.state_dict()
    # The ninth power of 1e10 is infinite in float32: argmax would still name a class.
    state["models"][:] = 1e10
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
        ({"contribution_samples": 5}, "contribution_samples = 5: there is no validation part"),
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
        ({"network": {"kind": lambda shape, classes: 1 / 0}}, "network.kind = <function"),
        ({"network": {"kind": lambda shape, classes: "mlp"}}, "network.kind = <function"),
        ({"mechanism": {"mode": "l1"}}, "mechanism.sensitivity: missing"),
        ({"mechanism": {"mode": "none", "sensitivity": 1.0}}, "mechanism.sensitivity = 1.0: unknown key"),
        ({"device": "tpu"}, "device = 'tpu': must be auto, cpu or cuda"),
        ({"threads": 0}, "threads = 0: must be >= 1"),
        ({"batch_size": 0}, "batch_size = 0: must be >= 1"),
        ({"network": {"kind": lambda shape, classes: nn.Flatten()}}, "network: returns scores of shape (2, 64)"),
    ],
)
def test_bad_tables_are_refused(changes, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is compared below)
        Config().build(**changes)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "network",
    [
        {"kind": "linear"},
        {"kind": "svm"},
        {"kind": "cnn"},
        {"kind": "cnn8", "channels": [8] * 8},
        {"kind": lambda shape, classes: nn.Sequential(nn.Flatten(), nn.Linear(64, classes))},
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

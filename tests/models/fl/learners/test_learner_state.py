"""What a learner and its clients keep: optimizers, versions of the model, and a state in mid-run."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from models.fl.aggregation.robust import TrimmedMean
from models.fl.aggregation.rules import ByContribution
from models.fl.aggregation.server_optimizers import FedAdagrad, FedAdam, FedAvgM, FedYogi
from models.fl.networks.kinds import from_factory, mlp
from models.fl.privacy.mechanisms import PerCoordinate
from models.fl.training.optimizers import Adam
from netsim.core.streams import Streams
from tests.helpers.fl_reference import draw_passes, flatten
from tests.helpers.learners import SIZES, deliver, make, make_data, model

torch.set_num_threads(1)


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


def batchnorm_network():
    return from_factory(
        lambda inputs, classes: nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.BatchNorm1d(6), nn.Linear(6, classes)),
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


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("case", STATEFUL)
def test_state_taken_out_in_mid_run_continues_exactly(case):
    def play(learner, rounds):
        out = []
        for round in rounds:
            learner.aggregate(deliver(round, [round % 4, (round + 2) % 4], learner.version, epsilon=50.0), False)
            out.append(learner.evaluate(round, float(round), False))
            out += [*learner.tests.opinions("own").tolist(), *learner.contribution().tolist()]
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
    state["models"] = np.full_like(np.stack(state["models"]), 0)
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

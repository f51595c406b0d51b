"""Models of peers on the clock: against federated averaging, against the weights' matrix, resumed in the middle, refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from models.fl.learners.peer_learner import PeerLearner
from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.wiring.learning import client_state
from scenarios.wiring.simulation import build
from tests.helpers.mixing import second_modulus
from tests.helpers.peer_training import COUNT, EXPONENTIAL, LEARNER, check_resumed, learning, models, protocol, ready

COMPLETE = {"topology": {"kind": "complete"}, "delay": EXPONENTIAL | {"mean_excess_s": 0.3}}


SERVER: dict[str, Any] = {
    "name": "server",
    "rounds": 4,
    "clients": {"count": COUNT},
    "server": {"per_round": COUNT},
    "policy": {"kind": "all"},
    "learner": LEARNER | {"aggregation": {"kind": "equal"}},
}


def test_a_complete_graph_with_equal_weights_is_federated_averaging_step_for_step() -> None:
    simulation, records = ready(learning(peers=COMPLETE))
    averaged, rows = ready(SERVER)
    for round in range(1, 5):
        simulation.run(until_round=round)
        averaged.run(until_round=round)
        expected = averaged.server.learner.model.numpy()
        np.testing.assert_allclose(models(simulation), np.tile(expected, (COUNT, 1)), atol=2e-6)
        assert records.rounds[-1].accuracy == rows.rounds[-1].accuracy
        assert records.rounds[-1].loss == pytest.approx(rows.rounds[-1].loss, abs=1e-5)
        assert records.rounds[-1].consensus_distance == pytest.approx(0.0, abs=1e-10)
        assert records.rounds[-1].worst_peer_accuracy == records.rounds[-1].best_peer_accuracy


def test_combining_while_computing_adds_the_own_step_to_the_mean() -> None:
    # From one model for all, the mean of the peers' models after a round is that of federated averaging.
    simulation, _ = ready(learning(peers=COMPLETE, server=protocol(order="combine-while-computing")))
    averaged, _ = ready(SERVER)
    simulation.run(until_round=1)
    averaged.run(until_round=1)
    np.testing.assert_allclose(models(simulation).mean(0), averaged.server.learner.model.numpy(), atol=1e-6)
    assert np.abs(models(simulation) - models(simulation).mean(0)).max() > 1e-4


def test_models_of_a_ring_are_the_recursion_of_its_weights() -> None:
    simulation, records = ready(learning())
    weights = simulation.server.peers.mixing.matrix()
    other = build(parse(learning())).trained
    assert other is not None
    alone = PeerLearner(learner=other, tested=np.arange(1))
    mixed = [alone.first()] * COUNT
    for round in range(1, 5):
        trained = [alone.train(peer, round, mixed[peer], 0) for peer in range(COUNT)]
        alone.settle(np.array(trained), [])
        rows = alone.models().numpy().astype(np.float64)
        mixed = [alone.combine(trained, row.tolist()) for row in weights]
        alone.settle(np.array(mixed), [])
        np.testing.assert_allclose(alone.models().numpy(), weights @ rows, atol=1e-6)
    simulation.run()
    # At the close of the last round no peer is ahead.
    np.testing.assert_allclose(models(simulation), alone.models().numpy(), atol=2e-6)
    row, spread = records.rounds[-1], models(simulation)
    assert row.consensus_distance == pytest.approx(np.square(spread - spread.mean(0)).sum(1).mean(), rel=1e-4)
    assert row.worst_peer_accuracy < row.peer_accuracy < row.best_peer_accuracy


def test_disagreement_shrinks_by_the_second_modulus() -> None:
    simulation, _ = ready(learning())
    learner, mixing = simulation.server.learner, simulation.server.peers.mixing
    # The slowest mode of a ring: it shrinks by the second modulus in every round, exactly.
    start = np.cos(2 * np.pi * np.arange(COUNT) / COUNT)
    present = list(range(1, COUNT + 1))
    learner._keep(present, torch.from_numpy(start).float()[:, None].repeat(1, 4))
    learner._newest = COUNT
    for _ in range(20):
        present = [learner.combine(present, row.tolist()) for row in mixing.matrix()]
    learner.settle(np.array(present), [])
    after = learner.models().numpy()[:, 0]
    assert after == pytest.approx(start * second_modulus(mixing) ** 20, abs=1e-6)


def test_models_that_nothing_reads_wait_and_peers_train_together() -> None:
    simulation, _ = ready(learning(rounds=8, learner=LEARNER | {"evaluate_every_rounds": 7}))
    learner = simulation.server.learner
    together: list[int] = []
    train = learner._learner.train
    learner._learner.train = lambda updates: together.append(len(updates)) or train(updates)
    simulation.run(until_round=6)
    # The evaluation of round 1 reads the models of peers that are ahead, too; from then on, nothing is read.
    before = sum(together)
    assert COUNT <= before <= 2 * COUNT
    assert len(learner._pending) > 4 * COUNT
    simulation.run(until_round=7)
    # In the middle all peers train together, however far apart in time they do so.
    assert together.count(COUNT) >= 4
    assert sum(together) == int(simulation.server.peers.round.sum()) - COUNT


@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("order", ["train-first", "combine-while-computing"])
def test_a_run_resumed_in_the_middle_ends_with_the_same_models(order: str, every: int) -> None:
    lossy = {"topology": {"kind": "ring"}, "channel": {"kind": "bernoulli", "success": 0.8}, "delay": EXPONENTIAL}
    learner = LEARNER | {"evaluate_every_rounds": every}
    tables = learning(rounds=6, peers=lossy, server=protocol(order=order, timeout_s=0.5), learner=learner)
    whole, _, _ = check_resumed(tables)
    # Only what is needed is kept: at most the present models, those trained, and those of the messages that are kept.
    assert len(whole.server.learner._ids) <= 5 * COUNT


def test_each_training_is_a_release_of_its_own_budget() -> None:
    private = {"sensitivity": 0.05, "schedule": {"kind": "geometric", "epsilon_total": 40.0, "eta": 0.3}, "guarantee": "l1"}
    simulation, records = ready(learning(privacy=private, peers=COMPLETE))
    averaged, rows = ready(SERVER | {"privacy": private})
    for round in range(1, 5):
        # The same clipping and the same noise at (round, peer) as an update to a server has.
        simulation.run(until_round=round)
        averaged.run(until_round=round)
        expected = averaged.server.learner.model.numpy()
        np.testing.assert_allclose(models(simulation), np.tile(expected, (COUNT, 1)), atol=2e-6)
    # At the end no peer is ahead.
    assert records.rounds[-1].max_leak == rows.rounds[-1].max_leak > 20.0
    plain, _ = ready(learning(peers=COMPLETE))
    plain.run()
    assert np.abs(models(plain) - models(simulation)).max() > 1e-3


def test_only_some_peers_are_tested() -> None:
    simulation, records = ready(learning(server=protocol() | {"tested_peers": 1}, rounds=2))
    simulation.run()
    row = records.rounds[-1]
    assert row.worst_peer_accuracy == row.peer_accuracy == row.best_peer_accuracy


ENDS = {"sensitivity": 0.05, "schedule": {"kind": "explicit", "epsilons": [2.0, 1.0]}}


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"learner": LEARNER | {"aggregation": {"kind": "equal"}}}, "learner.aggregation.kind.*server.mixing"),
        ({"learner": LEARNER | {"server_optimizer": {"kind": "fedavgm"}}}, "learner.server_optimizer.kind.*no server"),
        ({"learner": LEARNER | {"keep": "best"}}, "learner.keep.*no server's model"),
        ({"learner": LEARNER | {"client_losses": True}}, "learner.client_losses.*leave it out"),
        ({"privacy": ENDS}, r"privacy.schedule.kind.*explicit.*never ends"),
        ({"server": protocol() | {"tested_peers": 7}}, "server.tested_peers = 7.*at most the 6 clients"),
    ],
)
def test_keys_that_need_a_server_are_refused(tables: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        build(parse(learning(**tables)))


def test_more_models_than_the_memory_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    limited = LEARNER | {"client_state_bytes": 5_000}
    with pytest.raises(UserError, match=r"learner\.client_state_bytes = 5000.*the 6 models of peers take 11,040 bytes"):
        build(parse(learning(learner=limited)), learner=False)
    monkeypatch.setattr(client_state, "memory_bytes", lambda: 30_000)
    with pytest.raises(UserError, match=r"learner\.network\.kind.*6 models of peers.*make it smaller"):
        build(parse(learning()), learner=False)

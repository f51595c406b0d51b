"""Whole apps: FedAvg, the old API, secure aggregation, differential privacy by mods, and a plain loop beside them."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import ClientApp as OldClientApp
from flwr.client import NumPyClient
from flwr.client.mod import LocalDpMod, secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg as OldFedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

import netsim
from scenarios.flower.app import app_folder
from tests.helpers.flower import server, weights_app, world

DIGITS: dict[str, Any] = {
    "name": "digits",
    "flower": {"app": "flower-digits", "epochs_key": "local-epochs", "run_config": {"num-server-rounds": 3, "per-round": 4}},
    "clients": {"count": 6},
    "compute": {"samples_per_s": 50.0, "noise": {"kind": "log-normal", "sigma": 0.3}},
    "downlink": {"bandwidth_bytes_per_s": 10_000.0},
    "uplink": {"bandwidth_bytes_per_s": 5_000.0},
}


def test_the_app_of_the_library_learns_and_leaves_the_process_as_it_was() -> None:
    folder = app_folder("flower-digits")
    files = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist(), time.time, time.sleep
    first, second = netsim.run(DIGITS), netsim.run(DIGITS)
    assert (random.getstate(), np.random.get_state()[1].tolist(), time.time, time.sleep) == before
    pd.testing.assert_frame_equal(first.rounds, second.rounds)
    pd.testing.assert_frame_equal(first.clients, second.clients)
    assert first.summary["ended"] == "application"
    assert first.rounds["round"].tolist() == [1, 2, 3]
    assert first.rounds["delivered"].tolist() == [4, 4, 4]
    assert first.rounds["accuracy"].iloc[-1] > 0.6
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == files


def test_an_app_in_a_folder_is_given_in_place_of_the_scenarios() -> None:
    given = netsim.run(DIGITS | {"flower": DIGITS["flower"] | {"app": "nowhere"}}, app="flower-digits")
    pd.testing.assert_frame_equal(given.clients, netsim.run(DIGITS).clients)


def test_buffered_strategy_by_push_and_pull() -> None:
    config = {"strategy": "fedbuff", "num-server-rounds": 4, "per-round": 3, "buffer": 2}
    done = netsim.run(DIGITS | {"flower": DIGITS["flower"] | {"run_config": config}})
    rows, ends = done.clients, done.clients["outcome_s"].to_numpy()
    assert done.summary["ended"] == "application"
    assert rows["selected_s"].tolist()[:3] == [0.0] * 3
    # Three clients are at work at all times: each further one begins within 0.1 s, the app's pause, after a reply.
    delivered = np.sort(ends[rows["outcome"] == "delivered"])
    later = np.sort(rows["selected_s"].to_numpy())[3:]
    assert len(later) > 3
    assert all(0.0 <= begin - end <= 0.1 + 1e-9 for begin, end in zip(later, delivered, strict=False))
    # A model comes with every second reply.
    closed = done.rounds["end_s"].to_numpy()
    assert all(0.0 <= at - end <= 0.1 + 1e-9 for at, end in zip(closed, delivered[1::2], strict=False))
    assert done.rounds["round"].tolist() == [1, 2, 3, 4]
    assert done.rounds["accuracy"].is_monotonic_increasing


def test_another_seed_is_another_run_of_the_same_app() -> None:
    assert netsim.run(DIGITS, seed=2).clients["outcome_s"].tolist() != netsim.run(DIGITS).clients["outcome_s"].tolist()


def test_the_models_are_those_of_a_plain_loop() -> None:
    models = []

    def main(grid: Any, context: Any) -> None:
        strategy = FedAvg(fraction_evaluate=1.0)
        result = strategy.start(grid=grid, initial_arrays=ArrayRecord([np.zeros(3)]), num_rounds=2)
        models.append(result.arrays.to_numpy_ndarrays()[0])

    done = netsim.run(world() | {"flower": {"app": "x"}}, app=(server(main), weights_app()))
    from scenarios.flower.randomness import preserve_states, seed_all

    plain, calls = np.zeros(3), dict.fromkeys(range(3), 0)
    with preserve_states():
        for _ in range(2):
            sent, total = plain, np.zeros(3)
            for node in range(3):
                calls[node] += 1
                seed_all(1, node, calls[node])
                total += (node + 1) * (sent + node + 1 + np.random.normal(size=3) * 1e-3)
                calls[node] += 1  # the evaluation of the round
            plain = total / 6
    np.testing.assert_allclose(models[0], plain, rtol=1e-12)
    assert done.rounds["accuracy"].tolist() == pytest.approx([14 / 6, 28 / 6], abs=0.01)
    assert done.rounds["training_loss"].tolist() == pytest.approx([(0 * 10 + 1 * 20 + 2 * 30) / 60] * 2)
    assert done.clients["kind"].tolist() == (["train"] * 3 + ["evaluate"] * 3) * 2


class Counting(NumPyClient):
    """A client of the old API."""

    def __init__(self, node: int) -> None:
        self.node = node

    def fit(self, parameters: Any, config: Any) -> Any:
        return [parameters[0] + self.node], 10, {"train_loss": 1.0}

    def evaluate(self, parameters: Any, config: Any) -> Any:
        return float(parameters[0].mean()), 10 * (1 + self.node), {"accuracy": 0.5 + 0.1 * self.node, "sure": True}

    def get_parameters(self, config: Any) -> Any:
        return [np.zeros(3)]


def old_client(context: Context) -> Any:
    return Counting(int(context.node_config["partition-id"])).to_client()


def test_the_old_api_sends_the_instructions_of_a_round_together() -> None:
    def components(context: Context) -> ServerAppComponents:
        strategy = OldFedAvg(initial_parameters=ndarrays_to_parameters([np.zeros(3)]), min_available_clients=3)
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=2))

    apps = ServerApp(server_fn=components), OldClientApp(client_fn=old_client)
    first = netsim.run(world() | {"flower": {"app": "x"}}, app=apps)
    assert first.clients["selected_s"].tolist() == [0.0] * 3 + [26.0] * 3 + [52.0] * 3 + [78.0] * 3
    assert first.rounds["loss"].tolist() == pytest.approx([1.0, 2.0])
    second = netsim.run(world() | {"flower": {"app": "x"}}, app=apps)
    pd.testing.assert_frame_equal(first.clients, second.clients)


def test_metrics_of_the_old_api_are_those_of_its_clients_and_initial_parameters_belong_to_the_first_round() -> None:
    def components(context: Context) -> ServerAppComponents:
        return ServerAppComponents(strategy=OldFedAvg(min_available_clients=3), config=ServerConfig(num_rounds=2))

    apps = ServerApp(server_fn=components), OldClientApp(client_fn=old_client)
    done = netsim.run(world() | {"flower": {"app": "x"}}, app=apps)
    assert done.clients["kind"].tolist() == ["get_parameters", *(["train"] * 3 + ["evaluate"] * 3) * 2]
    assert done.rounds["selected"].tolist() == [7, 6]
    # Weighted by 10, 20 and 30 samples.
    assert done.rounds["accuracy"].tolist() == pytest.approx([(0.5 * 1 + 0.6 * 2 + 0.7 * 3) / 6] * 2)
    assert done.rounds["training_loss"].tolist() == [1.0, 1.0]
    assert done.evaluations["metric"].tolist() == ["evaluate.accuracy", "evaluate.loss", "train.train_loss"] * 2


def test_a_round_of_the_old_api_has_what_its_evaluate_fn_returns() -> None:
    def evaluate(server_round: int, parameters: Any, config: Any) -> Any:
        return 5.0 - server_round, {"accuracy": server_round / 10, "note": "text"}

    strategy = OldFedAvg(min_available_clients=3, evaluate_fn=evaluate)
    apps = ServerApp(config=ServerConfig(num_rounds=2), strategy=strategy), OldClientApp(client_fn=old_client)
    done = netsim.run(world() | {"flower": {"app": "x"}}, app=apps)
    assert done.rounds[["accuracy", "loss"]].to_numpy().tolist() == [[0.1, 4.0], [0.2, 3.0]]


def test_samples_of_the_old_api_take_time() -> None:
    def components(context: Context) -> ServerAppComponents:
        strategy = OldFedAvg(initial_parameters=ndarrays_to_parameters([np.zeros(3)]), min_available_clients=3)
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=1))

    apps = ServerApp(server_fn=components), OldClientApp(client_fn=old_client)
    done = netsim.run(world(compute={"samples_per_s": 5.0}) | {"flower": {"app": "x", "evaluate_share": 0.5}}, app=apps)
    # 10 samples take 2 s, or 1 s where they are tested only.
    took = done.clients["compute_end_s"] - done.clients["compute_start_s"]
    assert took.tolist() == pytest.approx([2.0] * 3 + [1.0, 2.0, 3.0])
    assert done.clients["samples"].tolist() == [10] * 3 + [10, 20, 30]


def test_differential_privacy_by_a_mod_changes_the_updates() -> None:
    losses = []
    for mods in ([], [LocalDpMod(1.0, 1.0, 1.0, 1e-5)]):

        def components(context: Context) -> ServerAppComponents:
            strategy = OldFedAvg(initial_parameters=ndarrays_to_parameters([np.zeros(3)]), min_available_clients=3)
            return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=1))

        apps = ServerApp(server_fn=components), OldClientApp(client_fn=old_client, mods=mods)
        losses.append(netsim.run(world() | {"flower": {"app": "x"}}, app=apps).rounds["loss"].iloc[0])
    assert losses[0] == pytest.approx(1.0)
    assert abs(losses[1] - 1.0) > 0.1


def test_secure_aggregation_runs_its_stages_as_messages() -> None:
    sums = []

    def main(grid: Any, context: Context) -> None:
        strategy = OldFedAvg(
            initial_parameters=ndarrays_to_parameters([np.zeros(3)]),
            min_available_clients=3,
            min_fit_clients=3,
            fraction_evaluate=0.0,
        )
        legacy = LegacyContext(context=context, config=ServerConfig(num_rounds=1), strategy=strategy)
        workflow = SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2, max_weight=100)
        DefaultWorkflow(fit_workflow=workflow)(grid, legacy)
        sums.append(legacy.state)

    apps = server(main), OldClientApp(client_fn=old_client, mods=[secaggplus_mod])
    done = netsim.run(world() | {"flower": {"app": "x"}}, app=apps)
    # Setup, shares, masked vectors, unmasking: four messages to each of three nodes.
    assert done.summary["totals"]["delivered"] == 12
    assert done.clients["outcome"].unique().tolist() == ["delivered"]


def test_content_without_a_number_of_rounds_begins_a_round_at_each_push() -> None:
    def main(grid: Any, context: Any) -> None:
        for _ in range(2):
            grid.send_and_receive([Message(RecordDict({"c": ConfigRecord({})}), node, "train") for node in grid.get_node_ids()])

    from tests.helpers.flower import client

    done = netsim.run(world() | {"flower": {"app": "x"}}, app=(server(main), client()))
    assert done.rounds["selected"].tolist() == [3, 3]


def test_a_thousand_nodes_share_the_bytes_of_one_model() -> None:
    arrays = ArrayRecord([np.zeros(1000)])
    sent, received = arrays["0"].data, []
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        received.append(message.content["arrays"]["0"].data)
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": message.content["arrays"], "metrics": metrics}), reply_to=message)

    def main(grid: Any, context: Any) -> None:
        content = RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": 1})})
        replies = grid.send_and_receive([Message(content, node, "train") for node in grid.get_node_ids()])
        received.extend(reply.content["arrays"]["0"].data for reply in replies)

    delay = {"compute": {"delay": {"kind": "constant", "value_s": 1.0}}}
    netsim.run(world(1000, **delay) | {"flower": {"app": "x"}}, app=(server(main), app))
    assert len(received) == 2000
    assert all(data is sent for data in received)

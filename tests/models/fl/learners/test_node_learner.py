"""Models of edges on the clock: against federated averaging, by hand over two tiers, resumed in the middle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from models.fl.store.models import ModelId, edge_node
from models.fl.training.local_work import Update
from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build
from tests.helpers.edge_tiers import assert_alike, constant, learning, played, ready, resumed, tier
from tests.helpers.learners import make
from tests.helpers.peer_training import LEARNER

BUFFERED = {"server": {"kind": "buffered", "concurrency": 2}, "policy": {"kind": "random"}}
RANDOM = {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.7}
ZERO = {"downlink": constant(0.0), "uplink": constant(0.0)}


def model_of(built: Any) -> np.ndarray:
    """(d,) the root's present model."""
    return np.array(built.trained.model.numpy())


@pytest.mark.parametrize("tiers", [[tier()], [tier(name="region"), tier(count=3, above="region")]], ids=["two", "three"])
def test_one_round_of_each_edge_without_backhaul_is_federated_averaging_step_for_step(tiers: list[dict[str, Any]]) -> None:
    tables = learning(*tiers, edges=ZERO, clients={"count": 6})
    flat = {name: table for name, table in tables.items() if name != "edges"} | {"server": {"per_round": 6}}
    (tiered, records), (averaged, rows) = ready(tables), ready(flat)
    for round in range(1, 4):
        tiered.simulation.run(until_round=round)
        averaged.simulation.run(until_round=round)
        np.testing.assert_allclose(model_of(tiered), model_of(averaged), atol=2e-6)
        assert records.rounds[-1].end_s == pytest.approx(rows.rounds[-1].end_s)
        assert records.rounds[-1].accuracy == rows.rounds[-1].accuracy


def test_two_rounds_of_two_edges_are_the_averages_written_out() -> None:
    # Clients 0 to 2 belong to edge 0, 3 and 4 to edge 1; two rounds of each, then the mean by samples.
    tables = learning(tier(rounds=2), rounds=1, clients={"count": 5})
    tiered, _ = ready(tables)
    alone = build(parse({name: table for name, table in tables.items() if name != "edges"})).trained
    assert alone is not None
    sizes = np.array(alone.data_sizes, float)
    first = alone.model.numpy().astype(float)
    edges = []
    for members in ([0, 1, 2], [3, 4]):
        model = first.copy()
        for round in (1, 2):
            start = ModelId(-9, "version", round)
            alone.store.put(start, torch.from_numpy(model.astype(np.float32)))
            updates = [Update(client, round, start, np.inf) for client in members]
            trained = alone.train(updates).numpy()
            model = sizes[members] @ trained / sizes[members].sum()
            alone.store.release(start)
        edges.append(model)
    tiered.simulation.run()
    weights = np.array([sizes[:3].sum(), sizes[3:].sum()])
    np.testing.assert_allclose(model_of(tiered), weights @ np.stack(edges) / sizes.sum(), atol=2e-6)


@pytest.mark.parametrize("weight", ["arrived", "registered", "equal"])
def test_edges_count_by_the_weight_of_their_tier(weight: str) -> None:
    # Client 1 of edge 0 takes too long for the edge's deadline: only client 0 arrives there; both of edge 1 do.
    rule = {"kind": "synchronous", "deadline_s": 1.0}
    tiers = tier(weight=weight, server=rule, name="edge")
    built, _ = ready(learning(tiers, rounds=1, compute=constant([0.5, 5.0, 0.5, 0.5])))
    built.simulation.run()
    sizes = built.trained.data_sizes
    weights = {
        "arrived": [sizes[0], sizes[2] + sizes[3]],
        "registered": [sizes[0] + sizes[1], sizes[2] + sizes[3]],
        "equal": [1, 1],
    }[weight]
    models = np.stack([edge.models._versions.model.numpy() for edge in built.server.edges])
    np.testing.assert_allclose(model_of(built), np.array(weights) @ models / sum(weights), atol=1e-6)


def test_what_no_member_delivered_changes_no_model() -> None:
    # Nobody of edge 1 meets the deadline: the edge sends nothing, and the server's model is edge 0's.
    rule = {"kind": "synchronous", "deadline_s": 1.0}
    built, records = ready(learning(tier(server=rule), rounds=1, compute=constant([0.5, 0.5, 5.0, 5.0])))
    built.simulation.run()
    assert {row.edge: row.outcome for row in records.edges} == {"edge-0": "delivered", "edge-1": "aborted"}
    np.testing.assert_allclose(model_of(built), built.server.edges[0].models._versions.model.numpy(), atol=1e-6)


def test_an_asynchronous_server_adds_the_step_of_each_edge_by_its_staleness() -> None:
    # Terms take 2.7 s and 4.2 s. At 4.2 s edge 1 answers from version 0, while edge 0 has made version 1.
    staleness = {"staleness": {"kind": "polynomial", "exponent": 1.0}}
    built, _ = ready(
        learning(compute=constant([0.5, 0.5, 2.0, 2.0]), rounds=2, learner=LEARNER | staleness, payload={}, **BUFFERED)
    )
    first = model_of(built)
    built.simulation.run(until_round=1)
    one = model_of(built)
    np.testing.assert_allclose(one, built.server.edges[0].models._versions.model.numpy(), atol=1e-6)
    built.simulation.run(until_round=2)
    slow = built.server.edges[1].models._versions.model.numpy()
    np.testing.assert_allclose(model_of(built), one + 0.5 * (slow - first), atol=1e-6)


SAFA = {"kind": "safa", "per_round": 2, "lag_tolerance": 1}
COMPASS = {"kind": "compass", "min_steps": 1, "max_steps": 6}
STEPS = {"compute": {"delay": RANDOM, "seconds_per_sample": 0.002}, "learner": LEARNER | {"aggregation": {"kind": "fixed-share"}}}


def without_policy(tables: dict[str, Any]) -> dict[str, Any]:
    """The scenario for a server that selects nobody."""
    return {name: table for name, table in tables.items() if name != "policy"}


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("server", [SAFA | {"per_round": 3}, COMPASS], ids=["safa", "compass"])
@pytest.mark.parametrize("rounds", [1, 3])
def test_one_edge_without_backhaul_is_the_server_step_for_step(server: dict[str, Any], rounds: int) -> None:
    # Losses leave rounds without an arrival, whose model is of earlier ones.
    rough = {"uplink": constant(0.1) | {"channel": {"kind": "bernoulli", "success": 0.7}}}
    parts = STEPS if server["kind"] == "compass" else {"compute": STEPS["compute"]}
    flat = without_policy(learning(clients={"count": 6}, rounds=12, server=server, **rough, **parts))
    edges = {**flat.pop("edges"), **ZERO, "tiers": [tier(count=1, rounds=rounds, server=server)]}
    (tiered, records), (alone, rows) = (
        ready(flat | {"rounds": 12 // rounds, "edges": edges, "server": {"per_round": 1}, "policy": {"kind": "all"}}),
        ready(flat),
    )
    for round in range(rounds, 13, rounds):
        tiered.simulation.run(until_round=round // rounds)
        alone.simulation.run(until_round=round)
        np.testing.assert_allclose(model_of(tiered), model_of(alone), atol=5e-6)
    assert [row.end_s for row in records.edge_rounds] == [row.end_s for row in rows.rounds]
    columns = ("client", "round", "outcome", "outcome_s", "download_end_s", "steps")
    shown = [[tuple(getattr(row, name) for name in columns) for row in run.updates] for run in (records, rows)]
    assert shown[0] == shown[1]
    assert len(shown[0]) > 20


def test_a_model_from_above_moves_all_entries_of_a_cache() -> None:
    built, _ = ready(learning(tier(server={"kind": "safa"}), rounds=2))
    built.simulation.run(until_round=1)
    edges = [edge.models for edge in built.server.edges]
    own = [edge._versions.model.clone() for edge in edges]
    kept = [edge.cache.mean() for edge in edges]
    built.simulation.run(until_round=2)
    starts = model_of(built)
    assert np.abs(starts - own[0].numpy()).max() > 1e-4
    for edge, model, mean in zip(edges, own, kept, strict=True):
        # The mean was the edge's model, and all members have delivered: the cache is the mean of their models again.
        torch.testing.assert_close(mean, model, atol=1e-6, rtol=0.0)
        torch.testing.assert_close(edge.cache.mean(), edge._versions.model, atol=1e-6, rtol=0.0)


def test_a_server_with_a_cache_counts_edges_that_it_did_not_pick_in_the_next_round() -> None:
    # Terms of 2.7 s and 4.2 s: the first round picks edge 0 at 2.7 s. Edge 1's entry is the first model until 4.2 s.
    rule = {"kind": "safa", "per_round": 1}
    tables = without_policy(learning(compute=constant([0.5, 0.5, 2.0, 2.0]), rounds=2, server=rule))
    built, records = ready(tables)
    first, sizes = model_of(built), built.trained.data_sizes
    shares = np.array([sizes[0] + sizes[1], sizes[2] + sizes[3]]) / sizes.sum()
    built.simulation.run(until_round=1)
    fast, slow = (edge.models for edge in built.server.edges)
    own = fast._versions.model.numpy().copy()
    np.testing.assert_allclose(model_of(built), shares[0] * own + shares[1] * first, atol=1e-6)
    # The second round picks edge 1 first, since edge 0 was picked in the last.
    built.simulation.run(until_round=2)
    assert [row.end_s for row in records.rounds] == pytest.approx([2.7, 4.2])
    np.testing.assert_allclose(model_of(built), shares @ np.stack([own, slow._versions.model.numpy()]), atol=1e-6)


WORLDS: dict[str, dict[str, Any]] = {
    "safa below": learning(tier(rounds=2, server=SAFA), clients={"count": 7}),
    "safa above": without_policy(learning(tier(count=3, rounds=2), clients={"count": 7}, server=SAFA)),
    "safa": without_policy(learning(tier(count=3, rounds=2, server=SAFA, goes_on=True), clients={"count": 7}, server=SAFA)),
    "compass below": learning(tier(rounds=3, server=COMPASS), clients={"count": 7}, **STEPS),
    "synchronous": learning(tier(rounds=2)),
    "asynchronous": learning(tier(rounds=2, server={"kind": "buffered", "buffer": 2}), **BUFFERED),
    "three tiers": learning(tier(name="region", rounds=2), tier(count=4, above="region"), clients={"count": 8}, **BUFFERED),
    "losses of clients": learning(tier(rounds=2), learner=LEARNER | {"client_losses": True}, **BUFFERED),
}


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("name", WORLDS)
def test_resumed_in_the_middle_models_are_the_same_bit_for_bit(name: str) -> None:
    link = {"delay": RANDOM, "channel": {"kind": "bernoulli", "success": 0.9}}
    edges = {**WORLDS[name]["edges"], "downlink": link, "uplink": link}
    compute = WORLDS[name]["compute"] | {"delay": RANDOM}
    tables = WORLDS[name] | {"rounds": 6, "compute": compute, "uplink": link, "edges": edges}
    whole, expected = played(tables)
    built, records = resumed(tables, 3)
    np.testing.assert_array_equal(model_of(built), model_of(whole))
    assert_alike(records, expected)


def test_models_of_attempts_that_are_lost_are_let_go() -> None:
    lossy = constant(1.0) | {"channel": {"kind": "bernoulli", "success": 0.5}}
    built, _ = ready(learning(tier(count=4), edges={"uplink": lossy, "downlink": lossy}, rounds=20, server={"per_round": 4}))
    built.simulation.run()
    # Two versions of each of five nodes, and those that attempts under way hold.
    assert len(built.trained.store) <= 3 * 5


def test_a_store_names_the_edge_whose_model_is_gone() -> None:
    with pytest.raises(ValueError, match=r"version 3 of edge 2 is no longer kept"):
        make().store[ModelId(edge_node(2), "version", 3)]

"""CHOCO-SGD on the clock: by hand, against D-PSGD, copies that agree, and compression with bytes that follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.peer_training import CONSTANT, COUNT, EXPONENTIAL, learning, models, protocol, ready, study, top, with_numbers

RING = {"topology": {"kind": "ring"}}


def choco(**keys: Any) -> dict[str, Any]:
    return {"kind": "peers", "protocol": {"kind": "choco", "gamma": 1.0} | keys}


def test_two_rounds_of_two_peers_by_hand() -> None:
    # Weights of a half. Peer 0 has (4, 1), peer 1 has (0, 0); training adds (0, 0) and (2, 0); the larger number is sent.
    # Round 1: y = (4, 1), (2, 0). Differences from the copies are (0, 0), (2, 0): v = (4, 1), (2, 0).
    # x_0 = (4, 1) + ((2, 0) - (4, 1)) / 2 = (3, .5); x_1 = (2, 0) + (2, 1) / 2 = (3, .5).
    # Round 2: y = (3, .5), (5, .5). Differences (-1, -.5), (3, .5) are sent as (-1, 0), (3, 0): v = (3, 1), (5, 0).
    # x_0 = (3, .5) + (2, -1) / 2 = (4, 0); x_1 = (5, .5) - (2, -1) / 2 = (4, 1).
    tables = study(rounds=2, clients={"count": 2}, peers={"topology": {"kind": "complete"}}, server=choco())
    simulation, found = with_numbers(tables, [[4, 1], [0, 0]], steps=[[0, 0], [2, 0]], compressed=top(1))
    simulation.run(until_round=1)
    assert found().tolist() == [[3.0, 0.5], [3.0, 0.5]]
    simulation.run()
    assert found().tolist() == [[4.0, 0.0], [4.0, 1.0]]


@pytest.mark.parametrize("order", ["train-first", "combine-while-computing"])
def test_without_compression_and_with_a_whole_step_it_is_d_psgd(order: str) -> None:
    tables = learning(server=choco(order=order))
    simulation, records = ready(tables)
    other, rows = ready(learning(server=protocol(order=order)))
    simulation.run()
    other.run()
    np.testing.assert_allclose(models(simulation), models(other), atol=5e-6)
    assert [row.end_s for row in records.rounds] == [row.end_s for row in rows.rounds]


@pytest.mark.parametrize("order", ["train-first", "combine-while-computing"])
def test_compressed_differences_reach_the_mean_and_keep_it(order: str) -> None:
    start = np.random.default_rng(1).normal(size=(6, 10))
    # All peers take a second, so that none is ahead at the close of a round.
    compute = {"delay": CONSTANT | {"value_s": 1.0}}
    tables = study(rounds=400, clients={"count": 6}, peers=RING, server=choco(gamma=0.3, order=order), compute=compute, output={})
    simulation, found = with_numbers(tables, start, compressed=top(2))
    for round in (1, 5, 20, 400):
        simulation.run(until_round=round)
        np.testing.assert_allclose(found().mean(0), start.mean(0), atol=1e-12)
    np.testing.assert_allclose(found(), np.tile(start.mean(0), (6, 1)), atol=1e-6)


@pytest.mark.parametrize("away", [False, True])
def test_all_copies_of_a_model_agree_though_messages_are_lost(away: bool) -> None:
    lossy = {"topology": {"kind": "torus"}, "channel": {"kind": "bernoulli", "success": 0.6}, "delay": EXPONENTIAL}
    tables = study(rounds=25, clients={"count": 9}, peers=lossy, server=choco(gamma=0.2, retry_s=0.2), output={})
    if away:
        tables["availability"] = {"kind": "markov", "mean_on_s": 10.0, "mean_off_s": 2.0}
    simulation, _ = with_numbers(tables, np.zeros((9, 4)), steps=np.random.default_rng(2).normal(size=(9, 4)), compressed=top(1))
    simulation.run()
    host = simulation.server.peers
    graph, transport, rows = host.graph, host.transport, host.models.vectors
    expected = host.mixing.matrix() - np.diag(host.mixing.own)
    around = expected @ np.array([rows[model] for model in host.protocol._public.tolist()])
    # Differences that are on their way, or wait for a later round, are in the sender's copy only.
    for message in (*transport.under_way(), *transport.paused.values()):
        around[graph.target[message.edge]] -= host.mixing.edge[message.edge] * rows[message.content[0]]
    for peer, kept in enumerate(host.protocol._barrier._arrived):
        for models_of_round in kept.values():
            for edge, model in models_of_round.items():
                around[peer] -= host.mixing.edge[edge] * rows[model]
    np.testing.assert_allclose([rows[model] for model in host.protocol._around.tolist()], around, atol=1e-9)


def test_bytes_follow_the_compression() -> None:
    # 65 x 6 + 7 x 10 parameters: 46 numbers of 32 bits and 9 bits of place each.
    payload = {"compression": {"kind": "top-k", "share": 0.1}}
    simulation, records = ready(learning(server=choco(gamma=0.3), payload=payload))
    simulation.run()
    assert sum(row.message_bytes for row in records.rounds) == simulation.server.counts()["messages"] * 236
    assert records.rounds[-1].accuracy > records.rounds[0].accuracy
    plain, rows = ready(learning(server=choco(gamma=0.3)))
    plain.run()
    assert records.rounds[-1].loss != rows.rounds[-1].loss


def test_whole_models_are_compressed_on_their_way() -> None:
    payload = {"compression": {"kind": "int8"}}
    for kind in ("d-psgd", "gossip-learning"):
        keys = {"period_s": 1.0} if kind == "gossip-learning" else {}
        server = {"kind": "peers", "protocol": {"kind": kind} | keys}
        simulation, records = ready(learning(server=server, payload=payload, rounds=3))
        plain, rows = ready(learning(server=server, rounds=3))
        simulation.run()
        plain.run()
        assert 1e-5 < np.abs(models(simulation) - models(plain)).max() < 0.05
        sizes = [sum(row.message_bytes for row in rounds) for rounds in (records.rounds, rows.rounds)]
        assert 3 * sizes[0] < sizes[1] < 4 * sizes[0]


GIVEN = np.eye(COUNT) / 2 + np.roll(np.eye(COUNT), 1, axis=1) / 2


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"server": choco(gamma=0.0)}, r"server\.protocol\.gamma = 0.0: must be > 0 and <= 1"),
        ({"server": {"kind": "peers", "protocol": {"kind": "choco"}}}, r"server\.protocol\.gamma.*required|missing"),
        ({"server": choco() | {"mixing": {"kind": "given", "weights": GIVEN.tolist()}}}, "choco.*needs the same weight in both"),
        ({"server": choco(), "peers": RING | {"channel": {"kind": "bernoulli", "success": 0.5}}}, "retry_s"),
        ({"payload": {"compression": {"kind": "top-k", "share": 0.1}}}, "compression.kind.*whole models.*choco"),
        ({"payload": {"down_compression": {"kind": "int8"}}}, r"payload\.down_compression"),
    ],
)
def test_scenarios_that_it_cannot_have_are_refused(tables: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        build(parse(learning(**tables)))


def test_a_declared_ratio_scales_the_bytes_where_nothing_is_trained() -> None:
    payload = {"up_bytes": 1000, "compression": {"kind": "declared", "ratio": 0.25}}
    simulation, _ = ready(study(payload=payload, server=choco()))
    simulation.run(until_round=2)
    transport = simulation.server.transport
    assert transport.sent_bytes == 250 * transport.sent

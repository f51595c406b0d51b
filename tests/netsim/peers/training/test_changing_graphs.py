"""MATCHA and the one-peer exponential graph on the clock: by hand, against recursions and overlays, resumed, refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from models.fl.learners.peer_learner import PeerLearner
from models.overlays.exponential import OnePeerExponential
from models.overlays.silos import Silos
from netsim.core.streams import Streams
from scenarios.networks import read_network
from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.peer_training import (
    CONSTANT,
    COUNT,
    EXPONENTIAL,
    by_round,
    check_resumed,
    learning,
    models,
    ready,
    simulated,
    study,
    weights_of,
)


def changing(kind: str, **keys: Any) -> dict[str, Any]:
    return {"kind": "peers", "protocol": {"kind": kind} | keys}


PATH = {"topology": {"kind": "grid", "rows": 1}, "speed_km_per_s": 1e300, "delay": CONSTANT | {"value_s": 0.5}}


def test_three_rounds_of_matcha_on_a_path_by_hand() -> None:
    # 0 - 1 - 2, trainings of 1, 2, 4 s, messages of 0.5 s. Matchings: link 1 - 2, link 0 - 1.
    # Round 1: link 0 - 1 is on; round 2: link 1 - 2; round 3: none.
    # Peer 0 has 1's model at 2.5 s, peer 1 0's before its training ends at 2 s; peer 2 ends at 4 s and waits for none.
    # Round 2: peer 0 waits for none, 3.5 s. Peer 1 trains to 4 s and waits for 2's model, 8.5 s. Round 3: trainings only.
    compute = {"delay": CONSTANT | {"value_s": [1.0, 2.0, 4.0]}}
    simulation, records = ready(
        study(rounds=3, clients={"count": 3}, peers=PATH, compute=compute, server=changing("matcha"))
    )
    simulation.server.peers.protocol._drawn = {1: [False, True], 2: [True, False], 3: [False, False]}.__getitem__
    simulation.run()
    assert by_round(records.updates, "compute_end_s", 3).tolist() == [[1.0, 2.0, 4.0], [3.5, 4.0, 8.0], [4.5, 10.5, 12.0]]
    assert [row.end_s for row in records.rounds] == [4.0, 8.5, 12.0]
    sent = [(row.number, row.source, row.target) for row in records.messages]
    assert sorted(sent) == [(1, 0, 1), (1, 1, 0), (2, 1, 2), (2, 2, 1)]
    # Both matchings have probability 1/2: rho(a) = max(1 - a + 3/4 a^2, 1 - 3 a + 15/4 a^2) is least at 2/3.
    assert weights_of(simulation, 1) == pytest.approx(np.array([[1 / 3, 2 / 3, 0], [2 / 3, 1 / 3, 0], [0, 0, 1]]), abs=1e-6)


def test_three_rounds_of_one_peer_by_hand() -> None:
    # Peers send to the next one, the one after, the next one. Peer 0 takes 10 s, messages 0.5 s.
    # Round 1: peer 1 awaits 0's model, 10.5 s. Round 2: peer 2 awaits 0's, at 20.5 s, and peer 3 that of 1, at 12 s.
    compute = {"delay": CONSTANT | {"value_s": [10.0, 1.0, 1.0, 1.0]}}
    peers = PATH | {"topology": {"kind": "exponential"}}
    tables = {"rounds": 3, "clients": {"count": 4}, "peers": peers, "compute": compute, "server": changing("one-peer")}
    _, records = simulated(**tables)
    ends = by_round(records.updates, "compute_end_s", 4)
    assert ends.tolist() == [[10.0, 1.0, 1.0, 1.0], [20.0, 11.5, 2.5, 2.5], [30.0, 12.5, 21.5, 13.0]]
    arcs = [{(row.source, row.target) for row in records.messages if row.number == round} for round in (1, 2, 3)]
    assert arcs == [{(0, 1), (1, 2), (2, 3), (3, 0)}, {(0, 2), (1, 3), (2, 0), (3, 1)}, {(0, 1), (1, 2), (2, 3), (3, 0)}]


@pytest.mark.parametrize("order", ["train-first", "combine-while-computing"])
@pytest.mark.parametrize("kind", ["matcha", "one-peer"])
def test_the_clock_agrees_with_the_max_plus_recursion_of_the_links_of_each_round(kind: str, order: str) -> None:
    peers = {"topology": {"kind": "complete"}, "delay": EXPONENTIAL | {"mean_excess_s": 0.4}, "speed_km_per_s": 1e300}
    count = 7
    _, records = simulated(rounds=20, clients={"count": count}, peers=peers, server=changing(kind, order=order))
    ends, starts = (by_round(records.updates, f"compute_{edge}_s", count)[:20] for edge in ("end", "start"))
    begun = np.zeros(count)
    for k in range(20):
        assert starts[k] == pytest.approx(begun, abs=1e-9)
        trained = begun + ends[k] - starts[k]
        sent, begun = trained if order == "train-first" else begun, trained.copy()
        for row in records.messages:
            if row.number == k + 1:
                begun[row.target] = max(begun[row.target], sent[row.source] + row.end_s - row.sent_s)
        assert records.rounds[k].end_s == pytest.approx(begun.max(), abs=1e-9)


def test_all_peers_use_the_matchings_that_the_addressed_numbers_draw() -> None:
    tables = {"rounds": 40, "clients": {"count": 6}, "peers": {"topology": {"kind": "complete"}}, "seed": 3}
    simulation, records = simulated(server=changing("matcha", budget=0.4), **tables)
    protocol, graph = simulation.server.peers.protocol, simulation.server.transport.graph  # type: ignore[attr-defined]
    chances = np.array(protocol._probabilities)
    assert chances.mean() == pytest.approx(0.4)
    draws = Streams(3)["peers.matching"]
    on = np.array([draws.uniforms(round, 6)[: len(chances)] < chances for round in range(1, 41)])
    edges = np.argwhere(on[:, protocol._matching])
    expected = {(round + 1, int(graph.source[e]), int(graph.target[e])) for round, e in edges.tolist()}
    assert {(row.number, row.source, row.target) for row in records.messages} == expected
    assert 0 < on.mean() < 1


@pytest.mark.parametrize("kind", ["matcha", "one-peer"])
def test_weights_of_every_round_are_doubly_stochastic(kind: str) -> None:
    simulation, _ = ready(study(clients={"count": 16}, peers={"topology": {"kind": "exponential"}}, server=changing(kind)))
    product = np.eye(16)
    for round in range(1, 9):
        matrix = weights_of(simulation, round)
        assert matrix.sum(0) == pytest.approx(np.ones(16), abs=1e-12)
        assert matrix.sum(1) == pytest.approx(np.ones(16), abs=1e-12)
        product = matrix @ product
        if kind == "one-peer" and round == 4:
            assert product == pytest.approx(np.full((16, 16), 1 / 16), abs=1e-15)
    if kind == "matcha":
        assert (matrix == matrix.T).all()


@pytest.mark.parametrize("kind", ["matcha", "one-peer"])
def test_models_are_the_recursion_of_the_weights_of_each_round(kind: str) -> None:
    tables = learning(peers={"topology": {"kind": "complete"}, "delay": EXPONENTIAL}, server=changing(kind))
    simulation, _ = ready(tables)
    other = build(parse(tables)).trained
    assert other is not None
    alone = PeerLearner(learner=other, tested=np.arange(1))
    mixed = [alone.first()] * COUNT
    for round in range(1, 5):
        trained = [alone.train(peer, round, mixed[peer], 0) for peer in range(COUNT)]
        alone.settle(np.array(trained), [])
        mean = alone.models().numpy().mean(0)
        mixed = [alone.combine(trained, row.tolist()) for row in weights_of(simulation, round)]
        alone.settle(np.array(mixed), [])
        # Combining keeps the mean of the models.
        np.testing.assert_allclose(alone.models().numpy().mean(0), mean, atol=1e-6)
    simulation.run()
    np.testing.assert_allclose(models(simulation), alone.models().numpy(), atol=2e-6)


@pytest.mark.parametrize("kind", ["matcha", "one-peer"])
def test_a_run_resumed_in_the_middle_ends_with_the_same_models(kind: str) -> None:
    lossy = {"topology": {"kind": "complete"}, "channel": {"kind": "bernoulli", "success": 0.8}, "delay": EXPONENTIAL}
    tables = learning(rounds=6, peers=lossy, server=changing(kind, timeout_s=0.5))
    check_resumed(tables)


def test_mean_seconds_a_round_of_one_peer_are_those_of_the_overlay() -> None:
    # Access of 1 Gbit/s decides; the overlay's latency is 0.0085 ms a km and 4 ms.
    underlay = read_network("gaia")
    silos = Silos(underlay, 1e6, 25.4, up_bits_per_s=1e9, down_bits_per_s=1e9, core_bits_per_s=1e15)
    tables: dict[str, Any] = {
        "clients": {"count": silos.count},
        "compute": {"delay": CONSTANT | {"value_s": 0.0254}},
        "payload": {"up_bytes": 125_000},
        "output": {},
    }
    links = {"delay": CONSTANT | {"value_s": 0.004}, "bandwidth_bytes_per_s": 1.25e8, "speed_km_per_s": 1e3 / 0.0085}
    peers = links | {"topology": {"kind": "overlay", "network": "gaia", "overlay": "exponential"}}
    _, records = simulated(rounds=80, peers=peers, server=changing("one-peer"), **tables)
    ends = [row.end_s for row in records.rounds]
    # The rounds repeat after a while; 40 is a multiple of the period of the strides.
    assert (ends[-1] - ends[-41]) / 40 == pytest.approx(OnePeerExponential(silos).cycle_ms() / 1e3, rel=1e-9)


LOSSY = {"topology": {"kind": "ring"}, "channel": {"kind": "bernoulli", "success": 0.5}}
IN_PIECES = {"topology": {"kind": "erdos-renyi", "probability": 0.0, "allow_disconnected": True}}


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"server": changing("matcha", budget=0.0)}, r"server\.protocol\.budget = 0.0: must be > 0 and <= 1"),
        ({"server": changing("matcha", budget=1.5)}, r"server\.protocol\.budget = 1.5: must be > 0 and <= 1"),
        ({"server": changing("matcha", matchings=2)}, "matchings.*is no key"),
        ({"server": changing("one-peer")}, r"server\.protocol\.kind.*one-peer.* between peers 3 and 0; .*exponential"),
        ({"server": changing("one-peer") | {"mixing": {"kind": "uniform"}}}, r"server\.mixing.*one-peer.*leave it out"),
        ({"server": changing("matcha"), "peers": LOSSY}, "give retry_s or timeout_s"),
        ({"server": changing("matcha"), "peers": IN_PIECES}, "matcha.*connected graph"),
    ],
)
def test_scenarios_that_they_cannot_have_are_refused(tables: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        build(parse(study(**tables)))


@pytest.mark.parametrize("kind", ["matcha", "one-peer"])
def test_a_peer_alone_trains(kind: str) -> None:
    tables = {"clients": {"count": 1}, "peers": {"topology": {"kind": "exponential"}}, "rounds": 3}
    simulation, records = simulated(server=changing(kind), **tables)
    assert len(records.rounds) == 3
    assert simulation.server.counts()["messages"] == 0

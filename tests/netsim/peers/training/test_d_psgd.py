"""D-PSGD on the clock: by hand, against the max-plus recursion, and what a peer does that waits in vain."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.mixing import second_modulus
from tests.helpers.peer_training import CONSTANT, EXPONENTIAL, by_round, protocol, simulated, study

PATH = {"topology": {"kind": "grid", "rows": 1}, "speed_km_per_s": 1e300}


def test_three_peers_with_one_slow_by_hand() -> None:
    # A path 0 - 1 - 2; training takes 1, 1, 10 s, a message 0.5 s. Train first, then combine:
    # 1 has 2's model of round 1 at 10.5 s and trains until 11.5; 0 has 1's model of round 1 at 1.5 s and trains until 2.5 s,
    # then waits for 1's of round 2, at 12.0 s, and trains until 13.0. 2 has 1's of round 1 long before, and trains 10 to 20 s.
    peers = PATH | {"delay": CONSTANT | {"value_s": 0.5}}
    compute = {"delay": CONSTANT | {"value_s": [1.0, 1.0, 10.0]}}
    _, records = simulated(rounds=3, clients={"count": 3}, peers=peers, compute=compute)
    ends = by_round(records.updates, "compute_end_s", 3)
    assert ends[:2].tolist() == [[1.0, 1.0, 10.0], [2.5, 11.5, 20.0]]
    assert ends[2].tolist() == [13.0, 21.5, 30.0]
    # Round r of the run closes once the last peer has combined: peer 1 at 10.5 s, then 20.5; peer 2 is done before.
    assert [row.end_s for row in records.rounds] == [10.5, 20.5, 30.5]
    assert records.rounds[0].rounds_ahead == 0


def test_combining_while_computing_takes_the_longer_of_the_two() -> None:
    peers = PATH | {"delay": CONSTANT | {"value_s": 0.5}}
    for seconds, round_s in ((0.2, 0.5), (2.0, 2.0)):
        compute = {"delay": CONSTANT | {"value_s": seconds}}
        server = protocol(order="combine-while-computing")
        _, records = simulated(rounds=3, clients={"count": 3}, peers=peers, compute=compute, server=server)
        assert [row.end_s for row in records.rounds] == pytest.approx([round_s, 2 * round_s, 3 * round_s])
    _, records = simulated(rounds=3, clients={"count": 3}, peers=peers, compute=compute)
    assert [row.end_s for row in records.rounds] == pytest.approx([2.5, 5.0, 7.5])


TOPOLOGIES = [{"kind": "ring"}, {"kind": "star"}, {"kind": "complete"}, {"kind": "torus"}]


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("order", ["train-first", "combine-while-computing"])
@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda one: one["kind"])
def test_the_clock_agrees_with_the_max_plus_recursion(topology: dict[str, Any], order: str) -> None:
    peers = {"topology": topology, "delay": EXPONENTIAL | {"mean_excess_s": 0.4}, "speed_km_per_s": 1e300}
    count = 9
    simulation, records = simulated(rounds=30, clients={"count": count}, peers=peers, server=protocol(order=order))
    ends, starts = (by_round(records.updates, f"compute_{edge}_s", count)[:30] for edge in ("end", "start"))
    taken = ends - starts
    graph: Any = simulation.server.transport.graph
    delay = {(row.number, row.source, row.target): row.end_s - row.sent_s for row in records.messages}
    ready = np.zeros(count)  # when each peer has combined the models of a round
    for k in range(30):
        if order == "train-first":
            sent = ready + taken[k]
            assert sent == pytest.approx(ends[k], abs=1e-9)
        else:
            sent = ready
            assert sent == pytest.approx(starts[k], abs=1e-9)
        ready = sent.copy() if order == "train-first" else sent + taken[k]
        for source, target in zip(graph.source.tolist(), graph.target.tolist(), strict=True):
            ready[target] = max(ready[target], sent[source] + delay[k + 1, source, target])
        assert records.rounds[k].end_s == pytest.approx(ready.max(), abs=1e-9)


def directed_ring(peers: int) -> dict[str, Any]:
    """A `[server]` table with D-PSGD in which each peer takes half of its own model and half of that of the one before."""
    weights = np.eye(peers) / 2 + np.roll(np.eye(peers), -1, axis=1) / 2
    return protocol() | {"mixing": {"kind": "given", "weights": weights.tolist()}}


def test_weights_of_one_direction_make_a_directed_ring() -> None:
    # Peer 1 of a ring of 4 takes 10 s, the others 1 s. It holds up peer 2 in round 2, then peer 3, then peer 0.
    compute = {"delay": CONSTANT | {"value_s": [1.0, 10.0, 1.0, 1.0]}}
    simulation, records = simulated(
        rounds=4, clients={"count": 4}, peers={"topology": {"kind": "ring"}}, compute=compute, server=directed_ring(4)
    )
    starts = by_round(records.updates, "compute_start_s", 4)
    assert starts.tolist() == [[0.0] * 4, [1.0, 10.0, 10.0, 1.0], [2.0, 20.0, 20.0, 11.0], [12.0, 30.0, 30.0, 21.0]]
    assert {(row.target - row.source) % 4 for row in records.messages} == {1}
    assert second_modulus(simulation.server.peers.mixing) == pytest.approx(math.cos(math.pi / 4))  # type: ignore[attr-defined]


MEANS = {
    ("ring", "exponential"): 2.270,
    ("torus", "exponential"): 2.727,
    ("complete", "exponential"): 3.397,
    ("directed ring", "exponential"): 1.926,
    ("directed ring", "uniform"): 1.475,
    ("torus", "uniform"): 1.756,
}
"""Mean seconds a round of 16 peers, training of mean 1 s, messages that take no time; of 20,000 rounds."""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "law"), MEANS)
def test_mean_seconds_a_round_are_those_of_the_recursion(kind: str, law: str) -> None:
    directed = kind == "directed ring"
    peers = {"topology": {"kind": "ring" if directed else kind}, "speed_km_per_s": 1e300}
    compute = {"delay": EXPONENTIAL if law == "exponential" else {"kind": "uniform", "low_s": 0.0, "high_s": 2.0}}
    server = directed_ring(16) if directed else protocol()
    _, records = simulated(rounds=320, clients={"count": 16}, peers=peers, compute=compute, server=server, output={})
    # Blocks of 16 rounds, the first left out, are nearly independent.
    ends = np.array([row.end_s for row in records.rounds])[15::16]
    means = np.diff(ends) / 16
    error = means.std(ddof=1) / math.sqrt(len(means))
    assert abs(means.mean() - MEANS[kind, law]) < 4 * error
    assert error < 0.08


def test_messages_balance_and_bytes_add_up() -> None:
    simulation, records = simulated()
    rows, counts = records.rounds, simulation.server.counts()
    names = ("messages", "messages_delivered", "messages_lost")
    sent, delivered, lost = (sum(getattr(row, name) for row in rows) for name in names)
    assert sent == delivered + lost + rows[-1].messages_in_flight == counts["messages"]
    assert sum(row.message_bytes for row in rows) == 1000 * sent
    assert lost == 0


LOSSY = {"topology": {"kind": "ring"}, "channel": {"kind": "bernoulli", "success": 0.8}, "delay": EXPONENTIAL}


def test_a_barrier_that_a_lost_message_would_block_for_ever_is_refused() -> None:
    with pytest.raises(UserError, match=r"server\.protocol\.timeout_s.* give retry_s or timeout_s"):
        build(parse(study(peers=LOSSY)))


def test_lost_messages_are_sent_again_until_they_arrive() -> None:
    _, records = simulated(peers=LOSSY, server=protocol(retry_s=0.5))
    assert len(records.rounds) == 12
    lost = [row for row in records.messages if row.outcome == "lost"]
    assert lost
    assert sum(row.messages_resent for row in records.rounds) >= len(lost) - 5
    arrived = {(row.number, row.source, row.target) for row in records.messages if row.outcome == "delivered"}
    assert {(row.number, row.source, row.target) for row in lost if row.number < 12} <= arrived


@pytest.mark.parametrize("key", ["max_resends", "resend_after_s"])
def test_keys_of_sending_again_that_retry_s_replaces_are_refused(key: str) -> None:
    with pytest.raises(UserError, match=rf"peers\.{key} = 3.*server\.protocol\.retry_s .*leave "):
        build(parse(study(peers=LOSSY | {key: 3}, server=protocol(retry_s=0.5))))


def test_a_wait_ends_at_the_timeout() -> None:
    # Links are down for good: each round takes a training of 1 s and a wait of 0.25 s.
    cut = {"topology": {"kind": "ring"}, "outages": [{"from_s": 0.0, "groups": [[0], [1], [2], [3]]}]}
    _, records = simulated(peers=cut, compute={"delay": CONSTANT | {"value_s": 1.0}}, server=protocol(timeout_s=0.25))
    assert [row.end_s for row in records.rounds] == pytest.approx(1.25 * np.arange(1, 13))
    assert sum(row.messages_delivered for row in records.rounds) == 0


def test_an_outage_of_a_peer_loses_its_messages_and_not_its_training() -> None:
    # Peer 2 of a ring of 4 is cut off from 1.5 to 3.5 s. A training takes 1 s, messages no time, a vain wait 0.5 s.
    # Round 1 ends at 1.0 s with all messages. At 2.0 s those from and to peer 2 are lost: 1, 2 and 3 wait until 2.5 s, 0 goes on.
    outage = {"name": "storm", "clients": [2], "from_s": 1.5, "to_s": 3.5}
    _, records = simulated(
        rounds=3,
        clients={"count": 4},
        peers=PATH | {"topology": {"kind": "ring"}},
        compute={"delay": CONSTANT | {"value_s": 1.0}},
        server=protocol(timeout_s=0.5),
        outages=[outage],
    )
    assert {row.outcome for row in records.updates} == {"delivered"}
    ends = by_round(records.updates, "compute_end_s", 4)
    assert ends[:3].tolist() == [[1.0] * 4, [2.0] * 4, [3.0, 3.5, 3.5, 3.5]]
    lost = {(row.source, row.target) for row in records.messages if row.outcome == "lost" and row.sent_s == 2.0}
    assert lost == {(1, 2), (2, 1), (2, 3), (3, 2)}


def test_backup_neighbours_are_not_waited_for() -> None:
    # Peer 0 of a ring of 5 takes 100 s, the others 1 s: with one backup each goes on without it.
    compute = {"delay": CONSTANT | {"value_s": [100.0, 1.0, 1.0, 1.0, 1.0]}}
    peers = {"topology": {"kind": "ring"}}
    _, records = simulated(rounds=1, peers=peers, compute=compute, server=protocol(backup=1), time_limit_s=50.0)
    ends = by_round(records.updates, "compute_end_s", 5)
    assert ends[0, 1:].tolist() == [1.0] * 4
    simulation, _ = simulated(rounds=20, peers=peers, compute=compute, server=protocol(backup=1), time_limit_s=10.5)
    # A pair in the middle would wait for each other only; all have done 10 rounds.
    assert simulation.server.peers.round.tolist() == [1, 11, 11, 11, 11]  # type: ignore[attr-defined]


def test_a_run_that_can_never_close_a_round_ends() -> None:
    # One backup neighbour, two that never answer.
    cut = {"topology": {"kind": "ring"}, "outages": [{"from_s": 0.0, "groups": [[0], [1], [2], [3]]}]}
    simulation, records = simulated(peers=cut, server=protocol(backup=1))
    assert records.rounds == []
    assert simulation.ended == "nobody left"


def test_a_peer_that_is_away_is_left_out_and_joins_the_open_round() -> None:
    presence = {"kind": "markov", "mean_on_s": 20.0, "mean_off_s": 5.0}
    simulation, records = simulated(rounds=40, availability=presence, server=protocol(timeout_s=0.5))
    assert len(records.rounds) == 40
    causes = {row.cause for row in records.messages if row.outcome == "lost"}
    assert causes == {"away"}
    aborted = [row for row in records.updates if row.outcome == "aborted"]
    assert aborted
    ends = {row.round: row.end_s for row in records.rounds}
    # None trains in a round that closed before: who comes back takes part in the open one.
    for row in records.updates:
        assert row.selected_s <= ends.get(row.round, math.inf)
    assert simulation.ended == "rounds"


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"order": "first"}, "order"),
        ({"timeout_s": 0.0}, "timeout_s"),
        ({"retry_s": -1.0}, "retry_s"),
        ({"backup": -1}, "backup"),
        ({"backup": 2}, "backup = 2: must be below 2, the most neighbours"),
    ],
)
def test_values_that_a_protocol_cannot_have_are_refused(keys: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=rf"server\.protocol\.{told}"):
        build(parse(study(server=protocol(**keys))))


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"uplink": {"delay": CONSTANT | {"value_s": 1.0}}}, "uplink.*there is no server"),
        ({"policy": {"kind": "random"}}, "policy.kind"),
        ({"payload": {"down_bytes": 5}}, "payload.down_bytes"),
        ({"energy": {}}, "energy"),
        ({"peers": None}, "peers"),
    ],
)
def test_tables_of_a_server_are_refused(tables: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        build(parse({name: table for name, table in study(**tables).items() if table is not None}))


def test_dwells_of_a_jammer_and_the_messages_that_it_hits_are_counted() -> None:
    jammer = {"name": "sweeper", "law": {"kind": "sweep", "width": 2, "step": 2}, "at_once": 2}
    ring = {"topology": {"kind": "ring"}}
    simulation, records = simulated(rounds=5, peers=ring, server=protocol(timeout_s=0.5), jammers=[jammer])
    counts = simulation.server.counts()
    assert counts["jam_dwells"] == len(records.jams) > 0
    assert counts["jammed"] == sum(row.hit for row in records.jams)
    assert sum(row.jam_dwells for row in records.rounds) <= counts["jam_dwells"]

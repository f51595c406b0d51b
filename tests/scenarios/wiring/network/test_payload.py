"""Sizes of models and updates: what `[payload]` says, worked out by hand, in times and in the tables' bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netsim.core.errors import ParameterError
from netsim.network.sizes import Sizes
from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.small_worlds import World, constant

OWN: dict[str, Any] = {
    "downlink": {"bandwidth_bytes_per_s": 64.0},
    "compute": constant(1, 1, 1),
    "uplink": {"bandwidth_bytes_per_s": [16.0, 32.0, 32.0]},
    "payload": {"down_bytes": [63.5, 128.0, 64.0], "up_bytes": {"from": 16.0, "to": 64.0}, "header_bytes": 64},
    "server": {"per_round": 2},
}


def test_every_client_has_its_own_sizes_both_ways() -> None:
    # Down: 63.5 rounds up to 64, and 64 of header: 128 bytes, 2 s. Client 1: 128 + 64 = 192 bytes, 3 s.
    # Up: the ramp gives 32, 48 and 64; with headers 96 bytes at 16 a second take 6 s, 112 bytes at 32 take 3.5 s.
    world = World([[0, 1]], **OWN).play()
    assert world.rows("client", "download_end_s", "compute_end_s", "upload_end_s", "bytes_down", "bytes_up") == [
        (1, 3, 4, 7.5, 192, 112),
        (0, 2, 3, 9, 128, 96),
    ]
    assert world.rounds("bytes_down", "bytes_up") == [(320, 208)]
    assert world.server.clients.medium.latency_s(1, 0.0, np.arange(3)).tolist() == [9, 7.5, 2 + 1 + 4]


def test_what_was_not_begun_has_no_bytes() -> None:
    # Client 0's model is lost. Client 1 is late: the round closes at 4.5, half a second after its upload began.
    lossy = {"downlink": {"bandwidth_bytes_per_s": 64.0, "channel": {"kind": "bernoulli", "success": [0.0, 1.0, 1.0]}}}
    server = {"per_round": 2, "deadline_s": 4.5, "stragglers": "cancel"}
    world = World([[0, 1]], **OWN | lossy | {"server": server}).play()
    assert world.rows("client", "outcome", "bytes_down", "bytes_up") == [(0, "lost", 128, 0), (1, "late", 192, 112)]
    assert world.rounds("bytes_down", "bytes_up") == [(320, 112)]


def test_updates_of_different_sizes_share_the_servers_bandwidth() -> None:
    # 32 and 96 bytes over 32 a second: 16 each until 2 s, when client 0 is through; client 1's other 64 take 2 s more.
    shared = {"shared": {"bandwidth_bytes_per_s": 32.0}}
    world = World([[0, 1]], uplink=shared, payload={"up_bytes": [32.0, 96.0, 1.0]}, server={"per_round": 2}).play()
    assert world.rows("client", "upload_end_s", "bytes_up") == [(0, 2, 32), (1, 4, 96)]
    assert world.server.clients.medium.up.alone_s(1, np.zeros(3), np.arange(3)).tolist() == [1, 3, 1 / 32]


def test_an_update_that_is_sent_again_counts_again_and_its_model_does_not() -> None:
    # Two sub-channels for two clients, the first of them never Good: who is on it sends again in the next round.
    scenario = {
        "name": "again",
        "rounds": 3,
        "clients": {"count": 2},
        "server": {"kind": "asynchronous"},
        "channels": {"count": 2, "channel": {"kind": "bernoulli", "success": [0.0, 1.0]}},
        "scheduler": {"kind": "round-robin"},
        "payload": {"down_bytes": 10.0, "up_bytes": [3.0, 5.0]},
    }
    simulation, records = build(parse(scenario)).simulation, MemoryRecorder()
    simulation.record_to(records)
    simulation.run()
    for row in records.updates:
        assert (row.bytes_down, row.bytes_up) == (10 if row.started_round == row.round else 0, (3, 5)[row.client])
    told = {(row.outcome, row.bytes_down) for row in records.updates}
    assert told == {("lost", 10), ("delivered", 10), ("delivered", 0)}
    assert [(row.bytes_down, row.bytes_up) for row in records.rounds] == [(20, 8), (10, 8), (10, 8)]


def test_with_a_learner_the_network_says_how_much() -> None:
    pytest.importorskip("torch")
    learner = {"data": {"kind": "digits"}, "network": {"kind": "linear"}, "optimizer": {"kind": "sgd", "learning_rate": 0.1}}
    network = 4 * (64 * 10 + 10)
    for payload, sizes in (
        ({}, (network, network)),
        ({"header_bytes": 20}, (network + 20, network + 20)),
        ({"header_bytes": 20, "up_bytes": 99.5}, (network + 20, 120)),
    ):
        world = World([[0]], learner=learner, payload=payload).play()
        assert world.rounds("bytes_down", "bytes_up") == [sizes]


def test_compressing_and_decompressing_take_time_by_the_byte_in_local_training() -> None:
    # Client 0: 128 bytes down at 1/64 s, 96 up at 1/32 s: 2 + 3 s beside 1 s; client 1: 192/64 + 112/32 = 3 + 3.5.
    codec = {"decompress_s_per_byte": 1 / 64, "compress_s_per_byte": [1 / 32, 1 / 32, 0.0]}
    world = World([[0, 1]], **OWN | {"payload": OWN["payload"] | codec}).play()
    assert sorted(world.rows("client", "download_end_s", "compute_end_s", "upload_end_s")) == [
        (0, 2, 2 + 1 + 5, 8 + 6),
        (1, 3, 3 + 1 + 6.5, 10.5 + 3.5),
    ]
    assert world.server.clients.medium.latency_s(1, 0.0, np.arange(3)).tolist() == [14, 14, 2 + 1 + 2 + 4]
    # A change of the delay leaves them as they are.
    changed = {"delay": OWN["compute"]["delay"], "changes": [{"at_s": 1.0, "delay": {"value_s": 3.0}}]}
    world = World([[0]], **OWN | {"payload": OWN["payload"] | codec, "compute": changed, "server": {"per_round": 1}}).play()
    assert world.rows("compute_end_s") == [(2 + 3 + 5,)]


REFUSED = {
    "payload.up_bytes = -1.0 for client 1: must be >= 0 bytes": {"payload": {"up_bytes": [1.0, -1.0, 2.0]}},
    "payload.up_bytes: has 2 numbers for 3 clients": {"payload": {"up_bytes": [1.0, 2.0]}},
    "payload.decompress_s_per_byte = 1e+308: must be less: a message takes at most 1e+12 s": {
        "payload": {"down_bytes": 100.0, "decompress_s_per_byte": 1e308}
    },
    "payload.compress_s_per_byte = -1.0 for client 1: must be >= 0 seconds": {
        "payload": {"up_bytes": 1.0, "down_bytes": 1.0, "compress_s_per_byte": [0.0, -1.0, 0.0]}
    },
    "downlink.bandwidth_bytes_per_s: a message of 0 bytes takes no bandwidth; set payload.down_bytes": {
        "payload": {"up_bytes": 1.0}
    },
    "uplink.bandwidth_bytes_per_s: a message of 0 bytes (client 2) takes no bandwidth; set payload.up_bytes": {
        "payload": {"down_bytes": 1.0, "up_bytes": [1.0, 2.0, 0.0]}
    },
    "channels.bandwidth_bytes_per_s: goes with one payload.up_bytes for all clients": {
        "channels": {"count": 3, "bandwidth_bytes_per_s": 10.0},
        "scheduler": {"kind": "round-robin"},
    },
}


@pytest.mark.parametrize("message", REFUSED)
def test_sizes_that_cannot_be_are_refused(message: str) -> None:
    with pytest.raises(UserError) as caught:
        World([[0]], **{name: table for name, table in OWN.items() if name not in REFUSED[message]} | REFUSED[message])
    assert str(caught.value).startswith(message)


def test_the_old_key_names_the_new_one() -> None:
    tables = {"name": "old", "rounds": 1, "clients": {"count": 2}, "policy": {"kind": "random"}}
    for server in ({"per_round": 1}, {"kind": "buffered", "concurrency": 1}, {"kind": "fl-fa", "per_round": 1}):
        with pytest.raises(UserError, match=r"server\.payload_bytes = 5: is no key any more; set payload.down_bytes and"):
            build(parse(tables | {"server": server | {"payload_bytes": 5}}))


def test_the_engine_refuses_negative_sizes() -> None:
    with pytest.raises(ParameterError, match=r"^up = -2: must be >= 0 bytes"):
        Sizes(up=np.array([1, -2]))

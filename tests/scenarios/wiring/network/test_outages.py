"""Scenarios whose clients share a bandwidth or are cut off together: every server, refusals, and the file that comes along."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from scenarios.runs.reading import load, parse
from scenarios.runs.run import run
from scenarios.schema.errors import UserError
from scenarios.wiring.changes import changes_after_end
from scenarios.wiring.simulation import build
from tests.helpers.small_worlds import constant, sized

SYNCHRONOUS: dict[str, Any] = {
    "name": "together",
    "rounds": 4,
    "clients": {"count": 4, "groups": [{"name": "a", "count": 2}, {"name": "b", "count": 2}]},
    "server": {"per_round": 4}, "payload": sized(1000),
    "policy": {"kind": "all"},
    "compute": constant(1, 1, 1, 1),
    "uplink": {"shared": {"bandwidth_bytes_per_s": 1000.0}},
}
ASYNCHRONOUS: dict[str, Any] = {
    "server": {"kind": "asynchronous", "wait_for_compute": True},
    "channels": {"count": 4},
    "scheduler": {"kind": "round-robin"},
}
SLOTS: dict[str, Any] = {"server": {"kind": "fl-fa", "per_round": 4}, "payload": sized(1000), "slots": {"rounds": 2}}
SERVERS: dict[str, dict[str, Any]] = {
    "synchronous": {},
    "buffered": {
        "server": {"kind": "buffered", "concurrency": 4, "buffer": 4}, "payload": sized(1000),
        "policy": {"kind": "random"},
    },
    "asynchronous": ASYNCHRONOUS,
    "fl-fa": SLOTS | {"policy": {"kind": "all"}, "opinions": {"synthetic": {"worth": 0.5}}},
    "fl-da": SLOTS
    | {
        "server": SLOTS["server"] | {"kind": "fl-da"},
        "policy": {"kind": "bp-index"},
        "slots": {"rounds": 2, "start": "zero"},
        "opinions": {"synthetic": {"worth": 0.5}},
        "peers": {"topology": {"kind": "complete"}},
    },
}


def tables(server: str, **more: Any) -> dict[str, Any]:
    whole = SYNCHRONOUS | SERVERS[server] | more
    return {name: table for name, table in whole.items() if name != "policy" or server != "asynchronous"}


@pytest.mark.parametrize("server", SERVERS)
def test_uploads_share_with_every_server(server: str, tmp_path: Path) -> None:
    """Four uploads that begin together take 4 s: with every server, the first four end at 5 s."""
    run(parse(tables(server)), tmp_path / "run")
    rows = pq.read_table(tmp_path / "run" / "clients.parquet").to_pandas()
    first = rows.head(4)
    assert first["outcome"].tolist() == ["delivered"] * 4
    assert first["upload_start_s"].tolist() == [1.0] * 4
    assert first["upload_end_s"].to_numpy() == pytest.approx([5.0] * 4, rel=1e-12)
    # Never more than the bandwidth: 1,000 bytes a second from the beginning of the first upload to the end of the last.
    done = rows[rows["outcome"] == "delivered"]
    assert len(done) * 1000 <= (done["upload_end_s"].max() - 1.0) * 1000 * (1 + 1e-9)


@pytest.mark.parametrize("server", SERVERS)
def test_outages_hit_a_group_with_every_server(server: str, tmp_path: Path) -> None:
    outage = {"name": "mast", "clients": "b", "from_s": 2.0, "to_s": 3.0}
    run(parse(tables(server, outages=[outage])), tmp_path / "run")
    rows = pq.read_table(tmp_path / "run" / "clients.parquet").to_pandas().head(4).sort_values("client")
    assert rows["outcome"].tolist() == ["delivered", "delivered", "lost", "lost"]
    assert [None if cause != cause else cause for cause in rows["cause"].tolist()] == [None, None, "mast", "mast"]


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("server", SERVERS)
def test_a_state_goes_on_with_every_server(server: str) -> None:
    drawn = [
        {"name": "mast", "clients": "a", "mean_up_s": 9.0, "mean_down_s": 2.0},
        {"name": "power", "mean_up_rounds": 6, "mean_down_rounds": 1},
    ]
    study = parse(tables(server, outages=drawn, rounds=30, downlink=constant(0.5, 0.5, 0.25, 0.25)))
    whole, part, rest = (build(study).simulation for _ in range(3))
    whole.run()
    part.run(until_round=11)
    rest.load_state_dict(part.state_dict())
    rest.run()
    assert repr(rest.state_dict()) == repr(whole.state_dict())
    assert rest.clock.now > 60.0


def test_expected_latencies_are_those_of_who_shares_with_nobody() -> None:
    limits = {"shared": {"bandwidth_bytes_per_s": 1000.0}, "bandwidth_bytes_per_s": {"by_group": {"a": 250.0, "b": 5000.0}}}
    built = build(parse(SYNCHRONOUS | {"uplink": {**limits, **constant(0.5, 0.5, 0.5, 0.5)}}))
    expected = [1 + 0.5 + 4, 1 + 0.5 + 4, 1 + 0.5 + 1, 1 + 0.5 + 1]
    assert built.truth.mean_latency_s(1, 0.0).tolist() == expected
    assert built.server.clients.medium.latency_s(1, 0.0, np.arange(4)).tolist() == expected


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"uplink": {"shared": {"bandwidth_bytes_per_s": 0.0}}}, "uplink.shared.bandwidth_bytes_per_s = 0.0: must be > 0"),
    ({"uplink": {"shared": {}}}, "uplink.shared.bandwidth_bytes_per_s is missing"),
    (
        {"uplink": {"shared": {"bandwidth_bytes_per_s": 9.0}, "bandwidth_bytes_per_s": [1.0, 0.0, 1.0, 1.0]}},
        "uplink.bandwidth_bytes_per_s = 0.0 for client 1: must be finite and > 0",
    ),
    (
        {"uplink": {"shared": {"bandwidth_bytes_per_s": 9.0}, "bandwidth_bytes_per_s": [1.0]}},
        "uplink.bandwidth_bytes_per_s: has 1 numbers for 4 clients",
    ),
    (
        {"uplink": {"shared": {"bandwidth_bytes_per_s": 9.0, "per_client_bytes_per_s": 3.0}}},
        "uplink.shared.per_client_bytes_per_s = 3.0: is now bandwidth_bytes_per_s of the link itself, beside [shared]",
    ),
    ({"payload": {}}, "uplink.shared.bandwidth_bytes_per_s: a message of 0 bytes takes no bandwidth; set payload.up_bytes"),
    ({"outages": [{"name": "x"}]}, 'outages.0.name = "x": give one of from_s and to_s, from_round and to_round, mean_up_s'),
    ({"outages": [{"name": "x", "from_s": 1.0, "mean_up_s": 2.0}]}, 'outages.0.name = "x": give one of from_s and to_s'),
    ({"outages": [{"name": "x", "from_s": 3.0, "to_s": 3.0}]}, "outages.0.to_s = 3.0: must be after the start, 3.0"),
    ({"outages": [{"name": "x", "from_s": -1.0}]}, "outages.0.from_s = -1.0: must be >= 0"),
    ({"outages": [{"name": "x", "from_round": 3, "to_round": 2}]}, "outages.0.to_round = 2: must be after the start, 3"),
    ({"outages": [{"name": "x", "to_s": 3.0}]}, "outages.0.from_s is missing"),
    ({"outages": [{"name": "x", "mean_up_s": 3.0}]}, "outages.0.mean_down_s is missing"),
    ({"outages": [{"name": "x", "mean_up_rounds": 0.5, "mean_down_rounds": 2}]}, "outages.0.mean_up_rounds = 0.5: must be >= 1"),
    (
        {"outages": [{"name": "x", "mean_up_s": 1e-9, "mean_down_s": 2}]},
        "outages.0.mean_up_s = 1e-09: must be finite and in [1e-06, 1e+300] seconds",
    ),
    ({"outages": [{"name": "channel", "from_s": 3.0}]}, "outages.0.name = 'channel': is the name of another cause of loss"),
    ({"outages": [{"name": "x", "from_s": 3.0}] * 2}, "outages.1.name = 'x': is used twice"),
    ({"outages": [{"name": "x", "from_s": 3.0, "clients": "c"}]}, "outages.0.clients = 'c': unknown group"),
    (
        {"outages": [{"name": "x", "from_s": 3.0, "clients": [4]}]},
        "outages.0.clients = [4]: must name some clients between 0 and 3",
    ),
    ({"outages": [{"name": "x", "form_s": 3.0}]}, "outages.0.form_s = 3.0: unknown key; did you mean 'from_s'?"),
]


@pytest.mark.parametrize(("more", "message"), REFUSED)
def test_nonsense_is_refused_in_one_line(more: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        build(parse(SYNCHRONOUS | more))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_outage_that_never_comes_is_told() -> None:
    late = [{"name": "late", "from_round": 5}, {"name": "later", "from_s": 60.0}, {"name": "soon", "from_round": 4}]
    assert changes_after_end(parse(SYNCHRONOUS | {"outages": late, "time_limit_s": 60.0})) == [
        "outages.0.from_round = 5: comes after the last of 4 rounds",
        "outages.1.from_s = 60.0: comes after time_limit_s = 60.0",
    ]


def test_a_scenario_to_train_is_checked_without_its_network() -> None:
    learner = {"data": {"kind": "digits"}, "network": {"kind": "linear"}, "optimizer": {"kind": "sgd", "learning_rate": 0.1}}
    built = build(parse(SYNCHRONOUS | {"payload": {}, "learner": learner}), learner=False)
    # The network is not built, and its 650 numbers of 4 bytes are known all the same; what is wrong with the medium is found.
    assert built.parameters is None
    shared = built.server.clients.medium.up
    assert (shared.bandwidth, shared.alone_s(1, np.zeros(4), np.arange(4)).tolist()) == (1000.0, [2.6] * 4)
    limits = {"shared": {"bandwidth_bytes_per_s": 1000.0}, "bandwidth_bytes_per_s": [1.0, 0.0, 1.0, 1.0]}
    with pytest.raises(UserError, match=r"uplink\.bandwidth_bytes_per_s = 0\.0 for client 1: must be finite and > 0"):
        build(parse(SYNCHRONOUS | {"server": {"per_round": 4}, "learner": learner, "uplink": limits}), learner=False)


def test_the_scenario_that_comes_along_leaves_the_same_bytes_twice(tmp_path: Path) -> None:
    study = load("shared_medium")
    for name in ("one", "two"):
        summary = run(study, tmp_path / name)
    for table in ("rounds.parquet", "clients.parquet"):
        assert (tmp_path / "one" / table).read_bytes() == (tmp_path / "two" / table).read_bytes()
    rows = pq.read_table(tmp_path / "one" / "clients.parquet").to_pydict()
    assert {*rows["cause"]} == {None, "mast", "works"}
    assert sum(cause is not None for cause in rows["cause"]) == summary["totals"]["lost"]
    assert json.loads((tmp_path / "one" / "summary.json").read_text())["totals"] == summary["totals"]
    # A client of the country sends at most 2 to 4 x 10^5 bytes a second, whoever else is sending.
    country = [
        end - start
        for client, outcome, start, end in zip(
            *(rows[name] for name in ("client", "outcome", "upload_start_s", "upload_end_s")), strict=True
        )
        if outcome == "delivered" and client < 30
    ]
    assert min(country) >= 0.05 + 400_000 / 4e5 - 1e-9

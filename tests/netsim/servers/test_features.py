"""Every cell of the table in docs/servers.md: the feature shows in the records, the books balance, a saved state goes on; or the
scenario is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netsim.records.sinks import MemoryRecorder
from scenarios.build.simulation import build
from scenarios.runs.reading import override, parse
from scenarios.schema.errors import UserError
from tests.helpers.random_worlds import copied, same

ROUNDS = 12
PAGE = Path(__file__).parents[3] / "docs" / "servers.md"
SLOTS: dict[str, Any] = {
    "slots": {"rounds": 2},
    "opinions": {"synthetic": {"worth": {"from": 0.4, "to": 0.9}, "own": 0.2, "noise": 0.02}},
}
CHANNELS: dict[str, Any] = {
    "channels": {
        "count": 9,
        "channel": {"kind": "gilbert-elliott", "to_bad": 0.3, "to_good": 0.4},
        "delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.2},
    },
    "scheduler": {"kind": "cucb"},
}
SERVERS: dict[str, dict[str, Any]] = {
    "synchronous": {"server": {"per_round": 4, "when_short": "proceed", "deadline_s": 1.6}, "policy": {"kind": "random"}},
    "semi-synchronous": {"server": {"kind": "semi-synchronous", "per_round": 4, "round_s": 1.0}, "policy": {"kind": "random"}},
    "buffered": {"server": {"kind": "buffered", "concurrency": 5, "buffer": 3}, "policy": {"kind": "random"}},
    "asynchronous": {"server": {"kind": "asynchronous", "round_s": 0.9}, **CHANNELS},
    "fl-fa": {"server": {"kind": "fl-fa", "per_round": 4, "when_short": "proceed"}, "policy": {"kind": "round-robin"}, **SLOTS},
    "fl-da": {
        "server": {"kind": "fl-da", "per_round": 4, "when_short": "proceed"},
        "policy": {"kind": "bp-index"},
        "peers": {"topology": {"kind": "complete"}, "delay": {"kind": "constant", "value_s": 0.001}},
        "slots": {"rounds": 2, "start": "agreement"},
        "opinions": SLOTS["opinions"],
    },
}
ENDING: dict[str, Any] = {"kind": "trace", "time_s": [0.0], "bytes_per_s": [100.0], "after_end": "stop"}
LEVELS: dict[str, Any] = {"levels_bytes_per_s": [40.0, 200.0], "mean_stay_s": [0.5, 0.5]}
FEATURES: dict[str, tuple[dict[str, Any], Callable[[MemoryRecorder, Any], bool]]] = {
    "losses on the clients' own links": (
        {"uplink.channel": {"kind": "bernoulli", "success": 0.7}, "downlink.channel": {"kind": "bernoulli", "success": 0.8}},
        lambda records, simulation: _caused(records, "channel"),
    ),
    "block fading of the own links": (
        {"uplink.channel": {"kind": "block-fading", "distance_km": 0.6, "threshold_db": 10.0}},
        lambda records, simulation: _caused(records, "channel"),
    ),
    "one queue for n sub-channels": (
        {"uplink.sub_channels": 1},
        lambda records, simulation: any(row.upload_start_s > row.compute_end_s for row in records.updates),
    ),
    "a bandwidth that uploads share": (
        {"uplink.shared": {"bandwidth_bytes_per_s": 100.0}, "payload": {"down_bytes": 20, "up_bytes": 20}},
        # Alone an upload takes 0.2 s at this bandwidth, beside the delay of the own link.
        lambda records, simulation: any(row.upload_end_s - row.upload_start_s > 0.25 for row in records.updates),
    ),
    "a bandwidth that changes in time": (
        {
            "downlink.bandwidth": {"kind": "gauss-markov", "mean_bytes_per_s": 200.0, "std_bytes_per_s": 80.0, "memory": 0.8},
            "uplink.bandwidth": {"kind": "trace", "time_s": [0.0, 0.5, 0.8], "bytes_per_s": [200.0, 20.0, 0.0], "end_s": 1.0},
            "payload": {"down_bytes": 20, "up_bytes": 20},
        },
        # At 200 bytes a second throughout an upload takes 0.1 s, beside the delay of 0.04 s.
        lambda records, simulation: any(row.upload_end_s - row.upload_start_s > 0.2 for row in records.updates)
        and len({row.download_end_s - row.download_start_s for row in records.updates}) > 5,
    ),
    "traces of bandwidth that end": (
        {
            "downlink.bandwidth": {**ENDING, "end_s": 5.0},
            "uplink.bandwidth": {**ENDING, "end_s": 3.0},
            "payload": {"down_bytes": 20, "up_bytes": 20},
        },
        lambda records, simulation: _caused(records, "trace-end"),
    ),
    "a shared bandwidth that changes in time": (
        {
            "downlink.shared": {"bandwidth": {"kind": "markov-levels", **LEVELS}},
            "uplink.shared": {"bandwidth": {"kind": "markov-levels", **LEVELS}},
            "uplink.bandwidth": {"kind": "trace", "time_s": [0.0, 0.5], "bytes_per_s": [200.0, 40.0], "offset": "random"},
            "payload": {"down_bytes": 20, "up_bytes": 20},
        },
        lambda records, simulation: any(row.upload_end_s - row.upload_start_s > 0.3 for row in records.updates)
        and any(row.download_end_s - row.download_start_s > 0.3 for row in records.updates),
    ),
    "outages of groups of clients": (
        {"outages": [{"name": "mast", "clients": [0, 1, 2, 3], "mean_up_s": 1.0, "mean_down_s": 1.0}]},
        lambda records, simulation: _caused(records, "mast"),
    ),
    "sub-channels with states, assigned by a scheduler": (
        CHANNELS,
        lambda records, simulation: _caused(records, "sub-channel") and all(row.channel is not None for row in records.updates),
    ),
    "jammers of sub-channels": (
        CHANNELS | {"jammers": [{"name": "jammer", "law": {"kind": "random"}, "at_once": 4, "dwell_s": 0.5}]},
        lambda records, simulation: _caused(records, "jammed") and bool(records.jams) and _summed(records, "jam_dwells") > 0,
    ),
    "contention on sub-channels": (
        CHANNELS | {"scheduler": {"kind": "random-access"}, "server.contention": True},
        lambda records, simulation: _caused(records, "collided") and _summed(records, "collided") > 0,
    ),
    "clients that come and go": (
        {"availability": {"kind": "markov", "mean_on_s": 2.0, "mean_off_s": 1.0}},
        lambda records, simulation: any(row.outcome == "aborted" for row in records.updates),
    ),
    "losses asked for before a selection": (
        {"policy": {"kind": "tests.helpers.asking:Highest"}, "probe.deadline_s": 0.5},
        lambda records, simulation: {row.outcome for row in records.probes} >= {"delivered", "late"}
        and sum(row.probes or 0 for row in records.rounds) == len(records.probes),
    ),
    "budgets of privacy that run out": (
        {"privacy": {"sensitivity": 0.1, "schedule": {"kind": "explicit", "epsilons": [3.0, 2.0]}}},
        lambda records, simulation: bool(simulation.server.clients.accountant.exhausted.any()),
    ),
}


def _caused(records: MemoryRecorder, cause: str) -> bool:
    return any(row.cause == cause for row in records.updates)


def _summed(records: MemoryRecorder, column: str) -> int:
    return sum(getattr(row, column) or 0 for row in records.rounds)


def _cells() -> list[tuple[str, str, bool]]:
    rows = [line.strip("| \n").split("|") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    head = next(i for i, row in enumerate(rows) if row[0].strip() == "feature")
    kinds = [cell.strip(" `") for cell in rows[head][1:]]
    cells = []
    for row in rows[head + 2 :]:
        feature = re.sub(r" \(`.*", "", row[0].strip())
        cells += [(feature, kind, cell.strip() == "yes") for kind, cell in zip(kinds, row[1:], strict=True)]
    return cells


CELLS = _cells()


def _tables(feature: str, kind: str) -> dict[str, Any]:
    world = {
        "name": "features",
        "rounds": ROUNDS,
        "clients": {"count": 9},
        "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.5}},
        "uplink": {"delay": {"kind": "constant", "value_s": 0.04}},
    }
    return override(world | SERVERS[kind], FEATURES[feature][0])


def _built(tables: dict[str, Any]) -> tuple[Any, MemoryRecorder]:
    simulation, records = build(parse(tables)).simulation, MemoryRecorder()
    simulation.record_to(records)
    return simulation, records


def test_the_table_names_every_feature_and_every_server() -> None:
    assert {(feature, kind) for feature, kind, _ in CELLS} == {(feature, kind) for feature in FEATURES for kind in SERVERS}


@pytest.mark.parametrize(("feature", "kind"), [cell[:2] for cell in CELLS if cell[2]])
def test_the_feature_works(feature: str, kind: str) -> None:
    tables = _tables(feature, kind)
    whole, expected = _built(tables)
    whole.run()
    assert FEATURES[feature][1](expected, whole)
    first, _ = _built(tables)
    first.run(until_round=3)
    state = first.state_dict()
    second, records = _built(tables)
    second.load_state_dict(copied(state))
    second.run()
    assert repr(records.rounds) == repr(expected.rounds[3:])
    assert same(second.state_dict(), whole.state_dict())
    whole.close()
    counts = whole.server.counts()
    ends = sum(counts[name] for name in ("delivered", "lost", "late", "aborted", "in_flight"))
    assert counts["selected"] == len(expected.updates) == ends


@pytest.mark.parametrize(("feature", "kind"), [cell[:2] for cell in CELLS if not cell[2]])
def test_what_makes_no_sense_is_refused(feature: str, kind: str) -> None:
    with pytest.raises(UserError):
        build(parse(_tables(feature, kind)))

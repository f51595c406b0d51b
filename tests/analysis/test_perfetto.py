"""The timeline of a run: what it shows by hand, and that the viewer can read it."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from analysis import open_run, write_trace
from scenarios.runs.reading import parse
from scenarios.runs.run import run
from tests.helpers.rough_scenarios import other, rough


def events_of(path: Path) -> list[dict[str, Any]]:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    events: list[dict[str, Any]] = json.loads(content)["traceEvents"]
    return events


def test_a_round_by_hand(tmp_path: Path) -> None:
    # Two clients with one sub-channel: downloads of 0.25 s, 1 and 2 s of computing, uploads of 1.5 s: client 1 waits 0.5 s.
    run(
        parse(
            {
                "name": "hand",
                "rounds": 1,
                "clients": {"count": 2},
                "server": {"per_round": 2},
                "policy": {"kind": "all"},
                "downlink": {"delay": {"kind": "constant", "value_s": 0.25}},
                "compute": {"delay": {"kind": "constant", "value_s": [1.0, 2.0]}},
                "uplink": {"delay": {"kind": "constant", "value_s": 1.5}, "sub_channels": 1},
            }
        ),
        tmp_path / "run",
    )
    assert write_trace(open_run(tmp_path / "run"), tmp_path / "trace.json") == len(events_of(tmp_path / "trace.json"))
    events = events_of(tmp_path / "trace.json")
    slices = {(e["pid"], e["tid"], e["name"]): (e["ts"] / 1e6, e["dur"] / 1e6) for e in events if e["ph"] == "X"}
    assert slices == {
        (1, 0, "round 1"): (0.0, 4.25),
        (2, 0, "download"): (0.0, 0.25),
        (2, 0, "compute"): (0.25, 1.0),
        (2, 0, "wait"): (1.25, 0.0),
        (2, 0, "upload"): (1.25, 1.5),
        (2, 1, "download"): (0.0, 0.25),
        (2, 1, "compute"): (0.25, 2.0),
        (2, 1, "wait"): (2.25, 0.5),
        (2, 1, "upload"): (2.75, 1.5),
    }
    assert [(e["tid"], e["name"], e["ts"] / 1e6) for e in events if e["ph"] == "i"] == [
        (0, "delivered", 2.75),
        (1, "delivered", 4.25),
    ]


def test_probes_are_on_the_clients_track(tmp_path: Path) -> None:
    # An evaluation takes a third of 3 s. Client 0 then has the model.
    run(
        parse(
            {
                "name": "asked",
                "rounds": 1,
                "clients": {"count": 2},
                "server": {"per_round": 1},
                "policy": {"kind": "tests.helpers.asking:Asking", "asked": [[0]], "rounds": [[0]]},
                "downlink": {"delay": {"kind": "constant", "value_s": 0.25}},
                "compute": {"delay": {"kind": "constant", "value_s": 3.0}},
                "uplink": {"delay": {"kind": "constant", "value_s": 0.5}},
            }
        ),
        tmp_path / "run",
    )
    write_trace(open_run(tmp_path / "run"), tmp_path / "trace.json")
    events = events_of(tmp_path / "trace.json")
    assert [(e["name"], e["ts"] / 1e6, e["dur"] / 1e6) for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == (2, 0)] == [
        ("compute", 1.75, 3.0),
        ("wait", 4.75, 0.0),
        ("upload", 4.75, 0.5),
        ("probe: download", 0.0, 0.25),
        ("probe: compute", 0.25, 1.0),
        ("probe: wait", 1.25, 0.0),
        ("probe: upload", 1.25, 0.5),
    ]
    assert [(e["name"], e["ts"] / 1e6) for e in events if e["ph"] == "i"] == [("delivered", 5.25), ("probe: delivered", 1.75)]
    assert {e["name"]: e["args"] for e in events if e["ph"] == "C"}["in_flight"] == {"in_flight": 0}


WORLDS = {
    "synchronous": lambda: rough(),
    "asynchronous, jammed": lambda: other("jammer", "reactive"),
    "slots": lambda: other("topology", "complete") | {"rounds": 4, "output": {"messages_table": True}},
}


@pytest.mark.parametrize("world", WORLDS)
def test_slices_of_a_track_do_not_overlap(world: str, tmp_path: Path) -> None:
    run(parse(WORLDS[world]()), tmp_path / "run")
    write_trace(open_run(tmp_path / "run"), tmp_path / "trace.json.gz")
    events = events_of(tmp_path / "trace.json.gz")
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] >= 0
            if event["pid"] != 3:  # several jammers may be on one sub-channel at once
                tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert len(tracks) > 3
    for spans in tracks.values():
        spans.sort()
        assert all(end <= start + 1e-3 for (_, end), (start, _) in itertools.pairwise(spans))
    begun, ended = ([e["id"] for e in events if e["ph"] == which] for which in "be")
    assert sorted(begun) == sorted(ended)
    assert len(set(begun)) == len(begun)
    assert (len(begun) > 0) == (world == "slots")
    assert any(e["pid"] == 3 and e["ph"] == "X" for e in events) == ("jammed" in world)


def test_some_rounds_only(tmp_path: Path) -> None:
    run(parse(rough(rounds=8)), tmp_path / "run")
    opened = open_run(tmp_path / "run")
    write_trace(opened, tmp_path / "trace.json", first=3, last=5)
    named = [event["name"] for event in events_of(tmp_path / "trace.json") if event["ph"] == "X" and event["pid"] == 1]
    assert named == ["round 3", "round 4", "round 5"]
    with pytest.raises(ValueError, match="has no round from 9 to the end"):
        write_trace(opened, tmp_path / "none.json", first=9)
    assert not (tmp_path / "none.json").exists()


def test_a_run_without_client_records_shows_its_rounds(tmp_path: Path) -> None:
    run(parse(rough(rounds=3, output={"clients_table": False})), tmp_path / "run")
    write_trace(open_run(tmp_path / "run"), tmp_path / "trace.json")
    assert {event["pid"] for event in events_of(tmp_path / "trace.json") if event["ph"] == "X"} == {1}


def test_a_broken_table_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    run(parse(rough(rounds=3)), tmp_path / "run")
    (tmp_path / "run" / "clients.parquet").write_text("nonsense")
    with pytest.raises(ValueError, match=r"clients\.parquet: is damaged \(its checksum is not the one in summary\.json\)"):
        write_trace(open_run(tmp_path / "run"), tmp_path / "trace.json")
    assert not (tmp_path / "trace.json").exists()

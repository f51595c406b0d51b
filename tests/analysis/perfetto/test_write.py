"""The timeline of a run: what it shows by hand, and that the viewer can read it."""

from __future__ import annotations

import gzip
import itertools
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from analysis import open_run, write_trace
from analysis.perfetto.columns import row_objects
from scenarios.runs.reading import parse
from scenarios.runs.run import run
from tests.helpers.networks import SHARED
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
    "jammed cables": lambda: SHARED | {"jammers": [{"name": "truck", "law": {"kind": "sweep"}, "cables": "all"}]},
    "slots": lambda: other("topology", "complete") | {"rounds": 2, "output": {"messages_table": True}},
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
    attempts_begun, ended = ([e["id"] for e in events if e["ph"] == which] for which in "be")
    assert sorted(attempts_begun) == sorted(ended)
    assert len(set(attempts_begun)) == len(attempts_begun)
    assert (len(attempts_begun) > 0) == (world == "slots")
    assert any(e["pid"] == 3 and e["ph"] == "X" for e in events) == ("jammed" in world)
    words = {e["args"]["name"].split()[0] for e in events if e["name"] == "thread_name" and e["pid"] == 3}
    assert words <= ({"cable"} if "cables" in world else {"sub-channel"})


def test_some_rounds_only(tmp_path: Path) -> None:
    run(parse(rough(rounds=8)), tmp_path / "run")
    opened = open_run(tmp_path / "run")
    write_trace(opened, tmp_path / "trace.json", first=3, last=5)
    named = [event["name"] for event in events_of(tmp_path / "trace.json") if event["ph"] == "X" and event["pid"] == 1]
    assert named == ["round 3", "round 4", "round 5"]
    with pytest.raises(ValueError, match="has no round from 9 to the end"):
        write_trace(opened, tmp_path / "none.json", first=9)
    assert not (tmp_path / "none.json").exists()


def test_of_slots_the_attempts_in_them_are_shown(tmp_path: Path) -> None:
    tables = {
        "name": "slots",
        "rounds": 4,
        "clients": {"count": 3},
        "server": {"kind": "fl-fa", "per_round": 1},
        "slots": {"rounds": 5},
        "policy": {"kind": "random"},
        "opinions": {"synthetic": {"worth": [0.1, 0.2, 0.3]}},
        "compute": {"delay": {"kind": "constant", "value_s": 0.25}},
        "channels": {"count": 2, "delay": {"kind": "constant", "value_s": 0.75}},
        "scheduler": {"kind": "random"},
        "jammers": [{"name": "sweeper", "law": {"kind": "sweep"}}],
    }
    run(parse(tables), tmp_path / "run")
    write_trace(open_run(tmp_path / "run"), tmp_path / "trace.json", first=2, last=3)
    slices = [event for event in events_of(tmp_path / "trace.json") if event["ph"] == "X"]
    assert [event["name"] for event in slices if event["pid"] == 1] == ["round 2", "round 3"]
    # Slots last 5 s, of one communication round a second.
    for name in ("compute", "sweeper"):
        assert sorted(event["ts"] / 1e6 for event in slices if event["name"] == name) == [float(s) for s in range(5, 15)]


def test_of_slots_the_jams_of_messages_in_them_are_shown(tmp_path: Path) -> None:
    jammed = other("topology", "complete") | {"rounds": 3, "jammers": [{"name": "sweeper", "law": {"kind": "sweep"}}]}
    run(parse(jammed), tmp_path / "run")
    done = open_run(tmp_path / "run")
    assert done.rounds_per_row > 1
    write_trace(done, tmp_path / "trace.json", first=2, last=3)
    shown = [event for event in events_of(tmp_path / "trace.json") if event["ph"] == "X" and event["name"] == "sweeper"]
    assert len(shown) == (done.jams["round"] >= 2).sum() > 0


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


NUMBER = (int, float)
REQUIRED: dict[str, dict[str, Any]] = {
    "X": {"name": str, "pid": int, "tid": int, "ts": NUMBER, "dur": NUMBER, "args": dict},
    "C": {"name": str, "pid": int, "ts": NUMBER, "args": dict},
    "i": {"name": str, "pid": int, "tid": int, "ts": NUMBER, "s": str},
    "b": {"name": str, "cat": str, "id": int, "pid": int, "tid": int, "ts": NUMBER},
    "e": {"name": str, "cat": str, "id": int, "pid": int, "tid": int, "ts": NUMBER},
    "s": {"name": str, "cat": str, "id": int, "pid": int, "tid": int, "ts": NUMBER},
    "f": {"name": str, "cat": str, "id": int, "pid": int, "tid": int, "ts": NUMBER, "bp": str},
    "M": {"name": str, "pid": int, "args": dict},
}
"""What the description of the Trace Event Format asks of each phase that is used here (Google, "Trace Event Format", 2016)."""
METADATA = {
    "process_name": {"name": str},
    "process_sort_index": {"sort_index": int},
    "thread_name": {"name": str},
    "thread_sort_index": {"sort_index": int},
}


def check_format(events: list[dict[str, Any]]) -> None:
    """Assert that events are as the format's description has them."""
    open_async: dict[tuple[str, int], float] = {}
    flows: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    named, used = set(), set()
    for event in events:
        fields = REQUIRED[event["ph"]]
        for name, kind in fields.items():
            assert isinstance(event[name], kind), event
        assert not {*event} - {"ph", "tid", "args", *fields}, event
        match event["ph"]:
            case "M":
                kinds = METADATA[event["name"]]
                assert {name: type(value) for name, value in event["args"].items()} == kinds
                if event["name"] == "thread_name":
                    named.add((event["pid"], event["tid"]))
                elif event["name"] == "process_name":
                    named.add((event["pid"], None))
            case "C":
                assert all(isinstance(value, NUMBER) for value in event["args"].values())
            case "i":
                assert event["s"] in ("g", "p", "t")
            case "b":
                open_async[event["cat"], event["id"]] = event["ts"]
            case "e":
                assert open_async.pop((event["cat"], event["id"])) <= event["ts"]
            case "s" | "f":
                flows[event["cat"], event["id"]].append(event)
        if event["ph"] in "XisfbeC":
            used |= {(event["pid"], None)} | ({(event["pid"], event["tid"])} if "tid" in event else set())
    assert not open_async
    assert used == named, "every track that is used has a name, and no other"
    slices = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for both in flows.values():
        assert [event["ph"] for event in both] == ["s", "f"]
        assert both[0]["ts"] <= both[1]["ts"] + 1e-6
        for event in both:
            # The viewer ties an arrow's end to the slice around it.
            assert event.get("bp", "e") == "e"
            assert any(start <= event["ts"] < end for start, end in slices[event["pid"], event["tid"]]), event


@pytest.mark.each_nth(4)
@pytest.mark.parametrize("world", WORLDS)
def test_every_event_is_as_the_format_says(world: str, tmp_path: Path) -> None:
    run(parse(WORLDS[world]() | ({"rounds": 8} if world != "slots" else {})), tmp_path / "run")
    write_trace(open_run(tmp_path / "run"), tmp_path / "trace.json.gz")
    events = events_of(tmp_path / "trace.json.gz")
    check_format(events)
    assert any(event["ph"] == "s" for event in events)


def test_groups_of_clients_fold_and_tracks_have_names(tmp_path: Path) -> None:
    run(parse(rough(rounds=6)), tmp_path / "run")
    opened = open_run(tmp_path / "run")
    write_trace(opened, tmp_path / "trace.json")
    events = events_of(tmp_path / "trace.json")
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert sorted(names.values()) == ["clients: a", "clients: b", "server"]
    of = {(names[e["pid"]].removeprefix("clients: "), e["args"]["name"]) for e in events if e["name"] == "thread_name"}
    rows = opened.clients[["group", "client"]].astype({"group": str}).drop_duplicates()
    expected = {(group, f"client {client}") for group, client in rows.itertuples(index=False)}
    assert of == expected | {("server", "rounds")}


def test_arrows_lead_from_the_round_to_the_download_and_from_a_delivery_to_its_round(tmp_path: Path) -> None:
    run(parse(rough(rounds=6)), tmp_path / "run")
    opened = open_run(tmp_path / "run")
    write_trace(opened, tmp_path / "trace.json")
    events = events_of(tmp_path / "trace.json")
    models = [e for e in events if e["ph"] == "s" and e["cat"] == "model"]
    updates = [e for e in events if e["ph"] == "f" and e["cat"] == "update"]
    rows = opened.clients
    assert len(models) == int((rows["bytes_down"] > 0).sum())
    assert sorted(e["ts"] / 1e6 for e in updates) == pytest.approx(
        sorted(rows.loc[rows["outcome"] == "delivered", "outcome_s"]), abs=2e-9
    )
    assert all((e["pid"], e["tid"]) == (1, 0) for e in (*models, *updates))


def test_arrows_lead_from_the_sender_of_a_message_to_its_receiver(tmp_path: Path) -> None:
    tables = WORLDS["slots"]()
    run(parse(tables | {"peers": tables["peers"] | {"channel": {"kind": "bernoulli", "success": 0.7}}}), tmp_path / "run")
    opened = open_run(tmp_path / "run")
    write_trace(opened, tmp_path / "trace.json")
    arrows: dict[int, dict[str, dict[str, Any]]] = defaultdict(dict)
    for event in events_of(tmp_path / "trace.json"):
        if event["ph"] in "sf" and event["cat"] == "message":
            arrows[event["id"]][event["ph"]] = event
    found = sorted((both["s"]["tid"], both["f"]["tid"], round(both["f"]["ts"] - both["s"]["ts"], 3)) for both in arrows.values())
    rows = opened.messages
    arrived = rows[rows["outcome"] == "delivered"]
    assert 0 < len(arrived) < len(rows)
    took_us = ((arrived["end_s"] - arrived["sent_s"]) * 1e6).round(3)
    assert found == sorted(zip(arrived["source"], arrived["target"], took_us, strict=True))


def test_values_are_written_as_json_wants_them() -> None:
    table = pa.table(
        {
            "leak": pa.array([1.5, math.inf, math.nan, None]),
            "cause": pa.chunked_array([pa.array(['a "b"', None]).dictionary_encode(), pa.array(["c", "d"]).dictionary_encode()]),
            "round": pa.array([1, 2, None, 4]),
            "good": pa.array([True, None, False, True]),
            "empty": pa.array([None] * 4, pa.float64()),
        }
    )
    told = [json.loads(text) for text in row_objects(table, ("leak", "cause", "round", "good", "empty", "absent"))]
    assert told == [
        {"leak": 1.5, "cause": 'a "b"', "round": 1, "good": True},
        {"round": 2},
        {"cause": "c", "good": False},
        {"cause": "d", "round": 4, "good": True},
    ]

"""Declared changes against true ones: by hand, in summaries, and from the tables of a run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import netsim
from analysis.api import open_run
from analysis.breakpoints.changes import change_table, true_changes
from analysis.detections.measure import change_rounds, detection_totals, run_detections, score
from scenarios.runs.reading import parse
from scenarios.runs.run import run


class Told(NamedTuple):
    round: int
    channel: int
    jammed: int = 0


def test_causes_and_delays_by_hand() -> None:
    # Changes first hold in rounds 11, 21, 31 and 41. Nothing is declared from 21 to 30, nor from 41 on.
    told = [Told(4, 0), Told(11, 1), Told(15, 1, jammed=2), Told(20, 2), Told(33, 0, jammed=1), Told(40, 1)]
    found = score(told, (11, 21, 31, 41))
    assert found.causes == ("false alarm", "change", "jamming", "false alarm", "change", "false alarm")
    assert found.delays_rounds == (1, 3)
    assert found.mean_delay_rounds == 2.0
    assert found.missed == 2
    assert (found.found, found.jamming, found.false_alarms) == ({1: 1, 0: 1}, {1: 1}, {0: 1, 2: 1, 1: 1})


def test_without_known_changes_causes_are_not_told_apart() -> None:
    nothing = score([Told(3, 0)], None)
    assert (nothing.causes, nothing.missed) == ((), 0)
    assert math.isnan(nothing.mean_delay_rounds)
    totals = detection_totals([Told(3, 0)], None)
    assert totals["declared"] == 1
    assert {totals[key] for key in ("changes", "found", "missed", "mean_delay_rounds", "by_jamming", "false_alarms")} == {None}


def test_segments_of_equal_means_are_no_change() -> None:
    channels = {"first_rounds": [5, 9, 20], "means": [[0.1, 0.2], [0.1, 0.2], [0.3, 0.2], [0.3, 0.1], [0.5, 0.5]]}
    assert change_rounds(channels) == (9, 20)
    assert change_rounds(None) is None


PIECES: dict[str, Any] = {
    "name": "pieces",
    "rounds": 1200,
    "clients": {"count": 1},
    "server": {"kind": "asynchronous"},
    "scheduler": {"kind": "glr-cucb", "alpha": 0.2},
    "channels": {
        "count": 2,
        "states": {"kind": "piecewise-stationary", "starts": [401, 801], "means": [[0.9, 0.1], [0.1, 0.6], [0.9, 0.1]]},
    },
}


@pytest.mark.parametrize("unit", ["rounds", "seconds"])
def test_a_run_records_what_its_scheduler_declared_and_scores_it(unit: str, tmp_path: Path) -> None:
    tables = PIECES
    if unit == "seconds":
        # Rounds last half a second: round 401 is the first from 200 s on.
        states = PIECES["channels"]["states"] | {"starts": [200.0, 400.0], "unit": "seconds"}
        server = {"kind": "asynchronous", "round_s": 0.5}
        tables = PIECES | {"channels": {"count": 2, "states": states}, "server": server}
    summary = run(parse(tables), tmp_path / "run")
    opened = open_run(tmp_path / "run")
    found = run_detections(opened)
    rows = list(opened.detections.itertuples())
    assert found.changes == (401, 801)
    assert 0 < found.missed + len(found.delays_rounds) == 2
    assert found.delays_rounds
    # Changes by 0.5 and more; the guarantee of the test needs some 200 plays of one sub-channel.
    assert all(1 <= delay < 400 for delay in found.delays_rounds)
    assert [row.round for row in rows] == summary["aoi"]["restarts"]
    assert {row.detector for row in rows} == {"glr-exact"}
    assert all(row.time_s == row.round * (0.5 if unit == "seconds" else 0.0) for row in rows)
    plays = opened.clients
    since = 0
    for row in rows:
        seen = plays[(plays["round"] > since) & (plays["round"] <= row.round) & (plays["channel"] == row.channel)]
        assert row.observations == len(seen)
        since = row.round
    assert summary["aoi"]["detections"] == detection_totals(rows, summary["aoi"]["channels"])
    assert summary["aoi"]["successes"] == [int((plays["outcome"] == "delivered").sum())]


def test_a_restart_that_jamming_caused_is_told_as_such(tmp_path: Path) -> None:
    jammer = {"name": "pulse", "law": {"kind": "random"}, "start": 400, "reach": [0]}
    states = {"kind": "stationary", "means": [0.95, 0.3]}
    study = parse(PIECES | {"channels": {"count": 2, "states": states}, "jammers": [jammer]})
    summary = run(study, tmp_path / "run")
    opened = open_run(tmp_path / "run")
    found, rows = run_detections(opened), list(opened.detections.itertuples())
    assert rows
    assert found.causes[0] == "jamming"
    first = rows[0]
    hits = opened.clients.query("jammed and channel == @first.channel and round <= @first.round")
    assert first.jammed == len(hits) > 0
    assert summary["aoi"]["detections"]["by_jamming"] == sum(found.jamming.values()) >= 1
    assert summary["aoi"]["detections"]["changes"] == 0


def test_a_run_of_another_server_has_no_such_table(tmp_path: Path) -> None:
    tables = {"name": "sync", "rounds": 3, "clients": {"count": 2}, "server": {"per_round": 1}, "policy": {"kind": "random"}}
    run(parse(tables), tmp_path / "run")
    opened = open_run(tmp_path / "run")
    assert not opened.has_detections
    assert run_detections(opened) == score((), None)


CHANGED = {"kind": "piecewise-stationary", "starts": [201], "means": [[0.95, 0.9, 0.1], [0.1, 0.2, 0.95]]}
WORLD: dict[str, Any] = {
    "name": "changed",
    "rounds": 300,
    "clients": {"count": 6},
    "server": {"kind": "synchronous", "per_round": 2},
    "policy": {"kind": "random"},
    "channels": {"count": 3, "states": CHANGED, "delay": {"kind": "constant", "value_s": 0.1}},
    "scheduler": {"kind": "glr-cucb"},
    "compute": {"delay": {"kind": "constant", "value_s": 1.0}, "changes": [{"at_round": 101, "delay": {"value_s": 3.0}}]},
    "jammers": [{"name": "late", "law": {"kind": "sweep"}, "start": 290}],
}
SLOTS = {"rounds": 30, "server": {"kind": "fl-fa", "per_round": 2}, "slots": {"rounds": 10}, "opinions": {"synthetic": {}}}


def test_reports_and_breakpoints_know_changes_under_every_server() -> None:
    found = netsim.run(WORLD)
    told = found.summary["sub_channels"]["detections"]
    scored = run_detections(found)
    assert scored.changes == (201,)
    assert (told["changes"], told["found"], told["mean_delay_rounds"]) == (1, 1, scored.mean_delay_rounds)
    assert true_changes(found) == [101, 201]
    # What was declared after the change of the sub-channels was not late by 100 rounds after that of local training.
    assert change_table(found)["declared_round"].isna().tolist() == [True, False]


@pytest.mark.parametrize("end_s", [None, 715.0])
def test_changes_under_slots_are_counted_in_communication_rounds(end_s: float | None) -> None:
    found = netsim.run(WORLD | SLOTS | ({} if end_s is None else {"time_limit_s": end_s}))
    aoi = found.summary["sub_channels"]
    assert aoi["channels"]["first_rounds"] == [201]
    (declared,) = aoi["restarts"][:1]
    assert 201 <= declared <= 300
    assert (aoi["detections"]["changes"], aoi["detections"]["mean_delay_rounds"]) == (1, declared - 200)
    assert run_detections(found).changes == (201,)
    # Of breakpoints a row is a slot.
    assert true_changes(found) == [11, 21]
    assert change_table(found)["declared_round"].tolist()[1] == (declared - 1) // 10 + 1
    # Dwells in rounds of a slot that the end of the run cut short are on no axis.
    assert found.jams["round"].max() > 10 * len(found.rounds) or end_s is None
    for name in ("states", "detections", "course"):
        assert found.plot(name).axes


def test_a_jam_in_a_round_that_never_closed_is_on_no_axis() -> None:
    found = netsim.run(WORLD | {"time_limit_s": 697.0})
    assert found.jams["round"].max() == len(found.rounds) + 1
    assert found.plot("states").axes

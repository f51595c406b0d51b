"""Published flows: all cases of the file, the command, and files that cannot be played."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from netsim.network.flows.corrections import PRESETS, Corrections
from scenarios.cli.main import main
from scenarios.papers.flow_cases import FILE, corrections_of, ends, read_cases

FOUND = ends(read_cases(None), "flow-cases.json")


@pytest.mark.parametrize("end", FOUND, ids=lambda end: f"{end.case}: {end.flow}")
def test_flows_end_when_others_say_they_do(end: Any) -> None:
    assert abs(end.simulated - float(end.expected)) <= 1e-6 * float(end.expected)
    assert end.agrees


def test_every_expected_end_of_the_file_is_judged() -> None:
    content = json.loads(FILE.read_text())
    expected = sum(len(case["expect_end_s"]) for case in content["cases"])
    expected += sum(len(unit["rates"]) for unit in content["solver_units"])
    assert len(FOUND) == expected == 32


@pytest.mark.parametrize(
    ("model", "corrections", "same_links"),
    [
        ("raw", Corrections(), True),
        ("LV08", PRESETS["lv08"], True),
        ("LV08, split duplex", PRESETS["lv08"], False),
        ("CM02, no crosstraffic", Corrections(window_bytes=4_194_304.0, rtt_fair=True), True),
        ("CM02, weight-S 2, window 9", Corrections(window_bytes=9.0, rtt_fair=True, weight_s=2.0, reverse_share=0.05), True),
        ("cm02, no RTT bias", Corrections(window_bytes=4_194_304.0, reverse_share=0.05), True),
    ],
)
def test_models_in_words(model: str, corrections: Corrections, same_links: bool) -> None:
    assert corrections_of(model) == (corrections, same_links)


CASE: dict[str, Any] = {
    "name": "one",
    "model": "raw",
    "links": {"a": {"bytes_per_s": 100, "latency_s": 0.5, "shared": True}},
    "flows": [{"id": "x", "start_s": 1, "bytes": 250, "route": ["a"]}],
    "expect_end_s": {"x": 4},
}


def reproduce(monkeypatch: Any, tmp_path: Path, content: Any) -> int:
    file = tmp_path / "cases.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    command = ["netsim", "reproduce", "flow_cases", "--cases", str(file), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as exit:
        main()
    return int(exit.value.code or 0)


@pytest.mark.parametrize(("expected", "code"), [(4, 0), (4.0, 0), (4.000003, 0), (4.00001, 1), (4.2, 1)])
def test_a_difference_ends_the_command_with_1(monkeypatch: Any, tmp_path: Path, capsys: Any, expected: float, code: int) -> None:
    assert reproduce(monkeypatch, tmp_path, {"cases": [CASE | {"expect_end_s": {"x": expected}}]}) == code
    printed = capsys.readouterr().out
    assert ("DIFFERS" in printed) == bool(code)
    assert (tmp_path / "out" / "result.md").exists()


def test_a_flow_that_never_ends_differs(monkeypatch: Any, tmp_path: Path, capsys: Any) -> None:
    case = CASE | {"changes": [{"at_s": 2, "link": "a", "bytes_per_s": 0}]}
    assert reproduce(monkeypatch, tmp_path, {"cases": [case]}) == 1
    assert "never" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nonsense", "is no JSON"),
        ([], 'must be an object with a list "cases"'),
        ({"cases": [3]}, "case 1: must be an object"),
        ({"cases": [CASE | {"model": "tcp"}]}, "'tcp' is no model; there are raw, CM02, LV08"),
        ({"cases": [CASE | {"model": "raw, fast"}]}, "'fast' is no option; there are no crosstraffic"),
        ({"cases": [{**CASE, "flows": [{"id": "x", "bytes": 1, "route": ["b"]}]}]}, "route = 'b': is no link; there are a"),
        ({"cases": [{**CASE, "flows": [{"id": "x", "route": ["a"]}]}]}, "case 1 (one): has no 'bytes'"),
        ({"cases": [{**CASE, "links": {"a": {"bytes_per_s": -1}}}]}, "bytes_per_s = -1.0: of link 'a' must be >= 0"),
        ({"cases": [{**CASE, "expect_end_s": {"y": 1}}]}, "expect_end_s: 'y' is no flow; there are x"),
        ({"cases": [{**CASE, "flows": CASE["flows"] * 2}]}, "two have one id"),
        ({"cases": [{**CASE, "flows": [{"id": "x", "bytes": "many", "route": ["a"]}]}]}, "could not convert string to float"),
    ],
)
def test_bad_files_are_refused(monkeypatch: Any, tmp_path: Path, capsys: Any, content: Any, message: str) -> None:
    assert reproduce(monkeypatch, tmp_path, content) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()


def test_cases_belong_to_flow_cases_alone(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["netsim", "reproduce", "safa_table", "--cases", str(FILE)])
    with pytest.raises(SystemExit) as exit:
        main()
    assert exit.value.code == 2
    assert "safa_table reads no cases" in capsys.readouterr().err

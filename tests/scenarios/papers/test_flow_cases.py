"""Published flows: all cases of the file, the command, and files that cannot be played."""

from __future__ import annotations

import json
import random
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from netsim.network.flows.corrections import PRESETS, Corrections
from scenarios.cli.main import main
from scenarios.papers.flow_cases import FILE, parse_model, play_cases, read_cases
from tests.helpers.max_min import Demand, rates

FOUND = play_cases(read_cases(None), "flow-cases.json")


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
    assert parse_model(model) == (corrections, same_links)


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
        ({"cases": [{**CASE, "flows": [{"id": "x", "bytes": "many", "route": ["a"]}]}]}, "bytes = many: must be a finite number"),
        ({"cases": [{**CASE, "flows": [{"id": 10, "bytes": 1, "route": ["a"]}]}]}, "case 1 (one): id = 10: must be text"),
        ({"cases": [{**CASE, "flows": [7]}]}, "flows[0] = 7: must be an object"),
        ({"cases": [{**CASE, "flows": [{"id": "x", "bytes": 1, "route": None}]}]}, "route = None: must be a list of texts"),
        ({"cases": [{**CASE, "links": None}]}, "links = None: must be an object"),
        ({"cases": [{**CASE, "links": {"a": 100}}]}, "links.a = 100: must be an object"),
        ({"cases": [{**CASE, "changes": None}]}, "changes = None: must be a list of objects"),
        ({"cases": [{**CASE, "model": None}]}, "model = None: must be text"),
        ({"cases": [{**CASE, "expect_end_s": {"x": None}}]}, "x = None: must be a finite number"),
        ({"cases": [{**CASE, "expect_end_s": {"x": "soon"}}]}, "x = soon: must be a finite number"),
        ({"cases": [{**CASE, "expect_end_s": {"x": float("inf")}}]}, "is no JSON (Infinity is no number of JSON)"),
        ({"cases": [{**CASE, "expect_end_s": {"x": 1e308}, "tolerance": True}]}, "tolerance = True: must be a finite number"),
        (json.dumps({"cases": [CASE]}).replace("250", "1e999"), "bytes = 1E+999: must be a finite number"),
        ('{"solver_units": [{"capacity": {"a": 1}, "flows": [{"use": {"a": 1}}], "rates": []}]}', "must be a list of 1 numbers"),
        ('{"solver_units": [{"capacity": {"a": null}, "flows": [], "rates": []}]}', "a = None: must be a finite number"),
        ("[" * 100_000, "is no JSON"),
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


MODELS = (
    "raw",
    "CM02",
    "LV08",
    "LV08, split duplex",
    "CM02, no crosstraffic, weight-S 300",
    "LV08, no RTT bias",
    "raw, crosstraffic",
)


def drawn_case(seed: int) -> dict[str, Any]:
    """Return a random case without its play_cases: fat pipes, links that change, flows of 0 bytes and within a node."""
    rng = random.Random(seed)
    links = {
        f"l{number}": {
            "bytes_per_s": rng.choice([100, 250, 1000, 4000]),
            "latency_s": rng.choice(["0", "0.01", "0.5"]),
            "shared": rng.random() < 0.8,
        }
        for number in range(rng.randint(1, 5))
    }
    flows = []
    for number in range(rng.randint(2, 7)):
        route = rng.sample(list(links), rng.randint(0, min(3, len(links))))
        flows.append(
            {"id": f"f{number}", "start_s": rng.choice(["0", "0.3", "2"]), "bytes": rng.choice([0, 1, 700, 5000]), "route": route}
        )
    changes = []
    for number in range(rng.randint(0, 3)):
        what = {"bytes_per_s": rng.choice([50, 800, 3000])} if rng.random() < 0.6 else {"latency_s": rng.choice(["0.02", "0.2"])}
        changes.append({"at_s": 1 + number, "link": rng.choice(list(links))} | what)
    window = rng.choice([None, None, 40, 2000])
    model = rng.choice(MODELS) + (f", window {window}" if window else "")
    return {"name": f"drawn {seed}", "model": model, "links": links, "flows": flows, "changes": changes}


def exact(value: Any) -> Fraction:
    """Return a printed number as it stands."""
    return Fraction(str(value))


def exact_ends(case: dict[str, Any]) -> dict[str, float]:
    """Return the play_cases of all flows, in rational numbers, by the definition of the rates alone."""
    corrections, same_links = parse_model(case["model"])
    capacity = {name: exact(link["bytes_per_s"]) for name, link in case["links"].items()}
    delay = {name: exact(link["latency_s"]) for name, link in case["links"].items()}
    fat = {name for name, link in case["links"].items() if not link["shared"]}
    waiting = {flow["id"]: (exact(flow["start_s"]), flow) for flow in case["flows"]}
    begins: dict[str, tuple[Fraction, dict[str, Any]]] = {}
    left: dict[str, tuple[Fraction, dict[str, Any]]] = {}
    changes = [(exact(change["at_s"]), change) for change in case["changes"]]
    found: dict[str, float] = {}
    now = Fraction(0)

    def demand(flow: dict[str, Any]) -> Demand:
        uses: dict[str, Fraction] = {}
        for name in flow["route"]:
            back = exact(corrections.reverse_share) if same_links and name not in fat else Fraction(0)
            uses[name] = 1 + back
        whole = sum((delay[name] for name in flow["route"]), Fraction(0))
        bound = min(capacity[name] for name in flow["route"])
        if corrections.window_bytes < float("inf") and whole:
            bound = min(bound, exact(corrections.window_bytes) / (2 * whole))
        penalty = Fraction(1)
        if corrections.rtt_fair:
            penalty = whole + exact(corrections.weight_s) * sum(1 / capacity[name] for name in flow["route"]) or Fraction(1)
        return Demand(uses, penalty, bound)

    while waiting or begins or left:
        speed = dict(zip(left, rates(capacity, fat, [demand(flow) for _, flow in left.values()]), strict=True))
        due = [now + rest / speed[name] for name, (rest, _) in left.items() if speed[name]]
        next_s = min([time for time, _ in [*waiting.values(), *begins.values(), *changes]] + due)
        left = {name: (rest - speed[name] * (next_s - now), flow) for name, (rest, flow) in left.items()}
        now = next_s
        found |= {name: float(now) for name, (rest, _) in left.items() if rest == 0}
        left = {name: one for name, one in left.items() if name not in found}
        for at_s, change in [one for one in changes if one[0] == now]:
            changes.remove((at_s, change))
            (capacity if "bytes_per_s" in change else delay)[change["link"]] = exact(
                change.get("bytes_per_s", change.get("latency_s"))
            )
        for name, (_, flow) in [one for one in waiting.items() if one[1][0] == now]:
            del waiting[name]
            begins[name] = now + exact(corrections.latency_factor) * sum(delay[link] for link in flow["route"]), flow
        for name, (_, flow) in [one for one in begins.items() if one[1][0] == now]:
            del begins[name]
            if flow["bytes"] and flow["route"]:
                left[name] = exact(flow["bytes"]) / exact(corrections.bandwidth_factor), flow
            else:
                found[name] = float(now)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_drawn_cases_against_rational_numbers(seed: int) -> None:
    case = drawn_case(seed)
    expected = exact_ends(case)
    found = play_cases({"cases": [case | {"expect_end_s": expected}]}, "drawn")
    assert {end.flow: end.simulated for end in found} == pytest.approx(expected, rel=1e-9, abs=1e-12)

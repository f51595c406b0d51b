"""The two accounts of energy, by client and by phase, under every server, and in a run that is resumed."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from analysis.api import open_run
from analysis.perfetto.write import write_trace
from netsim.simulation import Simulation
from scenarios.runs.in_memory import run_in_memory
from scenarios.runs.reading import parse
from scenarios.runs.run import run
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.random_worlds import copied, random_tables, same
from tests.helpers.rough_scenarios import BUFFERED, COMPASS, NOBODY_SELECTS, other, rough
from tests.helpers.suites import each_nth


def both(tables: dict[str, Any]) -> dict[str, Any]:
    scenario = parse(tables)
    done = run_in_memory(build(scenario), scenario)
    told = done.summary()
    assert told["books"]["problems"] == []
    spent = told["energy"]
    parts = spent["attempts_j"] + spent["besides_j"] + spent["idle_j"]
    assert parts == pytest.approx(spent["total_j"], rel=1e-9)
    return told


DRAWN = {"idle_w": {"from": 0.2, "to": 1.0}, "compute_w": {"from": 4.0, "to": 6.0}, "send_w": 3.0, "receive_w": 2.0, "off_w": 0.1}
CHARGED = {
    "capacity_j": 25.0,
    "initial": {"from": 0.3, "to": 1.0},
    "threshold": 0.3,
    "charge_w": 4.0,
    "charging": {"kind": "markov", "mean_on_s": 5.0, "mean_off_s": 9.0},
}
SERVERS: dict[str, dict[str, Any]] = {
    "synchronous": rough(),
    "cancel": rough(server={"per_round": 5, "deadline_s": 1.5, "stragglers": "cancel", "when_short": "proceed"}),
    "semi-synchronous": rough(server={"kind": "semi-synchronous", "per_round": 4, "round_s": 1.5}),
    "buffered": BUFFERED,
    "compass": COMPASS,
    "safa": NOBODY_SELECTS | {"server": {"kind": "safa", "per_round": 3, "deadline_s": 1.5, "lag_tolerance": 1}},
    "asynchronous": other("scheduler", "glr-cucb"),
    "asynchronous-fixed": other("scheduler", "glr-cucb") | {"server": {"kind": "asynchronous", "round_s": 0.1}},
    "fl-fa": other("policy", "super-arm-ucb"),
    "fl-da": other("topology", "complete"),
}
for slotted in ("fl-fa", "fl-da"):
    SERVERS[slotted]["opinions"] |= {"test": {"kind": "constant", "value_s": 0.5}, "delay": {"kind": "constant", "value_s": 0.25}}
    SERVERS[slotted]["availability"] = {"kind": "markov", "mean_on_s": 20.0, "mean_off_s": 2.0}
SERVERS["fl-da"]["peers"]["bandwidth_bytes_per_s"] = 1000.0
SERVERS["asynchronous"]["availability"] = {"kind": "markov", "mean_on_s": 2.0, "mean_off_s": 1.0}


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(("kind", "batteries"), each_nth(3, itertools.product(SERVERS, [False, True])))
def test_both_accounts_agree_under_every_server(kind: str, batteries: bool) -> None:
    tables = SERVERS[kind] | {"energy": DRAWN | ({"battery": CHARGED} if batteries else {})}
    told = both(tables)
    assert told["energy"]["total_j"] > 0
    assert (told["energy"]["besides_j"] > 0) == kind.startswith("fl-")


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("seed", each_nth(4, range(20), first=1))
def test_both_accounts_agree_in_random_worlds_and_a_resumed_run_is_the_same(seed: int, tmp_path: Any) -> None:
    tables = random_tables(seed, tmp_path) | {"energy": DRAWN | {"battery": CHARGED | {"capacity_j": 12.0}}}
    both(tables)
    straight, halves = _played(tables, None), _played(tables, 5)
    assert straight[0] == halves[0]
    assert same(straight[1], halves[1])


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("kind", each_nth(2, SERVERS))
def test_a_resumed_run_is_the_same_under_every_server(kind: str) -> None:
    tables = SERVERS[kind] | {"energy": DRAWN | {"battery": CHARGED}}
    straight, halves = _played(tables, None), _played(tables, 7)
    assert straight[0] == halves[0]
    assert same(straight[1], halves[1])


def _played(tables: dict[str, Any], stop: int | None) -> tuple[str, Any]:
    """The records of a run and its last state, interrupted after `stop` rounds."""
    records = MemoryRecorder()

    def fresh() -> Simulation:
        simulation = build(parse(tables)).simulation
        simulation.record_to(records)
        return simulation

    simulation = fresh()
    if stop is not None:
        simulation.run(until_round=stop)
        state = copied(simulation.state_dict())
        simulation = fresh()
        simulation.load_state_dict(state)
    simulation.run()
    return repr((records.rounds, records.updates)), copied(simulation.state_dict())


def test_a_charger_that_comes_after_the_state_was_saved_still_saves_the_update(tmp_path: Any) -> None:
    path = tmp_path / "charger.csv"
    path.write_text("client,on_s,off_s\n0,7,9\n")
    charging = {"kind": "trace", "path": str(path)}
    tables = {
        "name": "charger",
        "rounds": 4,
        "clients": {"count": 2},
        "server": {"kind": "semi-synchronous", "per_round": 2, "round_s": 2.0},
        "policy": {"kind": "random"},
        "compute": {"delay": {"kind": "constant", "value_s": [7.5, 0.5]}},
        "energy": {"compute_w": 5.0, "battery": {"capacity_j": 36.0, "charge_w": 4.0, "charging": charging}},
    }
    # 36 J last for 7.2 s, and a second more of them once the charger supplies 4 of 5 W from 7 s on.
    straight, halves = _played(tables, None), _played(tables, 2)
    assert straight[0] == halves[0]
    assert "outcome='delivered', selected_s=0.0" in straight[0]
    assert "compute_end_s=7.5" in straight[0]


def test_a_timeline_shows_energy_and_empty_batteries(tmp_path: Path) -> None:
    tables = SERVERS["synchronous"] | {"energy": DRAWN | {"battery": CHARGED | {"capacity_j": 12.0}}}
    run(parse(tables), tmp_path / "run")
    write_trace(open_run(tmp_path / "run"), tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any(event["args"].get("compute_j", 0) > 0 for event in events if event["name"] == "compute")
    assert any(event["args"]["batteries_empty"] > 0 for event in events if event["name"] == "batteries_empty")
    assert any(event["args"].get("cause") == "battery" for event in events if event["name"] == "aborted")

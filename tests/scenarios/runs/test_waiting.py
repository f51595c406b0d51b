"""What a round that takes long says that it waits for."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from scenarios.runs import waiting
from scenarios.runs.reading import override, parse
from scenarios.runs.run import run, simulate
from scenarios.runs.waiting import Watch, describe_wait, watch_run
from scenarios.sweeps.options import Machines
from scenarios.sweeps.sweep import plan, sweep
from scenarios.sweeps.workers import SweepProgress
from scenarios.wiring.simulation import build
from tests.helpers.rough_scenarios import rough
from tests.helpers.small_scenario import Shell, small_tables
from tests.reliability.swarm import different

TIMES: dict[str, Any] = {
    "clients": {"count": 3},
    "server": {"per_round": 3},
    "policy": {"kind": "all"},
    "rounds": 2,
    "downlink": {"delay": {"kind": "constant", "value_s": [1.0, 10.0, 1.0]}},
    "compute": {"delay": {"kind": "constant", "value_s": [10.0, 1.0, 1.0]}},
    "uplink": {"delay": {"kind": "constant", "value_s": 20.0}},
}


@pytest.mark.parametrize(
    ("until_s", "told"),
    [
        (0.5, "3 updates (3 downloading)"),
        (1.5, "3 updates (1 downloading, 2 computing)"),
        (5.0, "3 updates (1 downloading, 1 computing, 1 sending)"),
        (30.5, "2 updates (2 sending)"),
    ],
)
def test_it_waits_for_updates_in_their_phases(until_s: float, told: str) -> None:
    simulation = build(parse({"name": "waits", **TIMES, "time_limit_s": until_s, "uplink": TIMES["uplink"]})).simulation
    simulation.run()
    assert describe_wait(simulation) == told


def test_it_waits_for_a_sub_channel() -> None:
    tables = {"name": "waits", **TIMES, "time_limit_s": 13.0, "uplink": TIMES["uplink"] | {"sub_channels": 1}}
    simulation = build(parse(tables)).simulation
    simulation.run()
    assert describe_wait(simulation) == "3 updates (2 waiting to send, 1 sending)"


def test_it_waits_for_clients_that_are_away(tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("client,on_s,off_s\n0,86400,90000\n1,86400,90000\n2,86400,90000\n")
    there = {"kind": "trace", "path": str(tmp_path / "there.csv")}
    simulation = build(parse({"name": "waits", **TIMES, "time_limit_s": 50.0, "availability": there})).simulation
    simulation.run()
    told = "clients or messages: no update is under way, 0 of 3 clients are present; the next client comes or goes at 86,400 s"
    assert describe_wait(simulation) == told


def test_after_the_last_round_no_further_one_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    simulation = build(parse({"name": "waits", **TIMES, "rounds": 1})).simulation
    simulation.run()
    monkeypatch.setattr(waiting, "LONG_S", 0.0)
    watch = Watch(said.append)
    watch.begin(simulation)
    watch.check_round()
    assert said == ["round 1, the last, has closed; its model is tested"]


def test_before_the_run_begins_no_round_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    simulation = build(parse({"name": "waits", **TIMES})).simulation
    monkeypatch.setattr(waiting, "LONG_S", 0.0)
    watch = Watch(said.append)
    watch.begin(simulation)
    watch.check_round()
    watch.check_round()
    assert said == ["the workers that train are starting"]


def test_a_round_is_told_of_once_it_has_taken_long(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    watch = Watch(said.append)
    simulation = build(parse({"name": "waits", **TIMES, "time_limit_s": 5.0})).simulation
    simulation.run()
    watch.check_round()
    watch.begin(simulation)
    watch.check_round()
    assert said == []
    monkeypatch.setattr(waiting, "LONG_S", 0.0)
    watch.check_round()
    assert re.fullmatch(r"round 1 has taken 0 s, up to 5 s simulated; it waits for 3 updates \(.*\)", said[0])
    monkeypatch.setattr(waiting, "LONG_S", 10.0)
    watch.on_close()
    watch.check_round()
    assert len(said) == 1


def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every close of a round take so long that it is told of."""
    from netsim.servers.rounds.loop import RoundLoop

    close = RoundLoop._aggregate

    def slow(self: Any, number: int, attempts: Any) -> Any:
        time.sleep(0.1)
        return close(self, number, attempts)

    monkeypatch.setattr(RoundLoop, "_aggregate", slow)
    monkeypatch.setattr(waiting, "LONG_S", 0.02)


def test_the_command_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(tmp_path, monkeypatch, capsys)
    slowly(monkeypatch)
    code, _, error = shell("run", shell.file, "--out", shell.out)
    assert code == 0
    assert re.search(r"^small: round 1 has taken 0 s, up to \S+ s simulated; it waits for ", error, re.MULTILINE)


def test_whoever_looks_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LONG_S", 0.0)
    for tables in (rough(rounds=6), override(small_tables(), {"sweep": {}})):
        tables.pop("sweep", None)
        scenario = parse(tables)
        place = tmp_path / scenario.name
        run(scenario, place / "whole")
        built, looked = build(scenario), list[str]()
        watch = Watch(looked.append)
        watch.begin(built.simulation)
        with watch_run(watch):
            simulate(built, scenario, place / "looked", after_round=lambda simulation, watch=watch: watch.check_round())
        assert len(looked) > scenario.rounds
        assert different(place / "whole", place / "looked") == ""


SLOW = """
import time
from models.policies.random import Random
from scenarios.runs import waiting

waiting.LONG_S = 0.1  # in the workers, too

class Slow(Random):
    def __init__(self, *, clients: int, per_round: int):
        super().__init__(clients=clients, per_round=per_round)

    def select(self, view):
        time.sleep(1.0 if view.round == 2 else 0.0)
        return super().select(view)
"""


WORKERS = [{"jobs": 1}, {"jobs": 2}, pytest.param({"cluster": "local:2"}, marks=pytest.mark.slow)]


@pytest.mark.each_nth(2)
@pytest.mark.parametrize("workers", WORKERS, ids=str)
def test_runs_of_a_sweep_say_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: dict[str, Any]) -> None:
    (tmp_path / "slow_own.py").write_text(SLOW, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{Path(__file__).parents[3]}")
    monkeypatch.setattr(waiting, "LONG_S", waiting.LONG_S)
    tables = {"name": "slow", **TIMES, "server": {"per_round": 2}, "policy": {"kind": "slow_own:Slow"}, "rounds": 3}
    seen: list[SweepProgress] = []
    planned = plan(tables | {"sweep": {"seeds": [1, 2]}}, "slow")
    sweep(planned, tmp_path / "out", progress=seen.append, machines=Machines(**workers))
    sys.modules.pop("slow_own", None)
    told = {(index, text) for standing in seen for index, text in standing.waits.items()}
    assert all(re.fullmatch(r"round \d has taken \d+ (s|min), up to .* s simulated; it waits for .*", text) for _, text in told)
    assert {index for index, text in told if text.startswith("round 2")} == {0, 1}
    assert seen[-1].waits == {}

"""What fails in a component of the user's own while a run is under way, and what becomes of the other runs of a sweep."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import netsim
from analysis import open_sweep
from models.policies.random import Random
from netsim.servers.rounds.close import WhenEnded
from scenarios.runs.in_memory import run_in_memory
from scenarios.runs.reading import parse
from scenarios.runs.run import run
from scenarios.schema.errors import UserError
from scenarios.sweeps.options import Machines
from scenarios.sweeps.sweep import plan, sweep
from scenarios.wiring.simulation import build

MODULE = """
import numpy as np
from models.laws.delays import Constant
from models.policies.random import Random
from netsim.servers.rounds.close import WaitRule, WhenEnded
from netsim.servers.rounds.dispatch import PolicyDispatch, SelectionRule
from netsim.servers.rounds.loop import RoundLoop
from netsim.servers.rounds.round_server import RoundServer

class Policy(Random):
    def __init__(self, *, clients: int, per_round: int, at: int = 3):
        super().__init__(clients=clients, per_round=per_round)
        self.at = at

    def select(self, view):
        return beyond() if view.round == self.at else super().select(view)

class Derived(Policy):
    pass

class Plain(Random):
    pass

class Delay(Constant):
    def __init__(self):
        super().__init__(value_s=1.0)

    def quantile(self, u, entities):
        if len(entities) == 1:
            raise RuntimeError("no luck\\nat all")
        return super().quantile(u, entities)

class Never(WhenEnded):
    def _on_end(self, update):
        pass

class Server:
    def compose(self, world):
        pool = world.new_pool()
        rule = SelectionRule(policy=world.policy(2), streams=world.streams)
        dispatch = PolicyDispatch(pool=pool, rule=rule, learner=world.learner)
        close = Never(pool=pool, rule=WaitRule())
        loop = RoundLoop(pool=pool, dispatch=dispatch, close=close, learner=world.learner)
        return RoundServer(loop=loop)

def beyond():
    return np.ones(3)[[7]]  # line 27
"""
TABLES: dict[str, Any] = {
    "name": "failing",
    "rounds": 5,
    "clients": {"count": 4},
    "server": {"per_round": 2},
    "policy": {"kind": "random"},
    "compute": {"delay": {"kind": "constant", "value_s": 1.0}},
}
OWN = {"kind": "failing_own:Policy"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "failing_own.py").write_text(MODULE.lstrip("\n"), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    yield tmp_path
    sys.modules.pop("failing_own", None)


def failure(changes: dict[str, Any], out: Path) -> str:
    with pytest.raises(UserError) as refusal:
        run(parse(TABLES | changes), out)
    return str(refusal.value)


def test_a_failure_names_component_line_round_and_seed(folder: Path) -> None:
    line = next(i for i, text in enumerate(MODULE.lstrip("\n").splitlines(), start=1) if "line 27" in text)
    where = f"{folder / 'failing_own.py'}, line {line}"
    said = failure({"policy": OWN, "seed": 8}, folder / "run")
    assert said == (
        "policy.kind = 'failing_own:Policy': IndexError: index 7 is out of bounds for axis 0 with size 3, "
        f"{where} (round 3, 2 s, seed 8)"
    )
    # A class that inherits what fails is named as the scenario names it.
    derived = failure({"policy": {"kind": "failing_own:Derived", "at": 1}}, folder / "derived")
    assert derived.startswith("policy.kind = 'failing_own:Derived': IndexError")
    assert derived.endswith(f"{where} (round 1, 0 s, seed 1)")
    # There may be several components in one module, and the message has one line.
    delay = failure(
        {"server": {"per_round": 1}, "policy": OWN, "uplink": {"delay": {"kind": "failing_own:Delay"}}}, folder / "delay"
    )
    assert delay.startswith("uplink.delay.kind = 'failing_own:Delay': RuntimeError: no luck, ")
    assert "\n" not in delay


def test_a_close_rule_that_never_closes_is_told_with_what_is_in_flight(folder: Path) -> None:
    server = {"server": {"kind": "failing_own:Server"}}
    # The uploads end at 1 s, and nobody says that the round does.
    assert failure(server, folder / "run") == (
        "server.kind = 'failing_own:Server': round 1 never closes: nothing is left to happen at 1 s, with nothing in flight "
        "(seed 1); fix its close rule"
    )


def test_an_error_of_the_engine_names_round_time_and_what_is_in_flight(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, update: Any) -> None:
        raise KeyError(update.client)

    monkeypatch.setattr(WhenEnded, "_on_end", broken)
    with pytest.raises(KeyError) as failure:
        run(parse(TABLES | {"seed": 4}), folder / "run")
    assert failure.value.__notes__ == ["server.kind = 'synchronous', round 1, 1 s, seed 4, with 1 in flight (upload 1)"]


def test_in_memory_too(folder: Path) -> None:
    scenario = parse(TABLES | {"policy": OWN})
    with pytest.raises(UserError, match=r"^policy.kind = 'failing_own:Policy': IndexError: .* \(round 3, 2 s, seed 1\)$"):
        run_in_memory(build(scenario), scenario)
    with pytest.raises(ValueError, match=r"policy.kind = 'failing_own:Policy': IndexError"):
        netsim.run(TABLES | {"policy": OWN})


def test_what_fails_in_netsim_itself_is_not_blamed_on_the_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, view: Any) -> Any:
        raise KeyError("ours")

    monkeypatch.setattr(Random, "select", broken)
    # A class of the user's that leaves all to netsim's has no line to blame, unlike one that calls netsim's.
    for kind in ("random", "failing_own:Plain", "failing_own:Derived"):
        with pytest.raises(UserError if kind.endswith("Derived") else KeyError, match="ours") as failure:
            run(parse(TABLES | {"policy": {"kind": kind}}), folder / kind.replace(":", "_"))
        if not kind.endswith("Derived"):
            assert failure.value.__notes__ == ["server.kind = 'synchronous', round 1, 0 s, seed 1, with nothing in flight"]


MIXED = TABLES | {
    "sweep": {
        "seeds": [1, 2],
        "variants": [
            {"name": "good"},
            {"name": "bad", "set": {"policy": OWN}},
            {"name": "fine", "set": {"policy": OWN | {"at": 9}}},
        ],
    }
}


def test_the_other_runs_of_a_sweep_go_on(folder: Path) -> None:
    with pytest.raises(UserError) as refusal:
        sweep(plan(MIXED, "mixed"), folder / "sweep", machines=Machines(jobs=1))
    first, second, last = str(refusal.value).splitlines()
    assert first.startswith("variant bad, seed 1: policy.kind = 'failing_own:Policy': IndexError")
    assert second.startswith("variant bad, seed 2: policy.kind = 'failing_own:Policy': IndexError")
    assert last == f"2 runs failed; the others are complete: {folder / 'sweep'}"
    left = open_sweep(folder / "sweep")
    assert [(entry.variant, entry.seed) for entry in left.entries] == [("good", 1), ("good", 2), ("fine", 1), ("fine", 2)]
    assert left.missing == (("bad", 1), ("bad", 2))
    assert json.loads((folder / "sweep/good/seed-2/summary.json").read_text())["ended"] == "rounds"
    assert not (folder / "sweep/bad/seed-1/summary.json").exists()


def test_in_memory_the_others_are_returned(folder: Path) -> None:
    with pytest.warns(UserWarning, match=r"variant bad, seed \d: policy.kind = .* \(this run failed, and is missing\)"):
        left = netsim.sweep(MIXED, jobs=1)
    assert sorted({entry.variant for entry in left.entries}) == ["fine", "good"]
    assert left.missing == (("bad", 1), ("bad", 2))
    with pytest.raises(ValueError, match="1 run failed; there was no other"):
        netsim.sweep(TABLES | {"policy": OWN}, jobs=1)

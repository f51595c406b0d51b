"""A script is brought up to a checkpoint by doing again what it did: the run goes on as if it had never stopped."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import netsim
from scenarios.runs.folders import own_code
from scenarios.runs.reading import parse
from scenarios.runs.run import go_on, run
from scenarios.schema.errors import UserError
from tests.helpers.scripted import THREE, interrupt_at

MODULE = """
def script(world, *, factor=4.0):
    counts = []
    for _ in range(4):
        met = yield world.until_delivery(clients=[0, 1], count=3) | world.until_round(6)
        counts.append(int(world.deliveries().sum()))
        slow = world.scale("compute.delay", value_s=factor * (1 + world.rng.random()), clients=int(counts[-1] % 3))
        yield world.after(3.0)
        slow.restore()
    assert counts == sorted(counts), counts
"""
STUDY: dict[str, Any] = THREE | {
    "rounds": 9,
    "script": "own_script:script",
    "uplink": {"delay": {"kind": "log-normal", "median_s": 1.0, "sigma": 0.8}, "channel": {"kind": "bernoulli", "success": 0.8}},
}


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes the module of the script, as a new process would see it."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(own_code, "_FINGERPRINTS", {})

    def write(text: str) -> None:
        (tmp_path / "own_script.py").write_text(text, encoding="utf-8")
        sys.modules.pop("own_script", None)

    write(MODULE)
    yield write
    sys.modules.pop("own_script", None)


def tables(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*.parquet"))}


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("after", range(1, 9))
def test_a_run_goes_on_byte_for_byte(module, tmp_path, after):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert run(parse(STUDY), whole)["ended"] == "rounds"
    run(parse(STUDY), cut, after_round=interrupt_at(after))
    module(MODULE)
    assert go_on(cut)["ended"] == "rounds"
    assert set(tables(whole)) == {"rounds.parquet", "clients.parquet", "script.parquet"}
    assert tables(cut) == tables(whole)
    assert len(netsim.open_run(whole).script) == 8


def test_a_resume_with_an_edited_script_is_refused(module, tmp_path):
    out = tmp_path / "out"
    run(parse(STUDY), out, after_round=interrupt_at(5))
    module(MODULE.replace("value_s=factor", "value_s=2 * factor"))
    with pytest.raises(UserError, match=r"the code of 'own_script:script' \(own_script\) has changed since"):
        go_on(out)
    # Allowed to be another, it must still have done the same.
    done = r"script 'own_script:script', round \d+, [\d.]+ s.*: acts differently than before the checkpoint: it does act scale"
    with pytest.raises(UserError, match=done):
        go_on(out, allow_changed_code=True)
    assert json.loads((out / "summary.json").read_text())["ended"] == "interrupted"
    # What it does from the checkpoint on may be another.
    module(MODULE.replace("range(4)", "range(40)"))
    assert go_on(out, allow_changed_code=True)["ended"] == "rounds"
    assert len(netsim.open_run(out).script) >= 8


LOOKS = "slow.restore()\n        try:\n            world.deliveries()\n        except Exception:\n            pass"
EDITED: dict[str, tuple[dict[str, str], str]] = {
    "another wait": ({"count=3": "count=2"}, "it does wait for"),
    "another act": ({'"compute.delay", value_s': '"uplink.delay", median_s'}, "it does act scale uplink"),
    "no restore": ({"slow.restore()": "pass"}, "where it did act restore"),
    "fewer": ({"range(4)": "range(1)"}, "it is over, where it did wait for"),
    "another look": ({"world.deliveries()": "world.deliveries() + world.deliveries()"}, "it does read deliveries"),
    "swallowed": ({"slow.restore()": LOOKS}, "it does read deliveries, where it did wait for"),
}


@pytest.mark.parametrize("case", EDITED)
def test_whatever_a_script_does_otherwise_is_noticed(module, tmp_path, case):
    out = tmp_path / "out"
    run(parse(STUDY), out, after_round=interrupt_at(7))
    edits, told = EDITED[case]
    text = MODULE
    for old, new in edits.items():
        assert old in text
        text = text.replace(old, new)
    module(text)
    with pytest.raises(UserError, match=told):
        go_on(out, allow_changed_code=True)


def test_resume_takes_the_script_from_elsewhere(module, tmp_path):
    out = tmp_path / "out"
    run(parse(STUDY), out, after_round=interrupt_at(4))
    (tmp_path / "moved_script.py").write_text(MODULE, encoding="utf-8")
    done = netsim.resume(out, script="moved_script:script", allow_changed_code=True)
    whole = netsim.run(STUDY)
    assert done.script.equals(whole.script)
    assert done.rounds.equals(whole.rounds)
    sys.modules.pop("moved_script", None)


def test_the_summary_knows_the_code_of_the_script(module, tmp_path):
    summary = run(parse(STUDY), tmp_path / "out")
    assert set(summary["own_code"][0]["components"]["own_script:script"]) == {"own_script"}
    assert netsim.open_run(tmp_path / "out").scenario["script"] == {"kind": "own_script:script", "factor": 4.0}


@pytest.mark.parametrize("after", [2, 4, 6])
def test_laws_change_under_updates_that_wait_for_their_next_attempt(module, tmp_path, after):
    asynchronous = {
        "policy": None,
        "server": {"kind": "asynchronous", "round_s": 0.5},
        "uplink": {"channel": {"kind": "gilbert-elliott", "to_bad": 0.4, "to_good": 0.4}},
        "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.8}},
        "channels": {"count": 4, "states": {"kind": "stationary", "low": 0.3, "high": 0.6}},
        "scheduler": {"kind": "random"},
    }
    text = """
def script(world, *, factor=4.0):
    while True:
        yield world.until_round(world.round + 1)
        world.change("uplink.delay", value_s=0.1 * world.rng.random())
        world.change("uplink.channel", to_bad=0.5 * world.rng.random())
"""
    study = {name: value for name, value in (STUDY | asynchronous).items() if value is not None}
    module(text)
    run(parse(study), tmp_path / "whole")
    run(parse(study), tmp_path / "cut", after_round=interrupt_at(after))
    module(text)
    go_on(tmp_path / "cut")
    assert tables(tmp_path / "cut") == tables(tmp_path / "whole")

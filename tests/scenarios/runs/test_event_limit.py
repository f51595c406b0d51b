"""A sweep whose runs end after so many events, and what completes it later."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import netsim
from scenarios.runs.folders.replacement import read_summary
from scenarios.runs.run import run
from scenarios.sweeps.plan import plan
from tests.helpers.small_scenario import Shell, small_tables
from tests.reliability.swarm import different

LIMIT = 12

pytestmark = pytest.mark.filterwarnings("ignore:clients.groups")


def ended(folder: Path) -> list[str]:
    return [read_summary(place.parent)["ended"] for place in sorted(folder.rglob("summary.json"))]


def runs(folder: Path) -> list[Path]:
    return sorted(place.parent.relative_to(folder) for place in folder.rglob("summary.json"))


def test_every_run_of_a_sweep_ends_after_so_many_events(tmp_path: Path) -> None:
    study = small_tables() | {"sweep": {"seeds": [1, 2]}}
    netsim.sweep(study, out=tmp_path / "cut", jobs=1, figures=False, event_limit=LIMIT)
    assert ended(tmp_path / "cut") == ["event limit", "event limit"]
    alone = netsim.run(study | {"seed": 2}, out=tmp_path / "alone", event_limit=LIMIT)
    cut = next(place for place in runs(tmp_path / "cut") if read_summary(tmp_path / "cut" / place)["seed"] == 2)
    assert different(tmp_path / "alone", tmp_path / "cut" / cut) == ""
    assert alone.summary["ended"] == "event limit"
    in_memory = netsim.sweep(study, jobs=1, event_limit=LIMIT)
    assert [one.summary["ended"] for one in in_memory] == ["event limit", "event limit"]
    assert [one.summary["rounds"] for one in in_memory] == [one.summary["rounds"] for one in netsim.open_sweep(tmp_path / "cut")]

    # What a limit cut short is no complete run: without the limit, it is simulated again.
    netsim.sweep(study, out=tmp_path / "whole", jobs=1, figures=False)
    shutil.copytree(tmp_path / "cut", tmp_path / "longer")
    for limit, ends in ((LIMIT, "event limit"), (None, "rounds")):
        netsim.sweep(study, out=tmp_path / "longer", jobs=1, figures=False, resume=True, event_limit=limit)
        assert ended(tmp_path / "longer") == [ends, ends]
        other = tmp_path / ("cut" if limit else "whole")
        assert [different(other / place, tmp_path / "longer" / place) for place in runs(other)] == ["", ""]


def test_a_limited_attempt_does_not_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    # Its events would be counted from there, and the run would end elsewhere.
    study = small_tables() | {"sweep": {"seeds": [1]}}
    netsim.sweep(study, out=tmp_path / "cut", jobs=1, figures=False, event_limit=LIMIT)
    shutil.copytree(tmp_path / "cut", tmp_path / "again")
    (place,) = runs(tmp_path / "again")

    def interrupt(simulation: object) -> None:
        raise KeyboardInterrupt

    run(plan(study, "small").runs[0].scenario, tmp_path / "again" / place, overwrite=True, after_round=interrupt)
    assert ended(tmp_path / "again") == ["interrupted"]
    netsim.sweep(study, out=tmp_path / "again", jobs=1, figures=False, resume=True, event_limit=LIMIT)
    assert different(tmp_path / "cut" / place, tmp_path / "again" / place) == ""


def test_the_command_has_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(tmp_path, monkeypatch, capsys)
    assert shell.sweep("--seeds", "1", "--jobs", "1", "--no-figures", "--event-limit", LIMIT)[0] == 0
    assert set(ended(shell.out)) == {"event limit"}

"""A limit of wall time: a run that reaches it ends as by Ctrl-C, whatever it is at, and can be gone on with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import netsim
from scenarios.runs import wall_limit
from scenarios.runs.folders.replacement import read_summary
from scenarios.runs.reading import parse, to_toml
from scenarios.runs.run import go_on, run
from scenarios.runs.wall_limit import WallLimit
from scenarios.schema.errors import UserError
from scenarios.sweeps.options import Earlier, Limits, Machines
from scenarios.sweeps.sweep import plan, sweep
from tests.helpers.small_scenario import Shell
from tests.reliability.swarm import different

ROOT = Path(__file__).parents[3]
# In its third round the policy comes to no end as long as a file is there. The time of a limit begins there: the rounds before
# can take longer than any limit on a slow machine.
MODULE = """
import os, threading, time, types
from models.policies.random import Random
from scenarios.runs import wall_limit

STUCK = threading.Event()

class EndOfRun(threading.Event):
    def wait(self, timeout=None):
        while not self.is_set() and not STUCK.wait(0.01):
            pass
        return super().wait(timeout)

wall_limit.threading = types.SimpleNamespace(**vars(threading) | {"Event": EndOfRun})

class Stuck(Random):
    def __init__(self, *, clients: int, per_round: int, flag: str, how: str = "computes"):
        super().__init__(clients=clients, per_round=per_round)
        self.flag, self.how = flag, how

    def select(self, view):
        while view.round == 3 and os.path.exists(self.flag):
            try:
                STUCK.set()
                while os.path.exists(self.flag):
                    time.sleep(100 if self.how == "sleeps" else 0)
            except KeyboardInterrupt:
                if self.how != "deaf":
                    raise
            finally:
                STUCK.clear()
        return super().select(view)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "stuck_own.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "flag").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    monkeypatch.setattr("scenarios.workers.interrupts.GRACE_S", 0.1)
    monkeypatch.setattr(wall_limit, "threading", threading)  # undone after what the module sets
    yield tmp_path
    sys.modules.pop("stuck_own", None)


def tables(folder: Path, how: str = "computes") -> dict[str, Any]:
    return {
        "name": "stuck",
        "rounds": 5,
        "clients": {"count": 4},
        "server": {"per_round": 2},
        "policy": {"kind": "stuck_own:Stuck", "flag": str(folder / "flag"), "how": how},
        "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.0, "mean_excess_s": 1.0}},
    }


@pytest.mark.parametrize("how", ["computes", "sleeps"])
def test_a_run_that_is_stuck_in_a_round_ends_and_can_be_gone_on_with(folder: Path, how: str) -> None:
    scenario, wall = parse(tables(folder, how)), WallLimit(0.3)
    told = run(scenario, folder / "cut", checkpoint_s=0.0, wall=wall)
    assert (told["ended"], told["rounds"], wall.reached) == ("interrupted", 2, True)
    again = WallLimit(0.3)
    assert (go_on(folder / "cut", checkpoint_s=0.0, wall=again)["rounds"], again.reached) == (2, True)
    (folder / "flag").unlink()
    in_time = WallLimit(600.0)
    assert (go_on(folder / "cut", wall=in_time)["ended"], in_time.reached) == ("rounds", False)
    run(scenario, folder / "whole")
    assert different(folder / "whole", folder / "cut") == ""


def test_it_ends_as_a_round_closes_where_rounds_are_short(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "flag").unlink()
    monkeypatch.setattr("scenarios.workers.interrupts.GRACE_S", 300.0)
    wall = WallLimit(0.01)

    def wait_for_the_limit(simulation: Any) -> None:
        sys.modules["stuck_own"].STUCK.set()
        deadline = time.monotonic() + 300.0
        while not wall.reached and time.monotonic() < deadline:
            time.sleep(0.01)

    told = run(parse(tables(folder)), folder / "run", after_round=wait_for_the_limit, wall=wall)
    assert told["ended"] == "interrupted"
    assert 1 <= told["rounds"] < 5
    assert go_on(folder / "run")["ended"] == "rounds"


def test_a_run_in_another_thread_ends_too(folder: Path) -> None:
    # No signal comes there.
    left: list[Any] = []
    wall = WallLimit(0.3)
    thread = threading.Thread(target=lambda: left.append(run(parse(tables(folder)), folder / "run", wall=wall)))
    thread.start()
    thread.join(300.0)
    alive = thread.is_alive()
    (folder / "flag").unlink()
    assert not alive
    assert (left[0]["ended"], left[0]["rounds"], wall.reached) == ("interrupted", 2, True)


def test_a_process_that_does_not_stop_is_ended_and_its_checkpoint_stays(folder: Path) -> None:
    (folder / "deaf.toml").write_text(to_toml(parse(tables(folder, "deaf"))), encoding="utf-8")
    script = (
        "import sys; from scenarios.runs import run, wall_limit; from scenarios.workers import interrupts\n"
        "from scenarios.cli.main import main\n"
        "interrupts.GRACE_S = wall_limit.GRACE_S = wall_limit.END_S = 0.2; run.FIRST_CHECKPOINT_S = 0.0\n"
        "sys.argv = ['netsim', 'run', 'deaf.toml', '--out', 'out', '--quiet', '--wall-limit', '0.5']; main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 130
    assert done.stderr == (
        "the wall limit of 0.5 s was reached, and the run does not stop: the process ends; go on from its checkpoint\n"
    )
    (folder / "flag").unlink()
    assert go_on(folder / "out")["ended"] == "rounds"


@pytest.mark.slow
def test_a_run_of_a_sweep_that_takes_too_long_keeps_no_other_from_its_end(folder: Path) -> None:
    study = tables(folder) | {"sweep": {"seeds": [1, 2], "variants": [{"name": "stuck"}, {"name": "random"}]}}
    study["sweep"]["variants"][1]["set"] = {"policy": {"kind": "random"}}
    planned = plan(study, "stuck")
    for jobs in (1, 2):
        out = folder / f"jobs{jobs}"
        with pytest.raises(UserError) as refusal:
            sweep(planned, out, machines=Machines(jobs=jobs), limits=Limits(wall_limit_s=0.5))
        reached = "the wall limit of 0.5 s was reached after 2 rounds; give it more time"
        assert f"variant stuck, seed 2: {reached}" in str(refusal.value)
        assert "2 runs failed; the others are complete" in str(refusal.value)
        listed = json.loads((out / "sweep.json").read_text(encoding="utf-8"))
        assert sorted((one["variant"], one["seed"]) for one in listed["runs"]) == [("random", 1), ("random", 2)]
        failed = json.loads((out / "failures.json").read_text(encoding="utf-8"))["failures"]
        assert [(one["variant"], one["again"]) for one in failed] == [("stuck", False)] * 2
    (folder / "flag").unlink()
    for jobs in (1, 2):
        go_on: dict[str, Any] = {"earlier": Earlier(resume=True), "limits": Limits(wall_limit_s=600.0)}
        sweep(planned, folder / f"jobs{jobs}", machines=Machines(jobs=jobs), **go_on)
    places = [place.parent.relative_to(folder / "jobs1") for place in (folder / "jobs1").rglob("summary.json")]
    assert len(places) == 4
    for place in places:
        assert read_summary(folder / "jobs1" / place)["ended"] == "rounds"
        assert different(folder / "jobs1" / place, folder / "jobs2" / place) == ""


def test_in_python_it_is_a_timeout(folder: Path) -> None:
    with pytest.raises(TimeoutError, match=r"^the wall limit of 0\.3 s was reached"):
        netsim.run(tables(folder), wall_limit_s=0.3)
    with pytest.raises(TimeoutError, match=r"after 2 rounds; to go on: netsim\.resume"):
        netsim.run(tables(folder), out=folder / "run", wall_limit_s=0.3)
    with pytest.raises(TimeoutError, match=r"reached.*; to go on: netsim\.resume"):
        netsim.resume(folder / "run", wall_limit_s=0.3)
    study = tables(folder) | {"sweep": {"seeds": [1], "variants": [{"name": "stuck"}, {"name": "random"}]}}
    study["sweep"]["variants"][1]["set"] = {"policy": {"kind": "random"}}
    with pytest.warns(UserWarning, match=r"variant stuck, seed 1: the wall limit of 0\.3 s was reached"):
        done = netsim.sweep(study, jobs=1, wall_limit_s=0.3)
    assert list(done.missing) == [("stuck", 1)]


def test_the_command_says_so_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell, out = Shell(folder, monkeypatch, capsys), folder / "out"
    (folder / "slow.toml").write_text(to_toml(parse(tables(folder))), encoding="utf-8")
    limit = ("--quiet", "--wall-limit", "0.5")
    reached = f"the wall limit of 0.5 s was reached after 2 rounds; the files hold these. To go on: netsim resume {out}"
    code, _, said = shell("run", folder / "slow.toml", "--out", out, *limit)
    assert (code, said.splitlines()) == (130, [reached])
    code, _, said = shell("resume", out, *limit)
    assert (code, said.splitlines()[-1]) == (130, reached)
    (folder / "flag").unlink()
    assert shell("resume", out, *limit)[0] == 0
    code, _, said = shell("sweep", folder / "slow.toml", "--out", folder / "sweep", "--quiet", "--wall-limit", "0")
    assert (code, said) == (2, "--wall-limit (wall_limit_s) = 0.0: must be a number of seconds > 0\n")


@pytest.mark.parametrize("most_s", [0.0, -1.0, float("nan"), 1e300])
def test_what_is_no_time_is_refused(folder: Path, most_s: float) -> None:
    with pytest.raises(ValueError, match=r"--wall-limit \(wall_limit_s\) = .*: must be a number of seconds"):
        netsim.run(tables(folder), out=folder / "run", wall_limit_s=most_s)
    assert not (folder / "run").exists()

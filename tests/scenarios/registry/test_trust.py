"""Code that is not netsim's: refused with --no-import, and named where it fails or ends the program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from scenarios.cli.main import app
from scenarios.runs.run import run
from tests.helpers.commands import LONG, start
from tests.helpers.small_scenario import TEXT, Shell, small

OWN = """
import pathlib, sys
from models.policies.random import Random
pathlib.Path("IMPORTED").touch()

class Good(Random):
    pass

class EndsAtOnce(Random):
    def __init__(self, *, clients: int, per_round: int) -> None:
        sys.exit(0)

class EndsLater(Random):
    def select(self, view):
        if view.round == 3:
            sys.exit(0)
        return super().select(view)

class Silent(BaseException):
    def __str__(self):
        raise RuntimeError("no text")

class FailsSilently(EndsLater):
    def select(self, view):
        raise Silent

class KeepsAnObject(Random):
    def state_dict(self):
        return {"a": 1j}

class IsFull(Random):
    def select(self, view):
        raise MemoryError("mine")
"""


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "trusted.py").write_text(OWN, encoding="utf-8")
    yield Shell(tmp_path, monkeypatch, capsys)
    sys.modules.pop("trusted", None)


@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("EndsAtOnce", "cannot be built: SystemExit: 0"),
        ("EndsLater", "policy.kind = 'trusted:EndsLater': SystemExit: 0"),
        ("FailsSilently", "policy.kind = 'trusted:FailsSilently': Silent: (its text cannot be had)"),
        ("IsFull", "policy.kind = 'trusted:IsFull': MemoryError: mine"),
    ],
)
def test_what_ends_the_program_is_named_and_no_success(shell, name, fragment):
    code, out, err = shell.run("--set", f"policy.kind=trusted:{name}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert fragment in err
    assert not (shell.out / "summary.json").exists()


def test_a_state_that_no_checkpoint_can_hold_is_told(shell, monkeypatch):
    monkeypatch.setattr("scenarios.runs.run.FIRST_CHECKPOINT_S", 0.0)
    code, _, err = shell.run("--set", "policy.kind=trusted:KeepsAnObject")
    assert (code, err.count("\n")) == (2, 1)
    assert "state: 1j of type complex is no plain data; let the state_dict of your own component return" in err


def test_no_import_refuses_what_is_not_netsims_and_imports_nothing(shell):
    own = shell.folder / "own.toml"
    own.write_text(TEXT.replace('kind = "pause"', 'kind = "trusted:Good"', 1).partition("[privacy]")[0], encoding="utf-8")
    for command in (("check", own), ("run", own), ("sweep", own)):
        code, out, err = shell(*command, "--no-import")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "'trusted:Good' is code that is not netsim's, and --no-import forbids to import it" in err
    assert not (shell.folder / "IMPORTED").exists()
    assert shell("run", own, "--out", shell.out, "--quiet")[0] == 0
    assert (shell.folder / "IMPORTED").exists()
    again = (("resume",), ("replay", "--quiet"), ("stragglers", "--quiet"), ("what-if", "--round=2", "--without=1", "--quiet"))
    for command, *options in again:
        code, _, err = shell(command, shell.out, *options, "--no-import")
        assert (code, err.count("\n")) == (2, 1)
        assert "--no-import forbids to import it" in err or command == "resume"
    assert shell("report", shell.out, "--no-import", "--format", "md")[0] == 0
    assert shell.run("--no-import", "--overwrite")[0] == 0, "netsim's own"


def test_every_command_has_the_option():
    for command in typer.main.get_command(app).commands.values():  # type: ignore[attr-defined]
        assert any("--no-import" in parameter.opts for parameter in command.params), command.name


def interrupted(folder: Path, command: tuple[str, ...], after_s: float) -> tuple[int, str]:
    process = start(folder, *command)
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    return process.returncode, err


@pytest.mark.slow
@pytest.mark.parametrize("after_s", [1.0, 2.0, 4.0])
def test_an_interrupt_at_any_moment_is_one_line(after_s, tmp_path):
    (tmp_path / "long.toml").write_text(LONG, encoding="utf-8")
    code, err = interrupted(tmp_path, ("run", "long.toml", "--out", "out", "--quiet"), after_s)
    assert code == 130
    assert "interrupted" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists() or "netsim resume out" in err


def test_an_interrupt_while_the_summary_is_made_leaves_what_can_be_resumed(shell, monkeypatch):
    def interrupt(*arguments, **settings):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("scenarios.runs.run.summary", interrupt)
        code, _, err = shell.run()
    assert (code, err.count("\n")) == (130, 1)
    assert f"interrupted; to go on: netsim resume {shell.out}" in err
    assert shell("resume", shell.out, "--quiet")[0] == 0
    run(small(), shell.folder / "whole")
    assert (shell.out / "rounds.parquet").read_bytes() == (shell.folder / "whole" / "rounds.parquet").read_bytes()


@pytest.mark.parametrize("place", ["parse_args", "get_command"])
def test_an_interrupt_while_the_command_line_is_read_is_one_line(shell, monkeypatch, place):
    def interrupt(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"typer.core.TyperGroup.{place}", interrupt)
    assert shell.run() == (130, "", "interrupted\n")


def test_an_interrupt_before_anything_is_written_leaves_nothing(shell, monkeypatch):
    def interrupt(*arguments, **settings):
        raise KeyboardInterrupt

    for place in ("scenarios.runs.run.open_run", "scenarios.runs.training_machines.build"):
        with monkeypatch.context() as patch:
            patch.setattr(place, interrupt)
            code, _, err = shell.run()
        assert (code, err.count("\n")) == (130, 1)
        assert not shell.out.exists()


def test_plugins_of_pydantic_are_not_looked_for(tmp_path):
    (tmp_path / "plug.py").write_text("open('IMPORTED', 'w').close()\nplugin = None\n", encoding="utf-8")
    folder = tmp_path / "plug-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text("[pydantic]\nplug = plug:plugin\n", encoding="utf-8")
    path = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), str(tmp_path)])}
    command = [sys.executable, "-m", "scenarios.cli.main", "check", "unreliable"]
    for given, imported in (({}, False), ({"PYDANTIC_DISABLE_PLUGINS": "other"}, True)):
        kept = {name: value for name, value in os.environ.items() if name != "PYDANTIC_DISABLE_PLUGINS"}
        done = subprocess.run(command, cwd=tmp_path, env=kept | path | given, capture_output=True, text=True)
        assert (done.returncode == 0) is not imported  # None is no plugin
        assert (tmp_path / "IMPORTED").exists() is imported

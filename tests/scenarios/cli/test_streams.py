"""Commands whose output is cut off, cannot show a letter or cannot be written, and whose terminal is closed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.commands import LONG, ROOT, contents, start
from tests.helpers.small_scenario import TEXT, Shell

COMMAND = [sys.executable, "-c", "from netsim import _command; _command()"]


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)} | more


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(TEXT, encoding="utf-8")
    return tmp_path


def test_a_sweep_whose_reader_has_gone_completes_its_files_and_ends_with_0(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = ["sweep", "small.toml", "--quiet", "--no-figures", "--jobs", "1", "--out"]
    monkeypatch.chdir(folder)
    assert Shell(folder, monkeypatch, capsys)(*sweep, "read")[0] == 0
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*COMMAND, *sweep, "unread"], env=environment(), stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
    assert contents(folder / "unread").keys() == contents(folder / "read").keys()


def test_letters_that_an_encoding_lacks_are_shown_as_question_marks(folder: Path) -> None:
    line = [*COMMAND, "sweep", "small.toml", "--quiet", "--no-figures", "--jobs", "1"]
    ascii_only = environment(PYTHONIOENCODING="ascii")
    done = subprocess.run(line, cwd=folder, env=ascii_only, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mean over 2 seeds ? half-width" in done.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["schema"], ["check", "small.toml"]])
def test_a_full_disk_behind_standard_output_is_one_message(folder: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *arguments], cwd=folder, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert "No space left on device; make room" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_run_whose_terminal_is_closed_can_be_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(LONG, encoding="utf-8")
    process = start(tmp_path, "run", "long.toml", "--out", "out", "--quiet")
    while not (tmp_path / "out" / "scenario.toml").exists():
        time.sleep(0.1)
    time.sleep(1.0)
    process.send_signal(signal.SIGHUP)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "To go on: netsim resume out" in err


"""Commands whose output is cut off, cannot show a letter or cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis import open_sweep
from tests.helpers.commands import ROOT
from tests.helpers.small_scenario import TEXT
from tests.helpers.suites import each_nth

COMMAND = [sys.executable, "-c", "from netsim import _command; _command()"]


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)} | more


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(TEXT, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_a_sweep_whose_reader_has_gone_completes_its_files_and_ends_with_0(folder: Path) -> None:
    line = [*COMMAND, "sweep", "small.toml", "--quiet", "--no-figures", "--jobs", "1", "--out", "unread"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(line, cwd=folder, env=environment(), stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
    assert open_sweep(folder / "unread").missing == ()
    assert {"comparison.parquet", "dataset"} <= {path.name for path in (folder / "unread").iterdir()}


def test_letters_that_an_encoding_lacks_are_shown_as_question_marks(folder: Path) -> None:
    (folder / "5 \u00b1 1.toml").write_text(TEXT, encoding="utf-8")
    line = [*COMMAND, "check", "5 \u00b1 1.toml"]
    ascii_only = environment(PYTHONIOENCODING="ascii")
    done = subprocess.run(line, cwd=folder, env=ascii_only, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "5 ? 1.toml" in done.stdout


@pytest.mark.parametrize("arguments", each_nth(3, [["--help"], ["list"], ["check", "small.toml"]], first=1))
def test_a_full_disk_behind_standard_output_is_one_message(folder: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *arguments], cwd=folder, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert "No space left on device; make room" in done.stderr
    assert done.stderr.count("\n") == 1

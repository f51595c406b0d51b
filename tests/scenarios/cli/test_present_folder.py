"""Commands import nothing from the present folder but what a scenario names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.commands import ROOT
from tests.helpers.small_scenario import TEXT

TRAP = """
import os
with open({log!r}, "a") as log:
    log.write(f"{{__name__}} in {{os.getpid()}}\\n")
raise ImportError("a trap")
"""
SCRIPT = """
import sys
sys.path.append({root!r})
from netsim import _command
if __name__ == "__main__":
    _command()
"""
OWN = """
from models.policies.random import Random

class Mine(Random):
    pass
"""
TRAPS = ("json", "random", "signal", "threading", "numpy", "scipy", "joblib", "tensorboard", "copyreg", "heapq")


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The installed command: a script outside of the present folder."""
    script = folder / "bin" / "netsim"
    script.parent.mkdir(exist_ok=True)
    script.write_text(SCRIPT.format(root=str(ROOT)), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    line = [sys.executable, str(script), *arguments]
    return subprocess.run(line, cwd=folder / "here", env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    here = tmp_path / "here"
    here.mkdir()
    for name in TRAPS:
        (here / f"{name}.py").write_text(TRAP.format(log=str(tmp_path / "log")), encoding="utf-8")
    (here / "small.toml").write_text(TEXT, encoding="utf-8")
    (here / "mine.py").write_text(OWN, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ("run", "small.toml", "--quiet"),
        pytest.param(("sweep", "small.toml", "--no-figures", "--quiet", "--jobs", "2"), marks=pytest.mark.slow),
    ],
    ids=["run", "sweep"],
)
def test_a_command_and_its_workers_import_what_a_scenario_names_and_nothing_else(folder: Path, words: tuple[str, ...]) -> None:
    own = ("--set", "policy.kind=mine:Mine", "--set", "sweep.variants=[]", "--set", "metrics={}")
    done = command(folder, *words, *own)
    assert done.returncode == 0, done.stderr
    assert not (folder / "log").exists(), (folder / "log").read_text()


@pytest.mark.slow
def test_dask_workers_import_nothing_from_the_present_folder(folder: Path) -> None:
    done = command(folder, "sweep", "small.toml", "--no-figures", "--quiet", "--no-import", "--cluster", "local:1")
    assert done.returncode == 0, done.stderr
    assert not (folder / "log").exists(), (folder / "log").read_text()

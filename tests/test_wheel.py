"""The wheel: what it holds is enough to run a scenario that comes along, outside of the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("netsim", "models", "scenarios", "analysis")


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Return the standard output of a command; fails with its error output."""
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_runs_a_scenario_that_comes_along_outside_of_the_checkout(tmp_path: Path) -> None:
    # A copy is built: setuptools leaves folders in the tree that it builds.
    source, wheels, site, home = (tmp_path / name for name in ("source", "wheels", "site", "home"))
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, source / file)
    home.mkdir()
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "wheel", source, "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", wheels, cwd=home)
    (wheel,) = wheels.glob("netsim-*.whl")
    run(*pip, "install", wheel, "--no-deps", "--no-index", "--target", site, cwd=home)
    # Folders of this variable come before those of the environment, in which the checkout may be installed.
    places = "import netsim, analysis; print(netsim.__file__, analysis.__file__)"
    where = run(sys.executable, "-c", places, cwd=home, PYTHONPATH=str(site))
    assert [Path(path).parents[1] for path in where.split()] == [site, site]
    words = (sys.executable, site / "bin" / "netsim", "run", "quickstart", "--set", "rounds=3", "--out", "out", "--quiet")
    run(*words, cwd=home, PYTHONPATH=str(site))
    assert {"scenario.toml", "rounds.parquet", "clients.parquet"} <= {file.name for file in (home / "out").iterdir()}
    # The report needs its style sheet.
    run(sys.executable, site / "bin" / "netsim", "report", "out", cwd=home, PYTHONPATH=str(site))
    (page,) = home.rglob("*.html")
    assert "<style>\n:root" in page.read_text(encoding="utf-8")
    assert {file.name for file in site.iterdir() if file.is_dir()} >= set(PACKAGES)
    assert not (site / "tests").exists()

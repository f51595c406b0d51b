"""Wheel and sdist hold enough to run a scenario that comes along, in a fresh environment, outside of the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from scenarios.runs.unfinished import version

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("netsim", "models", "scenarios", "analysis")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def run(*command: str | Path, cwd: Path) -> str:
    """Return the standard output of a command without the checkout on the path; fails with its error output."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fresh_environment(folder: Path) -> Path:
    """Make an environment without netsim whose other packages are those of this one; return its folder of programs."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    (site,) = folder.glob("lib/python*/site-packages")
    # A folder named in a .pth file comes after the environment's own, and its own .pth files are not read: no editable install.
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder / "bin"


def test_versions_agree() -> None:
    heads = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert heads[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(VERSION)}\] - \d{{4}}-\d\d-\d\d", heads[1])
    assert version() == VERSION
    assert f"This is version {VERSION};" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_wheel_and_sdist_run_a_scenario_that_comes_along_in_a_fresh_environment(tmp_path: Path) -> None:
    # A copy is built: setuptools leaves folders in the tree that it builds.
    source, built, home = (tmp_path / name for name in ("source", "built", "home"))
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, source / file)
    home.mkdir()
    built.mkdir()
    run(sys.executable, "-c", f"from setuptools.build_meta import build_sdist; build_sdist({str(built)!r})", cwd=source)
    (sdist,) = built.iterdir()
    assert sdist.name == f"netsim-{VERSION}.tar.gz"
    # The wheel is built from the sdist, so that what the one lacks the other lacks, too.
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "wheel", sdist, "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", built, cwd=home)
    wheel = built / f"netsim-{VERSION}-py3-none-any.whl"
    programs = fresh_environment(tmp_path / "fresh")
    run(*pip, "--python", programs / "python", "install", wheel, "--no-deps", "--no-index", cwd=home)
    where = run(programs / "python", "-c", "import netsim, analysis; print(netsim.__file__, analysis.__file__)", cwd=home)
    assert all(Path(path).is_relative_to(tmp_path / "fresh") for path in where.split())
    assert run(programs / "netsim", "--version", cwd=home).split() == ["netsim", VERSION]
    run(programs / "netsim", "run", "quickstart", "--set", "rounds=3", "--out", "out", "--quiet", cwd=home)
    assert {"scenario.toml", "rounds.parquet", "clients.parquet"} <= {file.name for file in (home / "out").iterdir()}
    # The report needs its style sheet.
    run(programs / "netsim", "report", "out", cwd=home)
    (page,) = home.rglob("*.html")
    assert "<style>\n:root" in page.read_text(encoding="utf-8")
    (site,) = (tmp_path / "fresh").glob("lib/python*/site-packages")
    assert {file.name for file in site.iterdir() if file.is_dir()} >= set(PACKAGES)
    assert not (site / "tests").exists()

"""What a type checker sees of the public functions in a script of a user's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = """
import netsim

class Mine:
    pass

scenario = netsim.load("study.toml", {"rounds": 5, "policy": {"kind": Mine}})
run = netsim.run(scenario, out="runs/x", seed=3)
sweep = netsim.sweep({"name": "study"}, grid={"policy.kind": ["pause", Mine]}, seeds=range(10))
netsim.register("policy", "mine", Mine)
reveal_type(scenario)
reveal_type(scenario.rounds)
reveal_type(run)
reveal_type(run.rounds)
reveal_type(run.plot("latency"))
reveal_type(sweep)
reveal_type(sweep.comparison)
reveal_type(netsim.resume("runs/x"))
reveal_type(netsim.open_run("runs/x"))
reveal_type(netsim.open_sweep("runs/y"))
netsim.run(scenario, out=3)
netsim.simulate(scenario)
"""
REVEALED = [
    "scenarios.api.Scenario",
    "int",
    "analysis.api.Run",
    "pandas.DataFrame",
    "matplotlib.figure.Figure",
    "analysis.api.Sweep",
    "pandas.DataFrame",
    "analysis.api.Run",
    "analysis.api.Run",
    "analysis.api.Sweep",
]


def test_every_package_says_that_it_is_typed() -> None:
    assert all((ROOT / name / "py.typed").is_file() for name in ("netsim", "models", "scenarios", "analysis"))
    assert (ROOT / "pyproject.toml").read_text(encoding="utf-8").count('"py.typed"') == 4


@pytest.mark.slow
def test_a_script_of_the_users_is_checked(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--cache-dir", str(tmp_path / "cache")]
    environment = os.environ | {"MYPYPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    told = [line for line in done.stdout.splitlines() if line.startswith("script.py:")]
    found = [m[1] for line in told if (m := re.search(r'Revealed type is "(?:builtins\.)?([\w.]+)"', line))]
    assert [name.replace("pandas.core.frame.", "pandas.") for name in found] == REVEALED, done.stdout
    errors = [line for line in told if ": error:" in line]
    assert len(errors) == 2, done.stdout
    assert 'Argument "out" to "run" has incompatible type "int"' in errors[0]
    assert 'Module has no attribute "simulate"' in errors[1]

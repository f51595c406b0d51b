"""What a command imports: nothing heavy where nothing heavy is done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import analysis

HEAVY = ("torch", "torchvision", "matplotlib")
REPORT = "import sys; print('imported:', *sorted(name for name in sys.modules if '.' not in name))"
COMMAND = "import sys; from scenarios.cli.main import app; app(args={args!r}, standalone_mode=False)"
OF_A_RUN = {
    *("netsim", "models", "scenarios", "analysis"),
    *("annotated_doc", "click", "numpy", "pyarrow", "pydantic", "rich", "scipy", "simpy", "tomli_w", "typer"),
    # Imported by these.
    *("annotated_types", "cloudpickle", "cython_runtime", "pydantic_core", "shellingham"),
    *("typing_extensions", "typing_inspection"),
    # Imported by NumPy where it is installed, as it is with the packages of the documentation.
    *("charset_normalizer", "mypyc"),
}
"""Packages that the run of a latency study may import: what else one of them does without, a run does without, too."""
PARTS_OF_SCIPY = {"special", "version"}
"""Of SciPy, whose packages import each other: these, and what begins with an underscore."""


def imported(code: str, folder: Path) -> set[str]:
    """The packages that a fresh interpreter has imported after `code`."""
    path = [str(Path(__file__).parents[1]), *sys.path]
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{code}\n{REPORT}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    line = done.stdout.splitlines()[-1]
    assert line.startswith("imported:")
    return set(line.split()[1:])


def test_commands_that_only_read_import_nothing_heavy(tmp_path: Path) -> None:
    # `check` tells the sizes of compressed models.
    compressed = ["check", str(Path(__file__).parent / "golden" / "features" / "compression.toml")]
    commands = [["run", "--help"], ["check", "quickstart"], compressed, ["list"], ["schema"]]
    options = "import models.fl, models.fl.data.files, models.fl.data.partition"
    found = imported("\n".join([options, *(COMMAND.format(args=args) for args in commands)]), tmp_path)
    assert "scenarios" in found
    assert not found & {*HEAVY, "sklearn", "flwr"}
    # The checked scenarios do name a learner, and `list` and `schema` its components.
    assert "typer" in found


def test_help_is_quick_to_load(tmp_path: Path) -> None:
    assert not imported(COMMAND.format(args=["--help"]), tmp_path) & {"numpy", "pandas", "pyarrow", "scipy", "simpy", "pydantic"}


def third_party(names: set[str]) -> set[str]:
    """Of the packages imported, those that come with neither Python nor this test."""
    return {name for name in names if name[0] != "_"} - sys.stdlib_module_names - {"sitecustomize", "usercustomize"}


def run_of(scenario: str, *settings: str) -> str:
    set_to = [word for setting in settings for word in ("--set", setting)]
    return COMMAND.format(args=["run", scenario, *set_to, "--out", "out"])


def test_what_a_run_of_a_latency_study_with_checkpoints_imports(tmp_path: Path) -> None:
    parts = "print(*{n.split('.')[1] for n in sys.modules if n.startswith('scipy.')}, file=open('parts', 'w'))"
    # Checkpoints import nothing more.
    load, run = "from scenarios.runs.reading import load", "from scenarios.runs.run import run"
    checkpoints = "for name in ('unreliable', 'jammed'): run(load(name, ['rounds=30']), name, checkpoint_s=0.0)"
    found = imported(f"{run_of('unreliable', 'rounds=10')}\n{load}\n{run}\n{checkpoints}\n{parts}", tmp_path)
    assert (tmp_path / "out" / "summary.json").exists()
    assert (tmp_path / "jammed" / "summary.json").exists()
    assert "simpy" in third_party(found) <= OF_A_RUN
    assert {name for name in (tmp_path / "parts").read_text().split() if not name.startswith("_")} <= PARTS_OF_SCIPY


@pytest.mark.slow
@pytest.mark.needs_torch
def test_what_a_run_with_a_learner_imports(tmp_path: Path) -> None:
    by_torch = "import torch; print(*(name for name in sys.modules if '.' not in name), file=open('by_torch', 'w'))"
    found = imported(f"{by_torch}\n{run_of('quickstart', 'rounds=3')}", tmp_path)
    assert (tmp_path / "out" / "summary.json").exists()
    alone = set((tmp_path / "by_torch").read_text().split())
    assert "torch" in alone
    assert third_party(found - alone) <= OF_A_RUN
    # SymPy and mpmath are not among what torch imports by itself.
    assert "sympy" not in alone


def test_opening_results_needs_no_engine_and_no_torch(tmp_path: Path) -> None:
    found = imported("from analysis import open_run, open_sweep", tmp_path)
    assert not found & {"torch", "simpy", "models", "scenarios"}, "of netsim the ground floor alone"


@pytest.mark.parametrize("name", analysis.__all__)
def test_every_name_of_analysis_is_found_where_it_is_looked_up(name: str) -> None:
    assert getattr(analysis, name).__name__ == name

"""The suite where torch is not installed: what trains is skipped, with the reason, and everything else is collected."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios.schema.errors import UserError
from tests.conftest import pytest_runtest_call

ROOT = Path(__file__).parents[1]
BLOCKED = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "torchvision"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""


# Slow ones are not selected.
MARKED = re.compile(r"(?<!@pytest\.mark\.slow\n)@pytest\.mark\.needs_torch\n(?:async )?def (\w+)\(")


def imports_torch(text: str) -> bool:
    """Return True if a module imports torch; programs in its strings may do so without it."""
    if not re.search(r"^(?:import|from) torch\b", text, re.MULTILINE):
        return False
    statements = ast.parse(text).body
    names = [alias.name for one in statements if isinstance(one, ast.Import) for alias in one.names]
    names += [one.module or "" for one in statements if isinstance(one, ast.ImportFrom)]
    return any(name.partition(".")[0] == "torch" for name in names)


@pytest.mark.parametrize("each", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_what_trains_is_skipped_with_the_reason_and_nothing_else(tmp_path: Path, each: int) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKED, encoding="utf-8")  # so that processes that tests start lack it, too
    texts = {file: file.read_text(encoding="utf-8") for file in sorted((ROOT / "tests").rglob("test_*.py"))}
    modules = [file for file, text in texts.items() if imports_torch(text)][::each]
    marked = [f"{file}::{name}" for file, text in texts.items() if file not in modules for name in MARKED.findall(text)]
    recorded = "tests/golden/test_golden.py::test_the_tables_are_those_recorded[quickstart]"
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "tests/netsim/core/test_errors.py", *modules, *marked, recorded]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False, env=env)
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert re.match(r"\.{5}", told), "the module that does not train has run"
    reasons = [line for line in told.splitlines() if line.startswith("SKIPPED")]
    assert all("needs torch, which is not installed: pip install 'netsim[fl]'" in line for line in reasons), told
    assert len(modules) * each > 10
    assert len(marked) >= 5
    assert sum(int(line.split("[")[1].split("]")[0]) for line in reasons) == len(modules) + len(marked) + 1


def thrown_into_a_test(error: Exception) -> None:
    call = pytest_runtest_call(None)
    next(call)
    call.throw(error)


def test_a_test_that_comes_to_train_is_skipped_and_no_other() -> None:
    refused = UserError("[learner] needs torch")
    refused.__cause__ = ModuleNotFoundError("No module named 'torch'", name="torch")
    with pytest.raises(pytest.skip.Exception, match="needs torch"):
        thrown_into_a_test(refused)
    with pytest.raises(ModuleNotFoundError, match="else"):
        thrown_into_a_test(ModuleNotFoundError("No module named 'else'", name="else"))
    with pytest.raises(AssertionError):
        thrown_into_a_test(AssertionError())

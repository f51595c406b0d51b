"""The tests by hand, of whole apps, of their shapes and of policies, with the oldest version of flwr that the extra allows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
_FILES = ("by_hand", "apps", "policy", "shapes")


@pytest.mark.slow
def test_apps_run_with_the_oldest_version(tmp_path: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (oldest,) = (found[1] for asked in extras["flower"] if (found := re.match(r"flwr\s*>=\s*([\d.]+)", asked)))
    # What it depends on is that of the newer one, which is installed.
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), f"flwr=={oldest}.*"]
    installed = subprocess.run(pip, capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"flwr {oldest} cannot be installed: {installed.stderr.strip().splitlines()[-1:]}")
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths}
    imports = [sys.executable, "-c", "import flwr; print(flwr.__version__)"]
    version = subprocess.run(imports, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    assert version.startswith(oldest)
    tests = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *(f"{HERE}/test_{name}.py" for name in _FILES)]
    done = subprocess.run(tests, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout

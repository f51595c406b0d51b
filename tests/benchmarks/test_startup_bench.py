"""What a short command takes, as a ratio to the imports that it cannot do without: processor time of processes that take turns.

With one thread each, processor time is what a quiet core takes, but for waiting for the disk; a busy machine does not count.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MAIN = "from netsim import _command; _command()"
NUMPY, TORCH = ["-c", "import numpy, pyarrow.parquet"], ["-c", "import torch"]
LATENCY = ["-c", MAIN, "run", "unreliable", "--set", "rounds=10", "--out", "out", "--overwrite", "--quiet"]
LEARNER = ["-c", MAIN, "run", "quickstart", "--set", "rounds=10", "--out", "out", "--overwrite", "--quiet"]
CHECK = ["-c", MAIN, "check", "unreliable"]
LONG = ["--set", "rounds=1000000", "--set", "time_limit_s=1e9", "--wall-limit", "0.5"]
STOPPED = ["-c", MAIN, "run", "unreliable", *LONG, "--out", "stopped", "--quiet"]
RESUME = ["-c", MAIN, "resume", "out", "--event-limit", "200", "--quiet"]
PAIRS = 9


def processor_s(command: list[str], folder: Path) -> float:
    """Processor time of a process whose libraries use one thread; a run that goes on does so from where it was stopped."""
    if command == RESUME:
        shutil.rmtree(folder / "out", ignore_errors=True)
        shutil.copytree(folder / "stopped", folder / "out")
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    # As on a user's machine: what was imported before is not compiled again.
    cached = {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONPATH": str(ROOT)}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, *command], cwd=folder, env=kept | cached | one, capture_output=True)
    assert done.returncode == (130 if command == STOPPED else 0), done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize(
    ("command", "reference", "limit"),
    [
        (LATENCY, NUMPY, 4.4),
        (CHECK, NUMPY, 4.4),
        (RESUME, NUMPY, 5.2),
        pytest.param(LEARNER, TORCH, 1.6, marks=pytest.mark.needs_torch),
    ],
    ids=["latency study", "check", "resume", "learner"],
)
def test_a_short_command_against_its_imports(
    benchmark: Any, tmp_path: Path, command: list[str], reference: list[str], limit: float
) -> None:
    for once in ([STOPPED] if command == RESUME else []) + [command, reference]:
        processor_s(once, tmp_path)
    pairs = [(processor_s(command, tmp_path), processor_s(reference, tmp_path)) for _ in range(PAIRS)]
    benchmark.pedantic(processor_s, args=(command, tmp_path), rounds=1)
    own, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    # The least of each: what else the machine does only ever adds.
    ratio = min(pair[0] for pair in pairs) / min(pair[1] for pair in pairs)
    benchmark.extra_info.update(command_s=own, reference_s=other, ratio=ratio)
    spread = sorted(mine / theirs for mine, theirs in pairs)
    print(
        f"\n{' '.join(command[2:4])}: median {own:.2f} s, reference {other:.2f} s; least against least {ratio:.2f}, "
        f"pairs {spread[0]:.2f} to {spread[-1]:.2f} (at most {limit})"
    )
    assert ratio <= limit

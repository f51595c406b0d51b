"""Freed memory of workers."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, threading
import numpy as np
from scenarios.workers.allocator import keep_freed_memory

if sys.argv[1] == "keeps":
    keep_freed_memory()
fresh = []
def fill():
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        np.ones(5 * 2**20)
        fresh.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
thread = threading.Thread(target=fill)
thread.start()
thread.join()
print(fresh[1])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries decide themselves")
def test_a_worker_uses_freed_memory_again() -> None:
    """A second vector of 40 MiB meets 10,240 new pages of 4 kB by default, far fewer where the kernel's pages are larger."""
    fresh = {
        mode: int(subprocess.run([sys.executable, "-c", PROGRAM, mode], capture_output=True, text=True, check=True).stdout)
        for mode in ("default", "keeps")
    }
    assert fresh["default"] > 10
    assert fresh["keeps"] <= 2

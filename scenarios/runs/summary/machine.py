"""Cost of a run and facts of the machine: the part of a summary that differs from run to run."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from functools import cache
from pathlib import Path

from netsim.core.protocols import Notes

_PROCESS = Path("/proc/self")


class Effort:
    """Wall time, processor time and memory of this process since the object was created."""

    def __init__(self, before_s: float = 0.0) -> None:
        """Begin to measure now. `before_s`: wall time of earlier parts of the run."""
        self._started = time.perf_counter() - before_s
        self._cpu = time.process_time()
        _forget_peak()

    def wall_s(self) -> float:
        """Return the wall time since the beginning, with that of earlier parts, seconds."""
        return time.perf_counter() - self._started

    def notes(self) -> Notes:
        """Return the entry `machine` of a summary: of this process, since this object was made; earlier parts do not count."""
        return {
            "cpu": _processor(),
            "cores": os.cpu_count(),
            "cpu_time_s": time.process_time() - self._cpu,
            "peak_memory_bytes": _peak_bytes(),
        }


@cache
def _processor() -> str:
    """Return the name of the processor."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _forget_peak() -> None:
    """Reset the peak of memory if the system can, because a worker simulates several runs one after another."""
    try:
        (_PROCESS / "clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def _peak_bytes() -> int:
    """Return the most memory that the process had since `_forget_peak`, or else since it began."""
    try:
        status = (_PROCESS / "status").read_text(encoding="ascii", errors="replace")
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

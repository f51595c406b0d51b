"""An hour of mixed scenarios in one process: do memory and file handles stay flat?

python -m tests.reliability.soak --minutes 60 --seed 1

Runs of all features, one after the other, in the order that the seed gives, each into a folder of its own. After each pass over
all of them the resident memory, the open file handles and the threads of the process are noted. The first pass, in which modules
are imported and caches filled, does not count.

Memory is noted before and after the C library was asked to give back what nobody uses (`malloc_trim`): training leaves a heap of
which much is free, but in small pieces; of that the C library keeps what it has had at most. What is left afterwards is in use,
and that is what must not grow.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import shutil
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from scenarios.runs.reading import parse
from scenarios.runs.run import run
from scenarios.runs.unfinished import version
from tests.golden.cases import INPUTS
from tests.reliability.campaign import say
from tests.reliability.grammar import bases

SLOPE_BYTES = 20_000
"""Growth of memory a run, beyond which it is not flat."""


class Noted(NamedTuple):
    """The process after so many runs; `kept_bytes` with what the C library would give back."""

    runs: int
    kept_bytes: int
    resident_bytes: int
    handles: int
    threads: int


def noted(runs: int) -> Noted:
    """What the process holds now."""
    gc.collect()
    kept_bytes = _resident_bytes()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return Noted(runs, kept_bytes, _resident_bytes(), len(os.listdir("/proc/self/fd")), threading.active_count())


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def soak(seconds: float, seed: int, *, each_pass: int | None = None) -> list[Noted]:
    """Run scenarios for so long; what the process held after each pass, of `each_pass` scenarios (None: of all)."""
    here, order = Path.cwd(), list(bases())
    Random(seed).shuffle(order)
    order = order[:each_pass]
    notes: list[Noted] = []
    started, runs = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(scratch)
        try:
            shutil.copytree(INPUTS, scratch, dirs_exist_ok=True)
            while time.monotonic() - started < seconds or len(notes) < 3:
                for tables in order:
                    run(parse(tables), "run")
                    shutil.rmtree("run")
                    runs += 1
                notes.append(noted(runs))
                say(f"{time.monotonic() - started:7.0f} s  {notes[-1]}")
        finally:
            os.chdir(here)
    return notes


def growth(notes: list[Noted]) -> tuple[float, int]:
    """Bytes of memory a run, by least squares over the passes but the first; and how many handles were added over these."""
    later = notes[1:]
    slope = float(np.polyfit([note.runs for note in later], [note.resident_bytes for note in later], 1)[0])
    return slope, later[-1].handles - later[0].handles


def campaign() -> int:
    """Whether anything grew."""
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.soak")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenarios", type=int, help="how many in a pass; default: all")
    given = parser.parse_args()
    say(f"soak: netsim {version()}, seed {given.seed}, {given.minutes:g} minutes, {given.scenarios or len(bases())} scenarios")
    notes = soak(60.0 * given.minutes, given.seed, each_pass=given.scenarios)
    slope, handles = growth(notes)
    first, last = notes[1], notes[-1]
    before, after = (f"{note.resident_bytes / 1e6:.1f} MB after {note.runs} runs" for note in (first, last))
    say(f"memory in use: {before}, {after}; kept by the C library: up to {max(note.kept_bytes for note in notes) / 1e6:.1f} MB")
    say(f"{slope:.0f} bytes a run; {handles} further handles ({last.handles} at the end); {last.threads} threads")
    return int(slope > SLOPE_BYTES or handles > 0)


if __name__ == "__main__":
    sys.exit(campaign())

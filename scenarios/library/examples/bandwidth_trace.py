"""Maker of `bandwidth_trace.csv`, the trace of the scenario `bandwidth_trace`: ten minutes on a tram, with two tunnels."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_suffix(".csv")
STEP_S, LENGTH_S = 2, 600
MEDIAN_BYTES_PER_S = 150_000.0
SPREAD, MEMORY = 0.7, 0.9
TUNNELS_S = ((150, 174), (420, 460))


def rows() -> list[tuple[int, int]]:
    """Return time in seconds and bytes per second of each step: a first-order log-normal walk, and 0 in the tunnels."""
    rng = np.random.default_rng(2026)
    times = range(0, LENGTH_S, STEP_S)
    score, rates = rng.standard_normal(), []
    for time_s in times:
        rate = MEDIAN_BYTES_PER_S * float(np.exp(SPREAD * score))
        rates.append(0 if any(start <= time_s < end for start, end in TUNNELS_S) else round(rate / 1000) * 1000)
        score = MEMORY * score + (1.0 - MEMORY**2) ** 0.5 * rng.standard_normal()
    return list(zip(times, rates, strict=True))


def write(path: Path = FILE) -> None:
    """Write the trace."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("time_s", "bytes_per_s"))
        writer.writerows(rows())

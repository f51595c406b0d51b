"""Maker of `device_classes.csv`, the device table of the scenario `device_classes`.

The figures are of no particular product. A device trains as fast as its arithmetic allows: of the operations that it can do in a
second a share is attained, and a small convolutional network takes 5 million operations for the forward pass of a sample, and
three times as many for a step of training.
"""

from __future__ import annotations

import csv
from pathlib import Path

FILE = Path(__file__).with_suffix(".csv")
FLOPS_PER_SAMPLE = 3 * 5e6
ATTAINED = 0.1
# Class: share, operations a second, then bytes a second down and up, watts idle, computing, sending and receiving, joules.
CLASSES = {
    "phone": (0.6, 6e9, 2_000_000, 400_000, 0.3, 3.5, 1.8, 1.2, 40_000),
    "tablet": (0.3, 15e9, 4_000_000, 800_000, 0.5, 6.0, 1.5, 1.1, 90_000),
    "laptop": (0.1, 60e9, 20_000_000, 4_000_000, 4.0, 28.0, 2.0, 1.6, 180_000),
}
COLUMNS = ("class", "share", "samples_per_s", "down_bytes_per_s", "up_bytes_per_s", "idle_w", "compute_w", "send_w", "receive_w")


def rows() -> list[list[str | float]]:
    """Return the lines of the table, its head first."""
    table: list[list[str | float]] = [[*COLUMNS, "battery_j"]]
    for name, (share, flops_per_s, *rest) in CLASSES.items():
        table.append([name, share, ATTAINED * flops_per_s / FLOPS_PER_SAMPLE, *rest])
    return table


def write(path: Path = FILE) -> None:
    """Write the table."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows())

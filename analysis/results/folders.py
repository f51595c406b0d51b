"""Tests for folders of runs and of sweeps, by the files in them."""

from __future__ import annotations

from pathlib import Path


def is_run(path: str | Path) -> bool:
    """Return True if `path` looks like a run folder."""
    return (Path(path) / "summary.json").is_file()


def is_sweep(path: str | Path) -> bool:
    """Return True if `path` looks like a sweep folder."""
    return (Path(path) / "sweep.json").is_file()

"""Runs from several folders as one sweep, so that what was not played together can be compared all the same."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.results import Run, Sweep, SweepEntry, is_run, is_sweep, open_run, open_sweep


def gather(folders: Sequence[Path], *, target_accuracy: float | None = None) -> Sweep:
    """The runs of `folders` (runs, sweeps, or a variant's folder of a sweep) as one sweep; the first variant is the baseline.

    Runs of one scenario that differ in their seed alone are one variant, named after the first one's folder. The target accuracy
    is, if none is given, that of the first sweep that has one. Runs of equal seeds share their random numbers where they draw
    them at the same addresses: differences between scenarios with other clients or links are not paired in any deeper sense.

    Raises:
        ValueError: a folder that holds no finished run, or a variant with two runs of one seed.
    """
    entries: list[SweepEntry] = []
    by_scenario: list[tuple[dict[str, Any], str, str]] = []
    labels: set[str] = set()
    for folder in folders:
        if is_sweep(folder):
            opened = open_sweep(folder)
            target_accuracy = opened.target_accuracy if target_accuracy is None else target_accuracy
            prefix = f"{folder.resolve().name}/" if len(folders) > 1 else ""
            for entry in opened.entries:
                label = prefix + entry.label
                labels.add(label)
                entries.append(SweepEntry(f"{folder}/{entry.variant}", label, entry.seed, entry.path))
            continue
        for run in _runs(folder):
            scenario = {key: value for key, value in run.scenario.items() if key not in ("seed", "name", "description", "sweep")}
            known = [(variant, label) for other, variant, label in by_scenario if other == scenario]
            if not known:
                label = folder.resolve().name
                known = [(str(folder), label if label not in labels else os.path.normpath(folder))]
                by_scenario.append((scenario, *known[0]))
                labels.add(known[0][1])
            entries.append(SweepEntry(*known[0], run.seed, run.path))
    if not entries:
        raise ValueError(f"{', '.join(map(str, folders))}: there is no complete run to compare")
    name = " and ".join(folder.resolve().name for folder in folders)
    return Sweep(path=Path(), name=name, entries=entries, baseline=entries[0].variant, target_accuracy=target_accuracy)


def _runs(folder: Path) -> list[Run]:
    if is_run(folder):
        return [open_run(folder)]
    below = [path for path in sorted(folder.glob("seed-*")) if is_run(path)]
    if not below:
        raise ValueError(f"{folder}: expected a run, a sweep, or the runs of a sweep's variant, but there is no complete one")
    return [open_run(path) for path in below]

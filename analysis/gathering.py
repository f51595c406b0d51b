"""Runs from several folders as one sweep, so that runs of different sweeps can be compared."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from analysis.api import Run, Sweep, SweepEntry, open_run, open_sweep
from analysis.results.folders import is_run, is_sweep
from netsim.core.user_warnings import warn_user

WORLD = ("clients", "downlink", "compute", "uplink", "availability", "outages", "jammers")
"""Tables of a scenario that describe the task of a method; runs that differ in them are not paired at equal seeds."""
WHERE_BOTH = ("learner.data", "learner.partition", "channels", "opinions", "peers")
"""Further tables of the task, which are compared only if both runs have them: some servers have no such table."""
_METHOD = ("learner.data.scale", "learner.data.download")
"""Keys within these tables that do not change the task."""


def gather(folders: Sequence[Path], *, target_accuracy: float | None = None) -> Sweep:
    """Return the runs of several folders as one sweep; a folder is a run, a sweep, or that of a variant of a sweep.

    The first variant is the baseline. Runs of one scenario that differ in their seed alone are one variant, named after the
    folder of the first. `target_accuracy` None: that of the first sweep that has one; the smoothing of accuracies likewise.

    Differences at equal seeds mean something only between runs in one world, because only these draw the same random numbers.
    All runs must therefore share the tables in `WORLD`, except for keys that the first of `folders`, a sweep, varies itself.

    Damaged runs of a sweep are missing, with a warning for each. Interrupted runs in the folder of a variant are missing, too;
    an interrupted run that is named itself counts.

    Raises:
        ValueError: a folder that holds no finished run, a variant with two runs of one seed, or runs of different worlds.
    """
    entries: list[SweepEntry] = []
    smoothing_s = 0.0
    run_variants = _RunVariants()
    missing: list[tuple[str, int]] = []
    for folder in folders:
        if is_sweep(folder):
            opened, damages = open_sweep(folder).drop_damaged()
            for damage in damages:
                warn_user(damage)
            target_accuracy = opened.target_accuracy if target_accuracy is None else target_accuracy
            smoothing_s = smoothing_s or opened.smoothing_s
            prefix = f"{folder.resolve().name}/" if len(folders) > 1 else ""
            missing += [(prefix + label, seed) for label, seed in opened.missing]
            for entry in opened.entries:
                label = prefix + entry.label
                run_variants.taken_labels.add(label)
                entries.append(SweepEntry(f"{folder}/{entry.variant}", label, entry.seed, entry.path))
            continue
        for path, run in _runs(folder):
            if path != folder and run.summary.get("ended") == "interrupted":
                missing.append((folder.resolve().name, run.seed))
            else:
                variant = run_variants.find(run, folder)
                entries.append(SweepEntry(variant.name, variant.label, run.seed, path))
    if not entries:
        raise ValueError(f"{', '.join(map(str, folders))}: there is no complete run to compare")
    _check_runs(entries)
    _check_worlds(folders, entries)
    name = " and ".join(folder.resolve().name for folder in folders)
    return Sweep(
        path=Path(),
        name=name,
        entries=entries,
        baseline=entries[0].variant,
        target_accuracy=target_accuracy,
        smoothing_s=smoothing_s,
        missing=missing,
    )


class _RunVariant(NamedTuple):
    """Variant of runs that belong to no sweep."""

    scenario: dict[str, Any]
    """Their scenario, without the keys that do not distinguish variants."""
    name: str
    label: str


class _RunVariants:
    """Variants of runs that belong to no sweep: runs of one scenario are one variant, named after the folder of the first."""

    def __init__(self) -> None:
        self._variants: list[_RunVariant] = []
        self.taken_labels: set[str] = set()
        """Labels of other variants, and of these."""

    def find(self, run: Run, folder: Path) -> _RunVariant:
        """Return the variant of a run below `folder`; a new one for the first run of its scenario."""
        scenario = {key: value for key, value in run.scenario.items() if key not in ("seed", "name", "description", "sweep")}
        known = next((variant for variant in self._variants if variant.scenario == scenario), None)
        if known is not None:
            return known
        label = folder.resolve().name
        if label in self.taken_labels:
            label = os.path.normpath(folder)
        variant = _RunVariant(scenario, name=str(folder), label=label)
        self._variants.append(variant)
        self.taken_labels.add(variant.label)
        return variant


class WorldDifference(NamedTuple):
    """A key by which two scenarios set different tasks, and its values; None where a scenario lacks the key."""

    key: str
    """Name of the key, with dots between its parts."""
    first: Any
    second: Any


def different_world(first: dict[str, Any], second: dict[str, Any]) -> WorldDifference | None:
    """Return the first key by which two scenarios set different tasks; None if they set the same task.

    Compared are the tables in `WORLD`, and those in `WHERE_BOTH` if both scenarios have them, without the keys in `_METHOD`.
    """
    for path in (*WORLD, *WHERE_BOTH):
        first_values, second_values = _flat_values(first, path), _flat_values(second, path)
        if path in WHERE_BOTH and not (first_values and second_values):
            continue
        for key in (*first_values, *second_values):
            if key not in _METHOD and first_values.get(key) != second_values.get(key):
                return WorldDifference(key, first_values.get(key), second_values.get(key))
    return None


def _flat_values(scenario: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the values below `path`, by dotted key; empty tables and lists count as absent."""
    start: Any = scenario
    for name in path.split("."):
        start = start.get(name) if isinstance(start, dict) else None
    values: dict[str, Any] = {}
    # A stack of keys to visit. Tables push their keys in reverse, so that these are visited in the order of the scenario.
    pending = [(path, start)]
    while pending:
        key, value = pending.pop()
        if isinstance(value, dict):
            pending += [(f"{key}.{name}", inner) for name, inner in reversed(value.items())]
        elif value not in (None, []):
            values[key] = value
    return values


def _check_runs(entries: Sequence[SweepEntry]) -> None:
    """Raise ValueError where a variant has two runs of one seed."""
    folders: dict[tuple[str, int], Path] = {}
    for entry in entries:
        other = folders.get((entry.variant, entry.seed))
        if other is not None:
            what = "the same run" if other.resolve() == entry.path.resolve() else "another run of the same scenario and seed"
            raise ValueError(f"{entry.path}: {what} as {other}; name one of them")
        folders[entry.variant, entry.seed] = entry.path


def _check_worlds(folders: Sequence[Path], entries: Sequence[SweepEntry]) -> None:
    """Raise ValueError if a variant has another world than every variant of the first folder; the message names one key."""
    first_paths: dict[str, Path] = {}
    for entry in entries:
        first_paths.setdefault(entry.variant, entry.path)
    paths = list(first_paths.values())
    # A sweep states what it varies: any world of the first folder is allowed.
    allowed = [Run(path).scenario for path in paths if path.is_relative_to(folders[0])]
    for path in paths:
        differences = [different_world(Run(path).scenario, scenario) for scenario in allowed]
        if None in differences:
            continue
        shown = next(difference for difference in differences if difference is not None)
        raise ValueError(
            f"{path}: {shown.key} = {shown.first!r}, but {paths[0]} has {shown.second!r}: differences at equal seeds mean "
            "nothing between different tasks. Compare runs that share clients, data, partition and network, or make both "
            "variants of one sweep, which sets them side by side knowingly"
        )


def _runs(folder: Path) -> list[tuple[Path, Run]]:
    """Return the run in `folder`, or the runs `seed-*` below it, each with its folder. ValueError: there is none."""
    if is_run(folder):
        return [(folder, open_run(folder))]
    below = [path for path in sorted(folder.glob("seed-*")) if is_run(path)]
    if not below:
        raise ValueError(f"{folder}: expected a run, a sweep, or the runs of a sweep's variant, but there is no complete one")
    return [(path, open_run(path)) for path in below]

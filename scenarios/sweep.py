"""Many runs of one scenario: variants and grids of keys, each with the same seeds, so that differences are paired."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from netsim.simulation import Simulation
from scenarios.build import build
from scenarios.errors import UserError, did_you_mean
from scenarios.reading import override, parse
from scenarios.run import INTERRUPTED, prepare_folder, run
from scenarios.schema import Scenario

MANIFEST = "sweep.json"


@dataclass(frozen=True)
class Planned:
    """One run of a sweep."""

    variant: str
    label: str
    seed: int
    scenario: Scenario

    @property
    def path(self) -> str:
        """Its folder below the sweep's."""
        return f"{self.variant}/seed-{self.seed}"


@dataclass(frozen=True)
class Plan:
    """All runs of a sweep, checked before any of them begins."""

    name: str
    runs: list[Planned]
    baseline: str
    target_accuracy: float | None


def plan(tables: Mapping[str, Any], source: str) -> Plan:
    """The runs that the `[sweep]` table asks for; raises UserError for any wrong key of any variant."""
    base = parse(tables, source)
    sweep = base.sweep
    without = {key: value for key, value in tables.items() if key != "sweep"}
    variants = [(v.name, v.label or v.name, dict(v.set)) for v in sweep.variants] or [("", "", {})]
    keys = list(sweep.grid)
    named: dict[str, tuple[str, dict[str, Any]]] = {}
    for (name, label, changes), values in itertools.product(variants, itertools.product(*sweep.grid.values())):
        setting = dict(zip(keys, values, strict=True))
        suffix = [f"{key.rsplit('.', 1)[-1]}={_word(value)}" for key, value in setting.items()]
        full_name = "+".join([*([name] if name else []), *suffix]) or base.policy.kind
        full_label = ", ".join([*([label] if label else []), *suffix]) or base.policy.kind
        if full_name in named:
            raise UserError(f"{source}: sweep.variants: two variants are named {full_name!r}; give each its own name")
        named[full_name] = (full_label, changes | setting)
    baseline = sweep.baseline or next(iter(named))
    if baseline not in named:
        raise UserError(f"{source}: sweep.baseline = {baseline!r}: no such variant; {did_you_mean(baseline, named)}")
    if len(set(sweep.seeds)) < len(sweep.seeds):
        raise UserError(f"{source}: sweep.seeds = {sweep.seeds}: names a seed twice; give each once")
    runs = []
    for name, (label, changes) in named.items():
        changed = parse(override(without, changes), f"{source} (variant {name})")
        build(changed, learner=False)
        runs += [Planned(name, label, seed, changed.model_copy(update={"seed": seed})) for seed in sweep.seeds]
    return Plan(base.name, runs, baseline, sweep.target_accuracy)


def _word(value: Any) -> str:
    text = str(value)
    return "".join(c if c.isalnum() or c in ".-" else "_" for c in text)


def sweep(
    planned: Plan,
    out: str | Path,
    *,
    overwrite: bool = False,
    jobs: int | None = None,
    progress: Callable[[list[int]], None] | None = None,
) -> Path:
    """Play all runs of a plan on `jobs` processes (default: all cores) into folders below `out`; returns `out`.

    `progress` is called some times a second with the rounds done of every run. Interrupted, the sweep keeps the runs that are
    complete. Raises UserError, with nothing written, for whatever the user can mend.
    """
    from joblib import Parallel, delayed

    folder = Path(out)
    jobs = jobs or os.cpu_count() or 1
    prepare_sweep(folder, planned, overwrite)
    with tempfile.TemporaryDirectory(prefix="netsim-") as scratch:
        counts = np.memmap(Path(scratch) / "rounds", np.int64, "w+", shape=(len(planned.runs),))
        stop = threading.Event()

        def watch() -> None:
            while not stop.wait(0.2):
                if progress is not None:
                    progress(counts.tolist())

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            tasks = (delayed(_play)(p, folder / p.path, str(counts.filename), i) for i, p in enumerate(planned.runs))
            ended = Parallel(n_jobs=min(jobs, len(planned.runs)))(tasks)
        finally:
            stop.set()
            watcher.join()
            _write_manifest(planned, folder)
        if progress is not None:
            progress(counts.tolist())
    if INTERRUPTED in ended:
        raise KeyboardInterrupt
    return folder


def prepare_sweep(folder: Path, planned: Plan, overwrite: bool) -> None:
    """Make the folders of a sweep ready; raises UserError before anything is written."""
    if (folder / MANIFEST).exists() and not overwrite:
        raise UserError(f"--out {str(folder)!r}: already holds a sweep; give --overwrite or another folder")
    if folder.is_dir() and not (folder / MANIFEST).exists() and any(folder.iterdir()):
        raise UserError(f"--out {str(folder)!r}: is a folder with other things in it; name a new or an empty folder")
    for p in planned.runs:
        prepare_folder(folder / p.path, overwrite)
    (folder / MANIFEST).unlink(missing_ok=True)


def _play(planned: Planned, out: Path, counts_file: str, index: int) -> str:
    counts = np.memmap(counts_file, np.int64, "r+")

    def count(simulation: Simulation) -> None:
        counts[index] = simulation.server.round

    summary = run(planned.scenario, out, overwrite=True, after_round=count)
    return str(summary["ended"])


def _write_manifest(planned: Plan, folder: Path) -> None:
    done = [p for p in planned.runs if (folder / p.path / "summary.json").exists()]
    manifest = {
        "format": 1,
        "name": planned.name,
        "baseline": planned.baseline,
        "target_accuracy": planned.target_accuracy,
        "runs": [{"variant": p.variant, "label": p.label, "seed": p.seed, "path": p.path} for p in done],
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")

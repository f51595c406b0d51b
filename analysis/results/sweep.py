"""A finished sweep: its runs by variant and seed, and their tables one below the other.

A sweep folder holds `sweep.json` and run folders. The same class reads sweeps in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from analysis.results.folders import is_run, is_sweep
from analysis.results.run import Run
from analysis.results.sources import RunFolder, RunSource, TableName, read_json

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class SweepEntry:
    """One run of a sweep, as `sweep.json` lists it."""

    variant: str
    label: str
    seed: int
    path: Path
    """Its folder; in memory, the name that its folder would have."""
    source: RunSource | None = None
    """Source of the run's results; None: its folder."""
    id: str | None = None
    """Identity of the run in the sweep's list (`run_id` of its summary); None if unknown."""


class Sweep:
    """Runs of several variants on the same seeds. Iterating opens one run after the other, in the order of its list.

    Raises:
        ValueError: a variant twice at one seed, or a baseline that is no variant.
    """

    run_class: ClassVar[type[Run]] = Run
    """The class of the runs that the sweep opens."""

    def __init__(
        self,
        *,
        path: Path,
        name: str,
        entries: Sequence[SweepEntry],
        baseline: str,
        target_accuracy: float | None = None,
        smoothing_s: float = 0.0,
        missing: Sequence[tuple[str, int]] = (),
    ) -> None:
        self.path = path
        """Folder of the sweep; files are written into it."""
        self.name = name
        self.baseline = baseline
        self.target_accuracy = target_accuracy
        self.smoothing_s = smoothing_s
        """Simulated seconds over which accuracies are averaged, in figures and on the way to the target."""
        self.missing = tuple(missing)
        """Label and seed of each planned run that is not complete."""
        # One source for each run keeps the columns that were read for later calls.
        self.entries = tuple(replace(entry, source=RunFolder(entry.path)) if entry.source is None else entry for entry in entries)
        self._by_key = {(entry.variant, entry.seed): entry for entry in self.entries}
        if len(self._by_key) != len(self.entries):
            raise ValueError(f"{path}: expected each variant at most once a seed, but a pair of the two is listed twice")
        self.labels = {entry.variant: entry.label for entry in self.entries}
        """Variant to label, in the order of first appearance."""
        self.variants = tuple(self.labels)
        self.seeds = tuple(dict.fromkeys(entry.seed for entry in self.entries))
        if self.entries and self.baseline not in self.labels:
            raise ValueError(f"{path}: baseline = {self.baseline!r}: must be one of the variants {', '.join(self.variants)}")

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the sweep folder at `path`. ValueError: no such folder, not a sweep, malformed, or newer than this reader."""
        if not path.is_dir():
            raise ValueError(f"{path}: expected a sweep folder, but there is no such folder")
        if not is_sweep(path):
            remedy = "; this is a single run, open it with open_run" if is_run(path) else ""
            raise ValueError(f"{path}: expected a sweep folder, but sweep.json is missing{remedy}")
        file = path / "sweep.json"
        content = read_json(file, "the list of a sweep's runs")
        try:
            target = content["target_accuracy"]
            entries = [
                SweepEntry(str(run["variant"]), str(run["label"]), int(run["seed"]), path / run["path"], id=run.get("id"))
                for run in content["runs"]
            ]
            missing = [(str(run["label"]), int(run["seed"])) for run in content.get("missing", ())]
            name, baseline = str(content["name"]), str(content["baseline"])
            planned = [run["variant"] for run in content.get("missing", ())]
            if entries and baseline in planned and all(entry.variant != baseline for entry in entries):
                # Without a complete run of the baseline, the other variants are still usable.
                baseline = entries[0].variant
            smoothing_s = float(content.get("smoothing_s", 0.0))
            target = None if target is None else float(target)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                f"{file}: expected the list of a sweep's runs, but a key is missing or malformed: {error}"
            ) from error
        try:
            return cls(
                path=path,
                name=name,
                entries=entries,
                baseline=baseline,
                target_accuracy=target,
                smoothing_s=smoothing_s,
                missing=missing,
            )
        except ValueError as error:
            raise ValueError(str(error).replace(str(path), str(file), 1)) from error

    def drop_damaged(self) -> tuple[Self, list[str]]:
        """Return the sweep without its damaged runs, and a message for each damage.

        All files of all runs are read. The damaged runs are listed in `missing`. If no run of the baseline is left, the first
        variant becomes the baseline.
        """
        intact, missing, damages = [], list(self.missing), []
        for entry in self.entries:
            problems = self._find_damages(entry)
            damages += problems
            if problems:
                missing.append((entry.label, entry.seed))
            else:
                intact.append(entry)
        if not damages:
            return self, []
        baseline = self.baseline
        if intact and baseline not in {entry.variant for entry in intact}:
            baseline = intact[0].variant
            old, new = self.labels[self.baseline], intact[0].label
            damages.append(f"no run of the baseline {old!r} is left: differences are to {new!r}")
        return self._replace_entries(intact, baseline, missing), damages

    def only(self, variants: Sequence[str]) -> Self:
        """Return a sweep of the runs of `variants` alone, with the first of these as baseline.

        ValueError: no variants, or an unknown one.
        """
        for variant in variants:
            if variant not in self.labels:
                raise ValueError(f"{self.path}: no variant {variant!r} in this sweep (variants {', '.join(self.variants)})")
        if not variants:
            raise ValueError("variants = []: name at least one")
        labels = {self.labels[variant] for variant in variants}
        entries = [entry for variant in variants for entry in self.entries if entry.variant == variant]
        missing = [(label, seed) for label, seed in self.missing if label in labels]
        return self._replace_entries(entries, baseline=variants[0], missing=missing)

    def run(self, variant: str, seed: int) -> Run:
        """Return the run of `variant` at `seed`; ValueError where the sweep has none."""
        entry = self._by_key.get((variant, seed))
        if entry is None:
            choices = f"variants {', '.join(self.variants)}; seeds {', '.join(map(str, self.seeds))}"
            raise ValueError(f"{self.path}: no run of variant {variant!r} at seed {seed!r} in this sweep ({choices})")
        return self._open(entry)

    def runs(self, variant: str) -> Sequence[Run]:
        """Return all runs of `variant`, in the order of `sweep.json`."""
        return [self._open(entry) for entry in self.entries if entry.variant == variant]

    def table(self, table: TableName, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the rows of `table` of all runs, run after run, with the columns variant, label and seed first.

        ValueError: a run has no such table. For long runs, name the columns that you need.
        """
        import pandas as pd

        frames = []
        for run in self:
            frame: pd.DataFrame = run.arrow(table, columns).to_pandas()
            frame.insert(0, "variant", run.variant)
            frame.insert(1, "label", run.label)
            frame.insert(2, "seed", run.seed)
            frames.append(frame)
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """The rounds of all runs, as `table` gives them."""
        return self.table("rounds")

    @cached_property
    def clients(self) -> pd.DataFrame:
        """The attempts of all runs, as `table` gives them."""
        return self.table("clients")

    def _replace_entries(self, entries: Sequence[SweepEntry], baseline: str, missing: Sequence[tuple[str, int]]) -> Self:
        """Return a sweep with other runs, and otherwise the settings of this one."""
        return type(self)(
            path=self.path,
            name=self.name,
            entries=entries,
            baseline=baseline,
            target_accuracy=self.target_accuracy,
            smoothing_s=self.smoothing_s,
            missing=missing,
        )

    def _open(self, entry: SweepEntry) -> Run:
        """Open one run of the sweep. ValueError: it is missing, or its folder holds a run with another `run_id`."""
        source = RunFolder(entry.path) if entry.source is None else entry.source
        if source.folder is not None and not is_run(source.folder):
            raise ValueError(
                f"{entry.path}: expected the run folder of variant {entry.variant!r}, seed {entry.seed}; it is not there"
            )
        run = self.run_class(source, variant=entry.variant, label=entry.label)
        identity = run.summary.get("run_id")
        if entry.id is not None and identity is not None and identity != entry.id:
            raise ValueError(
                f"{entry.path}: is not the run that sweep.json lists as variant {entry.variant!r}, seed {entry.seed}: its "
                f"run_id is {identity}, not {entry.id}; simulate that run again with netsim sweep and --resume"
            )
        return run

    def _find_damages(self, entry: SweepEntry) -> list[str]:
        """Return a message for each damaged file of a run; one message if it cannot be opened."""
        try:
            return self._open(entry).source.find_damages()
        except ValueError as error:
            return [str(error)]

    def __iter__(self) -> Iterator[Run]:
        return (self._open(entry) for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        place = self.name if self.path == Path() else str(self.path)
        return f"Sweep({place!r}, variants={self.variants}, seeds={self.seeds})"

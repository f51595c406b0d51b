"""What a run or a sweep left: tables as pandas or Arrow, summary and scenario as dictionaries, figures.

A run folder holds `scenario.toml`, `summary.json`, `rounds.parquet` and, unless records are thinned, `clients.parquet`; a sweep
folder holds `sweep.json` and run folders. Tables are read when first asked for. What was run in memory is read from there, by the
same classes. Nothing here needs the simulator.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from analysis.sources import COLUMNS, RunFolder, RunSource, TableName, check_table, read_json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from analysis.report.comparison import Comparison

OUTCOMES = ("delivered", "lost", "late", "aborted", "in_flight")
"""How an attempt can end."""


class Rounds(Protocol):
    """Columns of the rounds table by their names: a pandas table, or arrays (n,)."""

    def __getitem__(self, name: str, /) -> Any:
        """One column (n,)."""


class Run:
    """One finished run. `variant` and `label` say what it is called in a comparison; alone, a run is called by its policy."""

    def __init__(self, source: Path | RunSource, *, variant: str | None = None, label: str | None = None) -> None:
        self.source: RunSource = RunFolder(source) if isinstance(source, Path) else source
        self.summary: dict[str, Any] = self.source.summary()
        self.name = str(self.summary["name"])
        self.policy = str(self.summary["policy"])
        self.seed = int(self.summary["seed"])
        self.variant = self.policy if variant is None else variant
        self.label = self.variant if label is None else label

    @property
    def path(self) -> Path | None:
        """Its folder; None where it was run in memory."""
        return self.source.folder

    @cached_property
    def scenario(self) -> dict[str, Any]:
        """The complete scenario of the run, defaults filled in."""
        text = self.source.scenario_text()
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            place = self.source.place if self.path is None else self.path / "scenario.toml"
            raise ValueError(f"{place}: expected the run's scenario, but it is not TOML: {error}") from error

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """One row a round; missing values are NaN."""
        table: pd.DataFrame = self.arrow("rounds").to_pandas()
        return table

    @cached_property
    def clients(self) -> pd.DataFrame:
        """One row for each attempt of a client; ValueError where the run kept no such records (see `has_clients`)."""
        table: pd.DataFrame = self.arrow("clients").to_pandas()
        return table

    @cached_property
    def detections(self) -> pd.DataFrame:
        """One row for each change that the scheduler declared; ValueError without such a table (see `has_detections`)."""
        table: pd.DataFrame = self.arrow("detections").to_pandas()
        return table

    @cached_property
    def jams(self) -> pd.DataFrame:
        """One row for each dwell of a jammer; ValueError where the scenario has none."""
        table: pd.DataFrame = self.arrow("jams").to_pandas()
        return table

    @cached_property
    def messages(self) -> pd.DataFrame:
        """One row for each message between clients; ValueError where `output.messages_table` did not ask for them."""
        table: pd.DataFrame = self.arrow("messages").to_pandas()
        return table

    @cached_property
    def beliefs(self) -> pd.DataFrame:
        """One row for each client and slot; ValueError where `output.beliefs_table` did not ask for them."""
        table: pd.DataFrame = self.arrow("beliefs").to_pandas()
        return table

    @cached_property
    def links(self) -> pd.DataFrame:
        """One row for each link between clients; ValueError likewise."""
        table: pd.DataFrame = self.arrow("links").to_pandas()
        return table

    @cached_property
    def probes(self) -> pd.DataFrame:
        """One row for each client that was asked for its loss; ValueError where the policy asks nobody."""
        table: pd.DataFrame = self.arrow("probes").to_pandas()
        return table

    @cached_property
    def script(self) -> pd.DataFrame:
        """One row for each parameter that an act of the script changed; ValueError where the scenario has no script."""
        table: pd.DataFrame = self.arrow("script").to_pandas()
        return table

    @cached_property
    def evaluations(self) -> pd.DataFrame:
        """One row for each metric of your own and evaluation; ValueError where the scenario names none."""
        table: pd.DataFrame = self.arrow("evaluations").to_pandas()
        return table

    @cached_property
    def partition(self) -> pd.DataFrame:
        """Training samples of each label that each client holds; ValueError where nothing was trained (see `has_partition`)."""
        table: pd.DataFrame = self.arrow("partition").to_pandas()
        return table

    @property
    def has_privacy(self) -> bool:
        """Whether the scenario has a `[privacy]` table, and so budgets that are spent."""
        return bool(self.scenario.get("privacy"))

    @property
    def has_detections(self) -> bool:
        """Whether the run had a scheduler of sub-channels, which may declare changes."""
        return self.source.has("detections")

    @property
    def has_partition(self) -> bool:
        """Whether the run trained clients, and so says who holds which training samples."""
        return self.source.has("partition")

    @property
    def has_clients(self) -> bool:
        """Whether the run kept records of single clients."""
        return self.source.has("clients")

    @property
    def tables(self) -> list[TableName]:
        """The tables that the run left."""
        return [name for name in COLUMNS if self.source.has(name)]

    def arrow(self, table: TableName, columns: Sequence[str] | None = None) -> Any:
        """A table as `pyarrow.Table`, all columns or some. Read again each time. ValueError: absent, foreign or newer format."""
        import pyarrow

        if table not in COLUMNS:
            raise ValueError(f"table = {table!r}: must be one of {', '.join(map(repr, COLUMNS))}")
        called = self.source.called(table)
        if not self.source.has(table):
            remedy = "; the scenario may not record single clients (output.clients_table = false)" if table == "clients" else ""
            raise ValueError(f"{called}: expected the {table} table of a run, but there is no such table{remedy}")
        with self.source.open(table) as opened:
            lacking = check_table(called, table, opened.schema)
            wanted = [*opened.schema.names, *lacking] if columns is None else list(columns)
            found = opened.read([name for name in wanted if name not in lacking])
            for name in (name for name in wanted if name in lacking):
                found = found.append_column(name, pyarrow.nulls(opened.rows, pyarrow.float64()))
            return found.select(wanted)

    def pieces(self, table: TableName, columns: Sequence[str]) -> Iterator[Any]:
        """Some columns of a table as one `pyarrow.Table` after the other, so that it need not fit in memory; as of `arrow`."""
        called = self.source.called(table)
        if not self.source.has(table):
            raise ValueError(f"{called}: expected the {table} table of a run, but there is no such table")
        with self.source.open(table) as opened:
            check_table(called, table, opened.schema)
            yield from opened.pieces(columns)

    def columns(self, names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """Columns of the rounds table as floats, each (n,), missing values as NaN; not to be written to.

        They are read once and shared by all who ask for them, as long as there is room. ValueError: as of `arrow`.
        """

        def read(lacking: list[str]) -> dict[str, NDArray[np.float64]]:
            # All at once: who wants one column wants others, and to open the file again takes longer than to read them.
            table = self.arrow("rounds", [*COLUMNS["rounds"], *(name for name in lacking if name not in COLUMNS["rounds"])])
            return {name: _floats(table.column(name)) for name in table.column_names}

        return self.source.kept.get(names, read)

    def plot(self, figure: str | None = None, **settings: Any) -> Figure:
        """One of the run's figures, by name; None: the first that there is data for. Shown by a notebook, kept by `savefig`.

        The names and `settings` are those of `analysis.draw`. ValueError: no such figure, or the run has no data for it.
        """
        from analysis.figures.runs import draw  # figures read runs: imported only where one is drawn

        return draw(self, figure, **settings)

    def __repr__(self) -> str:
        return f"Run({self.source.place!r}, policy={self.policy!r}, seed={self.seed})"


@dataclass(frozen=True, slots=True)
class SweepEntry:
    """One run of a sweep, as `sweep.json` lists it."""

    variant: str
    label: str
    seed: int
    path: Path
    """Its folder; in memory, the name that its folder would have."""
    source: RunSource | None = None
    """Where it is read from; None: its folder."""


class Sweep:
    """Runs of several variants on the same seeds. Iterating opens one run after the other, in the order of its list.

    Raises:
        ValueError: a variant twice at one seed, or a baseline that is no variant.
    """

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
        """Where it lies, or may leave what it writes."""
        self.name = name
        self.baseline = baseline
        self.target_accuracy = target_accuracy
        self.smoothing_s = smoothing_s
        """Simulated seconds over which accuracies are averaged, in figures and on the way to the target."""
        self.missing = tuple(missing)
        """Label and seed of each run that was planned and is not complete: what is here is not all that was asked for."""
        # One source a run, so that what was read of it is there for the next who asks.
        self.entries = tuple(
            replace(entry, source=RunFolder(entry.path)) if entry.source is None else entry for entry in entries
        )
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
    def read(cls, path: Path) -> Sweep:
        """The sweep whose `sweep.json` lies in `path`; ValueError where that is malformed."""
        file = path / "sweep.json"
        content = read_json(file, "the list of a sweep's runs")
        try:
            target = content["target_accuracy"]
            entries = [
                SweepEntry(str(run["variant"]), str(run["label"]), int(run["seed"]), path / run["path"])
                for run in content["runs"]
            ]
            missing = [(str(run["label"]), int(run["seed"])) for run in content.get("missing", ())]
            name, baseline = str(content["name"]), str(content["baseline"])
            if entries and all(entry.variant != baseline for entry in entries):
                # None of its runs is complete: the others can be looked at all the same.
                baseline = entries[0].variant if baseline in [run["variant"] for run in content.get("missing", ())] else baseline
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

    def without_damaged(self) -> tuple[Sweep, list[str]]:
        """The sweep without its damaged runs, which then are `missing`; and what is wrong with them, a line each.

        Reads all files of all runs.
        """
        whole, missing, told = [], list(self.missing), []
        for entry in self.entries:
            problems = _damages(entry)
            told += problems
            if problems:
                missing.append((entry.label, entry.seed))
            else:
                whole.append(entry)
        if not told:
            return self, []
        baseline = self.baseline
        if whole and baseline not in {entry.variant for entry in whole}:
            baseline = whole[0].variant
            told.append(f"no run of the baseline {self.labels[self.baseline]!r} is left: differences are to {whole[0].label!r}")
        kept = Sweep(
            path=self.path,
            name=self.name,
            entries=whole,
            baseline=baseline,
            target_accuracy=self.target_accuracy,
            smoothing_s=self.smoothing_s,
            missing=missing,
        )
        return kept, told

    def run(self, variant: str, seed: int) -> Run:
        """The run of `variant` at `seed`; ValueError where the sweep has none."""
        entry = self._by_key.get((variant, seed))
        if entry is None:
            known = f"variants {', '.join(self.variants)}; seeds {', '.join(map(str, self.seeds))}"
            raise ValueError(f"{self.path}: no run of variant {variant!r} at seed {seed!r} in this sweep ({known})")
        return _open_entry(entry)

    def runs(self, variant: str) -> list[Run]:
        """All runs of `variant`, in the order of `sweep.json`."""
        return [_open_entry(entry) for entry in self.entries if entry.variant == variant]

    def table(self, table: TableName, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """One table of all runs, one below the other, with the columns variant, label and seed before its own.

        ValueError: a run has no such table. Of long runs, name the columns that are needed.
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

    def compare(self, **settings: Any) -> Comparison:
        """The variants side by side: means with intervals, paired differences; `settings` as for `analysis.compare`."""
        from analysis.report.comparison import compare  # comparisons read sweeps: imported only where one is made

        return compare(self, **settings)

    @cached_property
    def comparison(self) -> pd.DataFrame:
        """A row a variant, with the columns of `comparison.parquet`: mean, half-width and count of each figure."""
        from analysis.report.comparison import comparison_frame

        return comparison_frame(self.compare())

    def plot(self, figure: str | None = None, **settings: Any) -> Figure:
        """One of the figures of the variants, as `Run.plot`: means over seeds, with their 95 % interval as a band."""
        from analysis.figures.runs import draw

        return draw(self, figure, **settings)

    def __iter__(self) -> Iterator[Run]:
        return (_open_entry(entry) for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        place = self.name if self.path == Path() else str(self.path)
        return f"Sweep({place!r}, variants={self.variants}, seeds={self.seeds})"


def is_run(path: str | Path) -> bool:
    """Whether `path` looks like a run folder."""
    return (Path(path) / "summary.json").is_file() and (Path(path) / "rounds.parquet").is_file()


def is_sweep(path: str | Path) -> bool:
    """Whether `path` looks like a sweep folder."""
    return (Path(path) / "sweep.json").is_file()


def open_run(path: str | Path) -> Run:
    """Open the run folder at `path`. ValueError: no such folder, not a run, or a format newer than this reader."""
    path = Path(path)
    if not path.is_dir():
        raise ValueError(f"{path}: expected a run folder, but there is no such folder")
    if not (path / "summary.json").is_file():
        remedy = "; this is a sweep, open it with open_sweep" if is_sweep(path) else ""
        raise ValueError(f"{path}: expected a run folder, but summary.json is missing{remedy}")
    return Run(path)


def open_sweep(path: str | Path) -> Sweep:
    """Open the sweep folder at `path`. ValueError: no such folder, not a sweep, or a format newer than this reader."""
    path = Path(path)
    if not path.is_dir():
        raise ValueError(f"{path}: expected a sweep folder, but there is no such folder")
    if not is_sweep(path):
        remedy = "; this is a single run, open it with open_run" if is_run(path) else ""
        raise ValueError(f"{path}: expected a sweep folder, but sweep.json is missing{remedy}")
    return Sweep.read(path)


def _damages(entry: SweepEntry) -> list[str]:
    """What is wrong with the files of a run; nothing in memory."""
    if entry.source is not None:
        return []
    try:
        _open_entry(entry)
        return RunFolder(entry.path).damages()
    except ValueError as error:
        return [str(error)]


def _open_entry(entry: SweepEntry) -> Run:
    source = RunFolder(entry.path) if entry.source is None else entry.source
    if source.folder is not None and not is_run(source.folder):
        raise ValueError(
            f"{entry.path}: expected the run folder of variant {entry.variant!r}, seed {entry.seed}; it is not there"
        )
    return Run(source, variant=entry.variant, label=entry.label)


def _floats(column: Any) -> NDArray[np.float64]:
    """A column of Arrow as floats (n,), missing values as NaN; where all are missing, one number shown n times."""
    if column.null_count == len(column) > 0:
        return np.broadcast_to(np.float64("nan"), len(column)).view()
    return np.array(column.to_numpy(), dtype=np.float64)

"""A finished run: its tables as pandas or Arrow, its summary and scenario as dictionaries.

A run folder holds `scenario.toml`, `summary.json`, `rounds.parquet` and, unless records are thinned, `clients.parquet`.
Tables are read when first asked for. The same class reads runs in memory. Nothing here needs the simulator.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.results.folders import is_sweep
from analysis.results.sources import (
    COLUMNS,
    ROUND_NUMBERS,
    RunFolder,
    RunSource,
    TableName,
    check_filled,
    check_table,
    select_columns,
)

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


OUTCOMES = ("delivered", "lost", "late", "aborted", "in_flight")
"""Outcomes of an attempt."""


class Rounds(Protocol):
    """Columns of the rounds table by their names: a pandas table, or arrays (n,)."""

    def __getitem__(self, name: str, /) -> Any:
        """Return one column (n,)."""


class _Table:
    """A table of a run as a pandas table, read when first asked for and then kept; missing values are NaN."""

    def __set_name__(self, owner: type, name: TableName) -> None:
        self._name: TableName = name

    @overload
    def __get__(self, run: None, owner: type) -> Self: ...

    @overload
    def __get__(self, run: Run, owner: type) -> pd.DataFrame: ...

    def __get__(self, run: Run | None, owner: type) -> pd.DataFrame | Self:
        if run is None:
            return self
        # The entry in the instance takes precedence over this descriptor from now on.
        table: pd.DataFrame = run.arrow(self._name).to_pandas()
        run.__dict__[self._name] = table
        return table


class Run:
    """One finished run. `variant` and `label` are its names in a comparison; None: the name of its policy."""

    rounds = _Table()
    """One row a round; missing values are NaN."""
    clients = _Table()
    """One row for each attempt of a client; ValueError where the run kept no such records (see `has_clients`)."""
    detections = _Table()
    """One row for each change that the scheduler declared; ValueError without such a table (see `has_detections`)."""
    jams = _Table()
    """One row for each dwell of a jammer; ValueError where the scenario has none."""
    messages = _Table()
    """One row for each message between clients; ValueError where `output.messages_table` did not ask for them."""
    beliefs = _Table()
    """One row for each client and slot; ValueError where `output.beliefs_table` did not ask for them."""
    links = _Table()
    """One row for each link between clients; ValueError where `output.beliefs_table` did not ask for them."""
    probes = _Table()
    """One row for each probe of a client's loss; ValueError where the policy sends no probes."""
    script = _Table()
    """One row for each parameter that an act of the script changed; ValueError where the scenario has no script."""
    evaluations = _Table()
    """One row for each metric of your own and evaluation; ValueError where the scenario names none."""
    partition = _Table()
    """Training samples of each label that each client holds; raises ValueError without training (see `has_partition`)."""

    transfers = _Table()
    """One row for each transfer over `[network]`; ValueError where `output.transfers_table` did not ask for them."""
    link_loads = _Table()
    """One row for each link of `[network]` and round in which bytes crossed it; ValueError as for `transfers`."""
    cables = _Table()
    """One row for each cable of `[network]`; ValueError as for `transfers`."""

    def __init__(self, source: Path | RunSource, *, variant: str | None = None, label: str | None = None) -> None:
        self.source: RunSource = RunFolder(source) if isinstance(source, Path) else source
        self.summary: dict[str, Any] = self.source.summary()
        self.name = str(self.summary["name"])
        self.policy = str(self.summary["policy"])
        self.seed = int(self.summary["seed"])
        self.variant = self.policy if variant is None else variant
        self.label = self.variant if label is None else label

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the run folder at `path`. ValueError: no such folder, not a run, or a format newer than this reader."""
        if not path.is_dir():
            raise ValueError(f"{path}: expected a run folder, but there is no such folder")
        if not (path / "summary.json").is_file():
            remedy = "name a folder that a run or a sweep has left"
            if is_sweep(path):
                remedy = f"this is a sweep: name one of its runs, as {path}/VARIANT/seed-SEED, or open it with open_sweep"
            raise ValueError(f"{path}: expected a run folder, but summary.json is missing; {remedy}")
        return cls(path)

    @property
    def path(self) -> Path | None:
        """Folder of the run; None for a run in memory."""
        return self.source.folder

    @cached_property
    def jammed(self) -> dict[str, str]:
        """Target of each jammer, by the jammer's name: column `channel` of the table `jams` numbers its parts.

        "network" (cables), "channels" (sub-channels), "peers" (links), or "opinions", "uplink" and "downlink" (clients).
        """
        targets: dict[str, str] | None = self.summary.get("jammed")
        return _unstated_targets(self.scenario) if targets is None else targets

    @cached_property
    def scenario(self) -> dict[str, Any]:
        """The complete scenario of the run, defaults filled in."""
        text = self.source.scenario_text()
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            place = self.source.place if self.path is None else self.path / "scenario.toml"
            raise ValueError(f"{place}: expected the run's scenario, but it is not TOML: {error}") from error

    @property
    def rounds_per_row(self) -> int:
        """Number of communication rounds in a row of the rounds table: with slots the rounds of a slot, otherwise 1.

        Other tables, and the keys of a scenario, count communication rounds.
        """
        return int((self.summary.get("slots") or {}).get("rounds_per_slot", 1))

    def row_of(self, rounds: ArrayLike) -> NDArray[np.int64]:
        """Return the row number in the rounds table, from 1, of each communication round of `rounds` (n,).

        This is the round itself, or the number of its slot in a run with slots.
        """
        return (np.asarray(rounds, np.int64) - 1) // self.rounds_per_row + 1

    @property
    def round_meaning(self) -> tuple[tuple[str, Any], ...]:
        """Pairs (name, value) of the facts that define a round; rounds of two runs are comparable if these are equal.

        The coordinator of the run states them. Runs of earlier versions state none: for them the kind of server decides.
        """
        facts = self.summary.get("coordinator")
        if facts is None:
            return (("kind", (self.scenario.get("server") or {}).get("kind", "synchronous")),)
        return tuple((name, facts[name]) for name in ("carries_over", "resends", "fixed_length", "slotted"))

    @property
    def states_causes(self) -> bool:
        """True if the tables state what opened and closed each round; runs of format 1 do not."""
        return "coordinator" in self.summary

    @property
    def has_privacy(self) -> bool:
        """True if the scenario has a `[privacy]` table, and so budgets that are spent."""
        return bool(self.scenario.get("privacy"))

    @property
    def has_detections(self) -> bool:
        """True if the run had a scheduler of sub-channels, which may declare changes."""
        return self.source.has("detections")

    @property
    def has_partition(self) -> bool:
        """True if the run trained clients, and so records which training samples each holds."""
        return self.source.has("partition")

    @property
    def has_clients(self) -> bool:
        """True if the run kept records of single clients."""
        return self.source.has("clients")

    @property
    def tables(self) -> list[TableName]:
        """Names of the tables that the run has."""
        return [name for name in COLUMNS if self.source.has(name)]

    def arrow(self, table: TableName, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a table and return it as `pyarrow.Table`, with all columns (None) or those named.

        ValueError: the run has no such table, the file is no such table, or its format is newer than this reader.
        """
        if table not in COLUMNS:
            raise ValueError(f"table = {table!r}: must be one of {', '.join(map(repr, COLUMNS))}")
        place = self.source.table_place(table)
        if not self.source.has(table):
            remedy = "; the scenario may not record single clients (output.clients_table = false)" if table == "clients" else ""
            raise ValueError(f"{place}: expected the {table} table of a run, but there is no such table{remedy}")
        with self.source.open(table) as opened:
            missing = check_table(place, table, opened.schema)
            names = [*opened.schema.names, *missing] if columns is None else list(columns)
            content = opened.read(_columns_to_read(names, missing, opened.schema))
            check_filled(place, table, content)
            return select_columns(table, content, names)

    def pieces(self, table: TableName, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the rows of a table with these columns, piece by piece: it need not fit in memory. ValueError: as for `arrow`."""
        place = self.source.table_place(table)
        if not self.source.has(table):
            raise ValueError(f"{place}: expected the {table} table of a run, but there is no such table")
        with self.source.open(table) as opened:
            missing = check_table(place, table, opened.schema)
            for piece in opened.pieces(_columns_to_read(columns, missing, opened.schema)):
                check_filled(place, table, piece)
                yield select_columns(table, piece, columns)

    def columns(self, names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """Return columns of the rounds table as floats, each (n,), missing values as NaN. Callers must not change them.

        They are read once and shared by all callers, up to `KEPT_BYTES` of memory. ValueError: as for `arrow`.
        """

        def read(missing: list[str]) -> dict[str, NDArray[np.float64]]:
            # Read all columns at once: callers usually need several, and opening the file again takes longer than reading them.
            table = self.arrow("rounds", list(dict.fromkeys([*ROUND_NUMBERS, *missing])))
            return {name: _floats(table.column(name)) for name in table.column_names}

        return self.source.kept.get(names, read)

    def __repr__(self) -> str:
        return f"Run({self.source.place!r}, policy={self.policy!r}, seed={self.seed})"


def _unstated_targets(scenario: Mapping[str, Any]) -> dict[str, str]:
    """Return the target of each jammer of a run of version 0.4 or earlier, whose summary does not state it."""
    # A jammer without cables jams the sub-channels, or else the links of peers, or else the opinions of clients.
    usual = next((name for name in ("channels", "peers") if scenario.get(name)), "opinions")
    return {jammer["name"]: usual if jammer.get("cables") is None else "network" for jammer in scenario.get("jammers", [])}


def _columns_to_read(names: Sequence[str], missing: Sequence[str], schema: pa.Schema) -> list[str]:
    """Return those of `names` that a table has; its first column if it has none of them.

    At least one column is read: `select_columns` needs the number of rows to fill in the missing ones.
    """
    return [name for name in names if name not in missing] or schema.names[:1]


def _floats(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Return a column of Arrow as floats (n,), missing values as NaN."""
    if column.null_count == len(column) > 0:
        # A view of one NaN with stride 0 takes no memory; runs leave many columns empty.
        return np.broadcast_to(np.float64("nan"), len(column)).view()
    return np.array(column.to_numpy(), dtype=np.float64)

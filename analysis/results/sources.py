"""Sources of a finished run: its folder, or the memory of the process that ran it. Both have the same checks."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, get_args
from weakref import ReferenceType, ref

import numpy as np
from numpy.typing import NDArray

from analysis.results.checksums import FILES, check_file, missing_file, remove_checksum, rerun_command
from netsim.core.rows import ALWAYS, FORMAT, ROUND_CAUSES, ROWS, schema_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet

TableName = Literal[
    "rounds",
    "clients",
    "jams",
    "detections",
    "messages",
    "beliefs",
    "links",
    "partition",
    "probes",
    "script",
    "evaluations",
    "communication_rounds",
    "edges",
    "edge_rounds",
    "transfers",
    "link_loads",
    "cables",
    "what_ifs",
]

TABLES: tuple[TableName, ...] = get_args(TableName)
ADDED: tuple[TableName, ...] = ("what_ifs",)
"""Tables that later commands add to the folder of a finished run; its summary does not list them."""

_OTHER_COLUMNS: dict[TableName, tuple[str, ...]] = {
    "links": ("source", "target", "distance_km", "source_x_km", "source_y_km", "target_x_km", "target_y_km"),
    "partition": ("client", "label", "samples"),
    "cables": ("cable", "a", "b", "delay_s", "clients_at_a", "clients_at_b"),
    "what_ifs": (
        *("round", "change", "client", "value", "start_s", "end_s", "then_end_s", "saved_s"),
        *("delivered", "then_delivered", "last", "then_last"),
    ),
}
COLUMNS: dict[TableName, tuple[str, ...]] = {
    name: _OTHER_COLUMNS[name] if name in _OTHER_COLUMNS else ROWS[name]._fields for name in TABLES
}
"""Columns that readers may ask for, by table. A file may have more columns."""
ROUND_NUMBERS = tuple(name for name in COLUMNS["rounds"] if name not in ROUND_CAUSES)
"""Columns of rounds that hold measured numbers: each is a metric."""

KEPT_BYTES = 256_000_000
"""Largest number of bytes of columns kept in memory, of all runs together; those of the run used longest ago go first."""


class KeptColumns:
    """Cache of columns of one run's rounds table as floats, which a comparison and many figures share.

    The caches of all runs share one limit, `KEPT_BYTES`: the class lists the caches that hold columns, and clears the one that
    was used longest ago. The list refers to them weakly, so that a run that is no longer used is freed.
    """

    _next_number: ClassVar[count[int]] = count()
    _instances: ClassVar[OrderedDict[int, tuple[ReferenceType[KeptColumns], int]]] = OrderedDict()
    """Instances that hold columns, with their bytes; the one used longest ago comes first."""
    _bytes: ClassVar[int] = 0

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[np.float64]] = {}
        self._number = next(KeptColumns._next_number)

    def get(
        self, names: Sequence[str], read: Callable[[list[str]], Mapping[str, NDArray[np.float64]]]
    ) -> dict[str, NDArray[np.float64]]:
        """Return the columns `names`, each (n,), which must not be changed; clear caches of other runs beyond `KEPT_BYTES`.

        `read` is called with the names that are not yet in the cache; it may return further columns, which are kept, too.
        """
        missing = [name for name in dict.fromkeys(names) if name not in self._arrays]
        if missing:
            for name, array in read(missing).items():
                array.flags.writeable = False
                self._arrays[name] = array
            # List this cache again, with its new size.
            KeptColumns._forget(self._number)
            # A column without values is one NaN with stride 0, which takes no memory.
            own_bytes = sum(array.nbytes for array in self._arrays.values() if array.strides != (0,))
            KeptColumns._bytes += own_bytes
            KeptColumns._instances[self._number] = (ref(self), own_bytes)
        arrays = {name: self._arrays[name] for name in names}
        if self._number in KeptColumns._instances:
            KeptColumns._instances.move_to_end(self._number)
        # This cache, just moved to the end, is never cleared: its caller has asked for these columns.
        while KeptColumns._bytes > KEPT_BYTES and len(KeptColumns._instances) > 1:
            oldest_number, (reference, _) = next(iter(KeptColumns._instances.items()))
            oldest = reference()
            if oldest is not None:
                oldest._arrays.clear()
            KeptColumns._forget(oldest_number)
        return arrays

    @staticmethod
    def _forget(number: int) -> None:
        """Take the cache with this number off the list of caches, if it is there; its columns are left alone."""
        _, listed_bytes = KeptColumns._instances.pop(number, (None, 0))
        KeptColumns._bytes -= listed_bytes

    def __del__(self) -> None:
        KeptColumns._forget(self._number)


class OpenTable(Protocol):
    """A table that is open for reading, from a file or from memory."""

    schema: pa.Schema
    """Schema of the table, a `pyarrow.Schema`."""
    rows: int
    """Number of rows."""

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Return these columns as `pyarrow.Table`."""

    def pieces(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield all rows of these columns (None: all) as several `pyarrow.Table`, so that a file need not fit in memory."""


class RunSource(Protocol):
    """The results of a run, in a folder or in memory."""

    @property
    def place(self) -> str:
        """Name of the run in messages; no two runs share one."""

    @property
    def folder(self) -> Path | None:
        """Folder of the run; None in memory."""

    @property
    def kept(self) -> KeptColumns:
        """Columns of its rounds that were read before."""

    def summary(self) -> dict[str, Any]:
        """Return the content of `summary.json`. ValueError: it is missing, or its format is newer than this reader."""

    def scenario_text(self) -> str:
        """Return the text of `scenario.toml`. ValueError: it is missing."""

    def has(self, table: TableName) -> bool:
        """Return True if the run has the table. ValueError: the summary lists the file of the table, which is gone."""

    def table_place(self, table: TableName) -> str:
        """Return the name of a table in messages."""

    def open(self, table: TableName) -> AbstractContextManager[OpenTable]:
        """Return a context manager that opens a table of the run, and closes it in the end."""

    def find_damages(self) -> list[str]:
        """Read all files of the run, and return a message for each damaged one."""


class RunFolder:
    """The folder that a run was written to.

    `digests`: the SHA-256 of its files, by name; None: those in its summary, where that holds any. A file that does not match
    is refused when it is opened.
    """

    def __init__(self, path: Path, digests: Mapping[str, str] | None = None) -> None:
        self.folder: Path | None = path
        self._path = path
        self._stated_digests = digests
        self._remedy = rerun_command(path)
        self.place = str(path)
        self.kept = KeptColumns()

    @cached_property
    def _digests(self) -> Mapping[str, str] | None:
        """The SHA-256 of files by name, from the constructor or the summary; None if unknown.

        For an interrupted run, messages on damage name another remedy from then on: to resume it.
        """
        if self._stated_digests is not None or not (self._path / "summary.json").is_file():
            return self._stated_digests
        summary = read_json(self._path / "summary.json", "a run's summary")
        if summary.get("ended") == "interrupted":
            self._remedy = f"netsim resume {self._path}"  # which writes the tables again
        digests = summary.get(FILES)
        return digests if isinstance(digests, dict) else None

    def summary(self) -> dict[str, Any]:
        """Return the content of `summary.json`, its checksum verified. ValueError also if `rounds.parquet` is missing."""
        path = self._path / "summary.json"
        content = read_json(path, "a run's summary")
        for key, expected_type in (("name", str), ("policy", str), ("seed", int)):
            if key not in content:
                raise ValueError(f"{path}: expected a run's summary, but key {key!r} is missing")
            if not isinstance(content[key], expected_type):
                raise ValueError(f"{path}: expected a run's summary, but {key} = {content[key]!r}")
        if not self.has("rounds"):
            raise ValueError(f"{self._path}: expected a run folder, but rounds.parquet is missing")
        return content

    def scenario_text(self) -> str:
        """Return the text of `scenario.toml`, its checksum verified. ValueError: it is missing, damaged or unreadable."""
        path = self._path / "scenario.toml"
        self._check(path)
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ValueError(f"{path}: expected the run's scenario, but there is no such file") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: expected the run's scenario, but it cannot be read: {error}") from error

    def has(self, table: TableName) -> bool:
        path = self._path / f"{table}.parquet"
        if self._digests is None or table in ADDED:
            return path.is_file()
        # A table that the summary does not list was left by an earlier run, and is no result of this one.
        if path.name not in self._digests:
            return False
        if not path.is_file():
            raise missing_file(path, self._remedy)
        return True

    def table_place(self, table: TableName) -> str:
        return str(self._path / f"{table}.parquet")

    @contextmanager
    def open(self, table: TableName) -> Iterator[OpenTable]:
        """Open the file of a table, its checksum verified, for the block. ValueError: damaged, also if found while it is read."""
        import pyarrow
        import pyarrow.parquet

        path = self._path / f"{table}.parquet"
        self._check(path)
        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                yield _TableFile(file)
        except (pyarrow.ArrowException, OSError) as error:
            message = f"{path}: expected a Parquet file, but it cannot be read: {error}"
            raise ValueError(f"{message}; make it again: {rerun_command(self._path)}") from error

    def find_damages(self) -> list[str]:
        """Read all files of the run, and return a message for each damaged one; a damaged summary hides all others."""
        try:
            self.summary()
        except ValueError as error:
            return [str(error)]
        problems = []
        for name in self._digests or ():
            try:
                self._check(self._path / name)
            except ValueError as error:
                problems.append(str(error))
        return problems

    def _check(self, path: Path) -> None:
        """Raise ValueError if a file is missing or does not match its digest; files without a known digest pass."""
        # `_digests` may replace `_remedy`: it is read first.
        digest = (self._digests or {}).get(path.name)
        if digest is not None:
            check_file(path, digest, self._remedy)


class RunInMemory:
    """The results of a run in memory. `tables`: `pyarrow.Table` each, with the schema of the file."""

    _number = count(1)

    def __init__(self, *, summary: Mapping[str, Any], scenario_text: str, tables: Mapping[str, pa.Table]) -> None:
        self.folder: Path | None = None
        self.kept = KeptColumns()
        self._summary, self._scenario_text, self.tables = dict(summary), scenario_text, dict(tables)
        self.place = f"run {next(self._number)} in memory ({summary['name']}, seed {summary['seed']})"

    def summary(self) -> dict[str, Any]:
        return self._summary

    def scenario_text(self) -> str:
        return self._scenario_text

    def has(self, table: TableName) -> bool:
        return table in self.tables

    def table_place(self, table: TableName) -> str:
        return f"{self.place}, table {table}"

    @contextmanager
    def open(self, table: TableName) -> Iterator[OpenTable]:
        yield TableInMemory(self.tables[table])

    def find_damages(self) -> list[str]:
        return []


class _TableFile:
    """An open Parquet file."""

    def __init__(self, file: pyarrow.parquet.ParquetFile) -> None:
        self._file = file
        self.schema = file.schema_arrow
        self.rows: int = file.metadata.num_rows

    def read(self, columns: Sequence[str]) -> pa.Table:
        return self._file.read(columns=list(columns))

    def pieces(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        for group in range(self._file.num_row_groups):
            yield self._file.read_row_group(group, columns=None if columns is None else list(columns))


class TableInMemory:
    """A `pyarrow.Table` in memory, with the interface of an open file."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.schema = table.schema
        self.rows: int = table.num_rows

    def read(self, columns: Sequence[str]) -> pa.Table:
        return self._table.select(list(columns))

    def pieces(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        yield self._table if columns is None else self.read(columns)


def read_json(path: Path, expected: str) -> dict[str, Any]:
    """Return the content of a JSON file that netsim wrote, its checksum verified and removed.

    `expected` names the content in messages. ValueError: not JSON, damaged, or of a format that this reader does not know.
    """
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(parsed, dict) or "format" not in parsed:
            raise ValueError("it has no key 'format'")
        content = remove_checksum(parsed)
    except json.JSONDecodeError as error:  # a ValueError, too: this clause must come first
        raise ValueError(f"{path}: expected {expected}, but it is not JSON: {error}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected {expected}, but it is damaged, or something else: {error}") from error
    if type(content["format"]) is not int:
        raise ValueError(f"{path}: expected {expected}, but its format is {content['format']!r}, which is no whole number")
    _check_format(str(path), content["format"])
    return content


def check_table(place: str, table: TableName, schema: pa.Schema) -> list[str]:
    """Check that a file is the expected table, by its metadata and columns; return the optional columns that it lacks.

    Raises:
        ValueError: another table, an unknown format, or a column is missing that every run writes.
    """
    metadata: dict[bytes, bytes] = schema.metadata or {}
    stated_name = metadata.get(b"netsim.table")
    if stated_name != table.encode():
        problem = "carries no table name"
        if stated_name is not None:
            problem = f"says it is table {stated_name.decode(errors='replace')!r}"
        raise ValueError(f"{place}: expected the {table} table of a run, but the file {problem}")
    _check_format(place, metadata.get(b"netsim.format", b"").decode(errors="replace"))
    missing = [name for name in COLUMNS[table] if name not in schema.names]
    # A table without an entry in ALWAYS has no optional columns.
    mandatory = ALWAYS.get(table, COLUMNS[table])
    mandatory_missing = [name for name in missing if name in mandatory]
    if mandatory_missing:
        raise ValueError(f"{place}: expected the {table} table of a run, but columns are missing: {', '.join(mandatory_missing)}")
    return missing


def select_columns(table: TableName, content: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the Arrow table `content` with exactly `columns`; one that it lacks is added, all null, with its usual type."""
    import pyarrow

    for name in columns:
        if name not in content.column_names:
            usual_type = schema_of(table).field(name).type
            content = content.append_column(name, pyarrow.nulls(content.num_rows, usual_type))
    return content.select(list(columns))


FILLED: dict[TableName, tuple[str, ...]] = {
    "rounds": ("round", "start_s", "end_s", *("selected", "delivered", "lost", "late", "aborted", "in_flight"), "version"),
    "clients": ("round", "client", "outcome", "selected_s"),
    "communication_rounds": ("round", "slot", "start_s", "end_s"),
}
"""Columns without empty cells in any run; readers rely on that."""


def check_filled(place: str, table: TableName, content: pa.Table) -> None:
    """Raise ValueError if a column of the Arrow table `content` lacks a value that every run writes."""
    for name in FILLED.get(table, ()):
        if name not in content.column_names:
            continue
        column = content.column(name)
        # Empty cells of floats become NaN in the array; a NaN that is stored is no value, either.
        is_float = str(column.type) == "double"
        empty_cells = int(np.isnan(column.to_numpy()).sum()) if is_float else column.null_count
        if empty_cells:
            raise ValueError(
                f"{place}: {empty_cells} of {len(column)} values of the column {name} are missing, which no run leaves so: the "
                "file was changed; run the scenario again"
            )


def _check_format(place: str, number: object) -> None:
    """Raise ValueError unless `number` is a format that this reader knows."""
    try:
        version = int(str(number))
    except ValueError:
        raise ValueError(f"{place}: expected format {FORMAT}, but found {number!r}") from None
    if version > FORMAT:
        raise ValueError(f"{place}: format {version} is newer than format {FORMAT}, the newest this version reads: update netsim")
    if version < 1:
        raise ValueError(f"{place}: expected format {FORMAT}, but found {number!r}")

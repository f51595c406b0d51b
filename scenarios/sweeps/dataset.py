"""The tables of all runs of a sweep as one partitioned Parquet data set: `dataset/TABLE/variant=NAME/runs-0000.parquet`.

A file holds up to `RUNS_IN_A_FILE` runs of one variant, each as one or more row groups. The columns `label` and `seed` stand
before the table's own; the variant is in the folder's name, as in Hive. `dataset/manifest.json` lists the files with their runs,
rows and checksums. A file is not written again if none of its runs has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from analysis.api import open_sweep
from analysis.results.sources import COLUMNS, RunFolder, TableName, read_json, select_columns
from analysis.results.sweep import SweepEntry
from netsim.core.protocols import Notes
from netsim.core.rows import schema_of
from netsim.records import atomic
from netsim.records.tables import sha256_of
from scenarios.runs.folders.marker import Marker
from scenarios.runs.folders.replacement import DATASET, write_json, writing
from scenarios.schema.errors import UserError, did_you_mean
from scenarios.sweeps.earlier_runs import read_manifest

RUNS_IN_A_FILE = 1000
_MANIFEST = f"{DATASET}/manifest.json"


@dataclass(frozen=True)
class _Part:
    """Plan of a file of the data set."""

    table: TableName
    name: str
    """Path of the file, relative to the sweep's folder."""
    entries: Sequence[SweepEntry]
    """Runs that it is to hold."""
    ids: Sequence[str]
    """Identities of these runs."""


def check_tables(names: Iterable[str]) -> list[TableName]:
    """Return the `names` of tables, each once; raises UserError for a name that is no table of a run."""
    tables = list(dict.fromkeys(names))
    for name in tables:
        if name not in COLUMNS:
            raise UserError(f"--tables {name}: no such table; {did_you_mean(name, COLUMNS)}")
    return cast(list[TableName], tables)


def gather_tables(folder: Path, tables: Iterable[str]) -> list[Path]:
    """Write `tables` of all complete runs of the sweep in `folder` into its data set, and return the files of the data set.

    Files that are up to date are kept, files of an earlier data set that are not wanted any more are removed. Raises UserError
    for an unknown table, a folder without a sweep, a table that cannot be read, and a file that cannot be written.
    """
    wanted = check_tables(tables)
    marker = Marker.read(folder)
    if marker is None:
        raise UserError(f"{folder}: holds no sweep of this version of netsim")
    earlier = {entry["file"]: entry for entry in _read_manifest(folder).get("files", ())}
    with writing(folder), _refuse_unreadable():
        parts = {part.name: part for table in wanted for part in _plan_parts(folder, table)}
        # Claim the files before they are written, so that an interruption leaves no file that the marker does not know.
        marker.claim([_MANIFEST, *parts])
        for name in marker.files:
            if name.startswith(f"{DATASET}/") and name not in (_MANIFEST, *parts):
                (folder / name).unlink(missing_ok=True)
        entries = [_update_part(folder, part, earlier.get(part.name)) for part in parts.values()]
        (folder / DATASET).mkdir(exist_ok=True)  # if no run is complete, no file has made the folder
        write_json(folder / _MANIFEST, {"format": 1, "tables": wanted, "files": entries})
    return [folder / name for name in parts]


def _update_part(folder: Path, part: _Part, earlier: Notes | None) -> Notes:
    """Write a file of the data set unless it is up to date; return its entry in the manifest.

    `earlier`: its entry in the manifest of the data set before; None: there is none.
    """
    is_current = earlier is not None and earlier["runs"] == list(part.ids)
    if earlier is not None and is_current and _has_checksum(folder / part.name, earlier["sha256"]):
        return earlier
    return _write_part(folder, part)


@contextmanager
def _refuse_unreadable() -> Iterator[None]:
    """Raise UserError in place of a ValueError of the block: a table of a run cannot be read."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"{error}; the data set of all runs is not complete") from error


def _read_manifest(folder: Path) -> Mapping[str, Any]:
    """Return the list of the data set's files; empty if there is no readable one."""
    try:
        return read_json(folder / _MANIFEST, "the list of a data set's files")
    except (OSError, ValueError):
        return {}


def _has_checksum(file: Path, digest: str) -> bool:
    """Return True if a file exists and has this SHA-256."""
    return file.is_file() and sha256_of(file) == digest


def _plan_parts(folder: Path, table: TableName) -> Iterator[_Part]:
    """Yield the plan of each file of a table: the runs of a variant in the sweep's order, `RUNS_IN_A_FILE` in each file.

    Runs without the table are left out. Files depend only on which runs are complete, so that files of an earlier attempt stay.
    """
    ids = {(run["variant"], run["seed"]): str(run.get("id")) for run in read_manifest(folder).get("runs", ())}
    by_variant: dict[str, list[SweepEntry]] = {}
    for entry in open_sweep(folder).entries:
        if RunFolder(entry.path).has(table):
            by_variant.setdefault(entry.variant, []).append(entry)
    for variant, entries in by_variant.items():
        for first in range(0, len(entries), RUNS_IN_A_FILE):
            runs_of_file = entries[first : first + RUNS_IN_A_FILE]
            name = f"{DATASET}/{table}/variant={quote(variant, safe='')}/runs-{first // RUNS_IN_A_FILE:04}.parquet"
            yield _Part(table, name, runs_of_file, [ids[entry.variant, entry.seed] for entry in runs_of_file])


def _write_part(folder: Path, part: _Part) -> Notes:
    """Write one file of the data set, run after run in pieces, and return its entry in the manifest.

    The file appears complete or not at all. If no run has rows, it is an empty table with the same columns.
    """
    import pyarrow
    import pyarrow.parquet

    def add_run_columns(piece: pyarrow.Table, label: str | None, seed: int | None) -> pyarrow.Table:
        """Return rows of a run with all columns of the table, after the columns `label` and `seed`."""
        labels = pyarrow.array([label] * piece.num_rows, pyarrow.string())
        seeds = pyarrow.array([seed] * piece.num_rows, pyarrow.int64())
        complete = select_columns(part.table, piece, COLUMNS[part.table])
        return complete.add_column(0, "label", labels).add_column(1, "seed", seeds)

    path = folder / part.name
    path.parent.mkdir(parents=True, exist_ok=True)
    rows, writer = 0, None
    with atomic.open_replacement(path) as file:
        try:
            for entry in part.entries:
                with RunFolder(entry.path).open(part.table) as opened:
                    for piece in opened.pieces():
                        content = add_run_columns(piece, entry.label, entry.seed)
                        if writer is None:
                            writer = pyarrow.parquet.ParquetWriter(file, content.schema, compression="zstd")
                        writer.write_table(content)
                        rows += content.num_rows
            if writer is None:
                empty = add_run_columns(schema_of(part.table).empty_table(), None, None)
                pyarrow.parquet.write_table(empty, file, compression="zstd")
        finally:
            if writer is not None:
                writer.close()
    return {"file": part.name, "table": part.table, "runs": list(part.ids), "rows": rows, "sha256": sha256_of(path)}

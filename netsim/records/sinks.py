"""Where the records of a run go: streamed to Parquet so that memory does not grow with rounds, kept in lists, or nowhere."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from netsim.records.in_memory import TableRows
from netsim.records.rows import (
    CLIENTS,
    DETECTIONS,
    EVALUATIONS,
    FORMAT,
    JAMS,
    MESSAGES,
    PROBES,
    ROUNDS,
    SCRIPT,
    DetectionRow,
    EvaluationRow,
    JamRow,
    MessageRow,
    ProbeRow,
    RoundRow,
    ScriptRow,
    UpdateRow,
)

if TYPE_CHECKING:
    from netsim.core.protocols import State

__all__ = [
    "CLIENTS",
    "DETECTIONS",
    "FORMAT",
    "JAMS",
    "MESSAGES",
    "PROBES",
    "ROUNDS",
    "SCRIPT",
    "DetectionRow",
    "EvaluationRow",
    "JamRow",
    "MemoryRecorder",
    "MessageRow",
    "NoRecorder",
    "ParquetRecorder",
    "ProbeRow",
    "Recorder",
    "RoundRow",
    "ScriptRow",
    "UpdateRow",
]

UNFINISHED = "unfinished"
"""Folder, within that of a run, of what a run that was cut off can go on from."""


class DamagedPieceError(ValueError):
    """A piece of a table that a checkpoint counts on is not there, or not as it was written."""


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Recorder(Protocol):
    """Takes the records of a run in the order in which they come about."""

    def round(self, row: RoundRow) -> None:
        """A round has closed."""

    def attempts(self, columns: Sequence[str]) -> Callable[[tuple[Any, ...]], None]:
        """Who takes the row of each attempt that has ended, or that the run has ended before.

        Rows hold the values of these `columns` of `UpdateRow`, in this order; nothing is to be said of the others in this run,
        which cost it nothing then.
        """

    def jam(self, row: JamRow) -> None:
        """A dwell of a jammer has ended."""

    def detection(self, row: DetectionRow) -> None:
        """The scheduler has declared a change."""

    def message(self, row: MessageRow) -> None:
        """A message between clients has ended, or the run has ended before it."""

    def probe(self, row: ProbeRow) -> None:
        """A probe has ended, or the run has ended before it."""

    def evaluation(self, row: EvaluationRow) -> None:
        """A metric of the user's own has been worked out."""

    def script(self, row: ScriptRow) -> None:
        """A script has acted."""

    def close(self) -> None:
        """No more records will come."""


class NoRecorder:
    """Keeps nothing."""

    def round(self, row: RoundRow) -> None:
        return None

    def attempts(self, columns: Sequence[str]) -> Callable[[tuple[Any, ...]], None]:
        return lambda row: None

    def jam(self, row: JamRow) -> None:
        return None

    def detection(self, row: DetectionRow) -> None:
        return None

    def message(self, row: MessageRow) -> None:
        return None

    def probe(self, row: ProbeRow) -> None:
        return None

    def evaluation(self, row: EvaluationRow) -> None:
        return None

    def script(self, row: ScriptRow) -> None:
        return None

    def close(self) -> None:
        return None


class MemoryRecorder:
    """Keeps every record in a list, for short runs in a notebook and for tests."""

    def __init__(self) -> None:
        self.rounds: list[RoundRow] = []
        self.updates: list[UpdateRow] = []
        self.jams: list[JamRow] = []
        self.detections: list[DetectionRow] = []
        self.messages: list[MessageRow] = []
        self.probes: list[ProbeRow] = []
        self.acts: list[ScriptRow] = []
        self.evaluations: list[EvaluationRow] = []

    def round(self, row: RoundRow) -> None:
        self.rounds.append(row)

    def attempts(self, columns: Sequence[str]) -> Callable[[tuple[Any, ...]], None]:
        return lambda row: self.updates.append(UpdateRow(**dict(zip(columns, row, strict=True))))

    def jam(self, row: JamRow) -> None:
        self.jams.append(row)

    def detection(self, row: DetectionRow) -> None:
        self.detections.append(row)

    def message(self, row: MessageRow) -> None:
        self.messages.append(row)

    def probe(self, row: ProbeRow) -> None:
        self.probes.append(row)

    def evaluation(self, row: EvaluationRow) -> None:
        self.evaluations.append(row)

    def script(self, row: ScriptRow) -> None:
        self.acts.append(row)

    def close(self) -> None:
        return None


class _Table:
    """One Parquet file under way.

    What a checkpoint makes safe goes to pieces in the folder `unfinished`. When the table is complete they are joined, row group
    by row group, so that the file is the same with and without checkpoints.
    """

    def __init__(self, folder: Path, name: str, schema: pa.Schema) -> None:
        self.name, self._schema = name, schema
        self._path, self._unfinished = folder / f"{name}.parquet", folder / UNFINISHED
        self.rows = TableRows(schema, self._write)
        self._digests: list[str] = []  # of the pieces on disk, by number
        self._flushed = False
        self._writer = self._open()

    def _open(self) -> pq.ParquetWriter:
        # Times hardly repeat: a dictionary of a column of numbers costs more time and space than it saves.
        names = [field.name for field in self._schema if pa.types.is_dictionary(field.type)]
        return pq.ParquetWriter(self._path, self._schema, compression="zstd", use_dictionary=names)

    def _piece(self, number: int) -> Path:
        return _piece(self._unfinished, self.name, number)

    def pieces_to_come(self) -> list[str]:
        """The files that `state_dict` and, after it, `close` may write into the folder `unfinished`."""
        next = len(self._digests)
        return [f"{UNFINISHED}/{self._piece(number).name}" for number in (next, next + 1)]

    def _write(self, table: pa.Table) -> None:
        self._writer.write_table(table)
        self._flushed = True

    def state_dict(self) -> State:
        """The checksums of the pieces that are on disk for good, and the rows that are not; later rows are not included."""
        if self._flushed:
            self._writer.close()
            self._unfinished.mkdir(exist_ok=True)
            piece = self._path.replace(self._piece(len(self._digests)))
            with piece.open("rb") as file:
                os.fsync(file.fileno())
            self._digests.append(sha256_of(piece))
            self._flushed = False
            self._writer = self._open()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as stream:
            stream.write_table(self.rows.waiting())
        return {"pieces": list(self._digests), "rows": np.frombuffer(sink.getvalue(), np.uint8).copy()}

    def load_state_dict(self, state: State) -> None:
        """Go on from the pieces and the rows of a checkpoint."""
        self._digests = list(state["pieces"])
        with pa.ipc.open_stream(pa.py_buffer(state["rows"])) as stream:
            self.rows.wait(stream.read_all())

    def close(self) -> None:
        self.rows.flush()
        self._writer.close()
        if not self._digests:
            return
        # Hours may have passed since they were written.
        _check_pieces(self._unfinished, self.name, self._digests)
        rest = self._path.replace(self._piece(len(self._digests)))
        with self._open() as whole:
            for path in [*map(self._piece, range(len(self._digests))), rest]:
                with pq.ParquetFile(path) as piece:
                    for group in range(piece.num_row_groups):
                        whole.write_table(_as_written(piece.read_row_group(group), self._schema))
        rest.unlink()


def _piece(unfinished: Path, table: str, number: int) -> Path:
    return unfinished / f"{table}-{number}.parquet"


def _check_pieces(unfinished: Path, table: str, digests: list[str]) -> None:
    for number, digest in enumerate(digests):
        path = _piece(unfinished, table, number)
        if not path.is_file():
            raise DamagedPieceError(f"{path}: is missing")
        if sha256_of(path) != digest:
            raise DamagedPieceError(f"{path}: is damaged (its checksum is not that of the checkpoint)")


def check_pieces(folder: Path, state: State) -> None:
    """Raise DamagedPieceError unless every piece that the `state` of a `ParquetRecorder` in `folder` counts on is as it was."""
    for table, kept in state.items():
        _check_pieces(folder / UNFINISHED, table, kept["pieces"])


def _as_written(group: pa.Table, schema: pa.Schema) -> pa.Table:
    """A row group that was read, as it was before it was written: with indices of the schema's type in its dictionaries."""
    columns = []
    for column, field in zip(group.columns, schema, strict=True):
        if pa.types.is_dictionary(field.type):
            names = column.cast(field.type.value_type).combine_chunks().dictionary_encode()
            columns.append(pa.DictionaryArray.from_arrays(names.indices.cast(field.type.index_type), names.dictionary))
        else:
            columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def table_files(
    *,
    clients: bool = True,
    jams: bool = False,
    detections: bool = False,
    messages: bool = False,
    probes: bool = False,
    script: bool = False,
    evaluations: bool = False,
) -> list[str]:
    """The files that a `ParquetRecorder` of these settings leaves in its folder."""
    wanted = {
        "rounds": True,
        "clients": clients,
        "jams": jams,
        "detections": detections,
        "messages": messages,
        "probes": probes,
        "script": script,
        "evaluations": evaluations,
    }
    return [f"{name}.parquet" for name, written in wanted.items() if written]


class ParquetRecorder:
    """Writes into an existing folder: `rounds.parquet`; `clients.parquet` unless `clients` is False; `jams.parquet` if `jams`;
    `detections.parquet` if `detections`; `messages.parquet` if `messages`; `probes.parquet` if `probes`; `script.parquet`
    if `script`; `evaluations.parquet` if `evaluations`.

    `state_dict` makes what is recorded so far safe against the loss of the process, in the folder `unfinished`, which whoever
    needs no checkpoint any more removes.
    """

    def __init__(
        self,
        folder: Path,
        *,
        clients: bool = True,
        jams: bool = False,
        detections: bool = False,
        messages: bool = False,
        probes: bool = False,
        script: bool = False,
        evaluations: bool = False,
    ) -> None:
        rounds = _Table(folder, "rounds", ROUNDS)
        updates = _Table(folder, "clients", CLIENTS) if clients else None
        dwells = _Table(folder, "jams", JAMS) if jams else None
        declared = _Table(folder, "detections", DETECTIONS) if detections else None
        sent = _Table(folder, "messages", MESSAGES) if messages else None
        asked = _Table(folder, "probes", PROBES) if probes else None
        acts = _Table(folder, "script", SCRIPT) if script else None
        metrics = _Table(folder, "evaluations", EVALUATIONS) if evaluations else None
        self._tables = [table for table in (rounds, updates, dwells, declared, sent, asked, acts, metrics) if table is not None]
        self.round = rounds.rows.append
        self.attempts = updates.rows.taking if updates else NoRecorder().attempts
        self.jam = dwells.rows.append if dwells else NoRecorder().jam
        self.detection = declared.rows.append if declared else NoRecorder().detection
        self.message = sent.rows.append if sent else NoRecorder().message
        self.probe = asked.rows.append if asked else NoRecorder().probe
        self.evaluation = metrics.rows.append if metrics else NoRecorder().evaluation
        self.script = acts.rows.append if acts else NoRecorder().script

    def state_dict(self) -> State:
        """What is recorded so far, as pieces on disk and rows."""
        return {table.name: table.state_dict() for table in self._tables}

    def pieces_to_come(self) -> list[str]:
        """The files below its folder that the next `state_dict`, and a `close` after it, may write beside the tables."""
        return [file for table in self._tables for file in table.pieces_to_come()]

    def load_state_dict(self, state: State) -> None:
        """Go on from what was recorded up to a checkpoint; nothing may have been recorded yet."""
        for table in self._tables:
            table.load_state_dict(state[table.name])

    def close(self) -> None:
        """Write what is buffered and the files' footers; the files are complete from here on."""
        for table in self._tables:
            table.close()

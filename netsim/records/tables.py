"""Tables that are streamed to Parquet files, with checkpoints that survive the loss of the process. A file gets its name only
when it is complete.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from netsim.records import atomic
from netsim.records.in_memory import TableRows

if TYPE_CHECKING:
    from netsim.core.protocols import State

UNFINISHED = "unfinished"
"""Folder, within the folder of a run, with the checkpoint from which an interrupted run can be resumed."""


class DamagedPieceError(ValueError):
    """Error: a piece of a table that a checkpoint needs is missing or was changed."""


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Sink:
    """A file that Arrow writes from beginning to end, and the SHA-256 of its content."""

    closed = False

    def __init__(self, path: Path) -> None:
        # A symbolic link of that name is removed, not followed, and "x" refuses to open one.
        path.unlink(missing_ok=True)
        self.path = path
        self._file = path.open("xb")
        self._sha256 = hashlib.sha256()

    def write(self, data: Any) -> int:
        """Write `data` and add it to the checksum; return its length. Do nothing after `drop`."""
        if not self.closed:
            self._sha256.update(data)
            self._file.write(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: `finish` puts everything on the disk."""

    def close(self) -> None:
        """Do nothing: `finish` or `drop` closes the file."""

    def finish(self) -> str:
        """Put everything on the disk and close; return the SHA-256."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self.closed = True
        return self._sha256.hexdigest()

    def drop(self) -> None:
        """Close and remove the file; later writes are ignored."""
        self.closed = True
        with suppress(OSError):  # the buffer may not fit on the disk either
            self._file.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


class _File:
    """A Parquet file that is being written."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._sink = _Sink(path)
        # No dictionaries for columns of numbers: times hardly repeat, so they cost more time and space than they save.
        names = [field.name for field in schema if pa.types.is_dictionary(field.type)]
        self._writer = pq.ParquetWriter(pa.PythonFile(self._sink, "w"), schema, compression="zstd", use_dictionary=names)

    def write(self, table: pa.Table) -> None:
        """Append the rows of `table`."""
        self._writer.write_table(table)

    def finish(self) -> str:
        """Complete the file; return its SHA-256."""
        self._writer.close()
        return self._sink.finish()

    def drop(self) -> None:
        """Abandon the file and remove it."""
        self._sink.drop()
        with suppress(Exception):  # a writer that has failed may raise again
            self._writer.close()
        # Otherwise its finaliser closes it and prints an error.
        self._writer.is_open = False


class Table:
    """One Parquet file in the making.

    It grows under a temporary name and gets its own when it is complete. Checkpoints write pieces to the folder `unfinished`.
    On completion the pieces are joined, row group by row group, so that the file is the same with and without checkpoints.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._path, self._unfinished = folder / f"{name}.parquet", folder / UNFINISHED
        self._temporary = atomic.temporary(self._path)
        self.rows = TableRows(name, self._write)
        self._digests: list[str] = []  # SHA-256 of the pieces on disk, by number
        self._file: _File | None = None

    def _present_file(self) -> _File:
        """Return the file that is being written, begun under the temporary name if there is none."""
        if self._file is None:
            self._file = _File(self._temporary, self.rows.schema)
        return self._file

    def _finish(self) -> str:
        """Complete the present file, an empty one if no row was written; return its SHA-256."""
        digest = self._present_file().finish()
        self._file = None
        return digest

    def place(self) -> None:
        """Give the complete table its name."""
        self._temporary.replace(self._path)

    def _piece(self, number: int) -> Path:
        """Return the path of a piece of this table."""
        return _piece(self._unfinished, self.name, number)

    def pieces_to_come(self) -> list[str]:
        """Return the files that `state_dict` and a `close` after it may write into the folder `unfinished`."""
        first = len(self._digests)
        return [f"{UNFINISHED}/{self._piece(number).name}" for number in (first, first + 1)]

    def _write(self, table: pa.Table) -> None:
        """Append rows to the present file, begun if there is none."""
        self._present_file().write(table)

    def state_dict(self) -> State:
        """Return the checksums of the pieces that are safely on disk, and the rows that are not."""
        if self._file is not None:
            self._unfinished.mkdir(exist_ok=True)
            digest = self._finish()
            self._temporary.replace(self._piece(len(self._digests)))
            self._digests.append(digest)
        # Rows since the last full row group go into the checkpoint itself, not into a piece: row groups of the complete file must
        # have the same lengths as without checkpoints.
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.rows.schema) as stream:
            stream.write_table(self.rows.unwritten_rows())
        return {"pieces": list(self._digests), "rows": np.frombuffer(sink.getvalue(), np.uint8).copy()}

    def load_state_dict(self, state: State) -> None:
        """Restore the pieces and the rows of a checkpoint."""
        self._digests = list(state["pieces"])
        with pa.ipc.open_stream(pa.py_buffer(state["rows"])) as stream:
            self.rows.replace_unwritten_rows(stream.read_all())

    def complete(self) -> str:
        """Write the whole table into one file, for `place`; return its SHA-256. Raises DamagedPieceError and OSError."""
        self.rows.flush()
        if not self._digests:
            return self._finish()
        # Check the pieces again: hours may have passed since they were written.
        _check_pieces(self._unfinished, self.name, self._digests)
        pieces = [self._piece(number) for number in range(len(self._digests))]
        # The rows since the last checkpoint become one more piece.
        last_piece = self._piece(len(self._digests))
        self._finish()
        self._temporary.replace(last_piece)
        joined = self._present_file()
        for path in [*pieces, last_piece]:
            with pq.ParquetFile(path) as piece:
                for group in range(piece.num_row_groups):
                    joined.write(_match_schema(piece.read_row_group(group), self.rows.schema))
        digest = self._finish()
        last_piece.unlink()
        return digest

    def discard(self) -> None:
        """Drop the rows that are not in a piece yet, and the file that holds them."""
        if self._file is not None:
            self._file.drop()
            self._file = None
        with suppress(OSError):  # complete, but without its name
            self._temporary.unlink(missing_ok=True)


def _piece(unfinished: Path, table: str, number: int) -> Path:
    """Return the path of a piece of `table` in the folder `unfinished`."""
    return unfinished / f"{table}-{number}.parquet"


def _check_pieces(unfinished: Path, table: str, digests: list[str]) -> None:
    """Raise DamagedPieceError unless all pieces of `table` exist and have these SHA-256 `digests`."""
    for number, digest in enumerate(digests):
        path = _piece(unfinished, table, number)
        if not path.is_file():
            raise DamagedPieceError(f"{path}: is missing")
        if sha256_of(path) != digest:
            raise DamagedPieceError(f"{path}: is damaged (its checksum is not that of the checkpoint)")


def check_pieces(folder: Path, state: State) -> None:
    """Raise DamagedPieceError unless every piece that the `state` of a `ParquetRecorder` in `folder` needs is unchanged."""
    for table, saved in state.items():
        _check_pieces(folder / UNFINISHED, table, saved["pieces"])


def _match_schema(group: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a row group that was read in the form before it was written: dictionaries get indices of the schema's type."""
    columns = []
    for column, field in zip(group.columns, schema, strict=True):
        if pa.types.is_dictionary(field.type):
            words = column.cast(field.type.value_type).combine_chunks().dictionary_encode()
            indices = words.indices.cast(field.type.index_type)
            columns.append(pa.DictionaryArray.from_arrays(indices, words.dictionary))
        else:
            columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)

"""Where the records of a run go: streamed to Parquet so that memory does not grow with rounds, kept in lists, or nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from netsim.records import (
    CLIENTS,
    DETECTIONS,
    FORMAT,
    JAMS,
    MESSAGES,
    ROUNDS,
    DetectionRow,
    JamRow,
    MessageRow,
    RoundRow,
    UpdateRow,
)

__all__ = [
    "CLIENTS",
    "DETECTIONS",
    "FORMAT",
    "JAMS",
    "MESSAGES",
    "ROUNDS",
    "DetectionRow",
    "JamRow",
    "MemoryRecorder",
    "MessageRow",
    "NoRecorder",
    "ParquetRecorder",
    "Recorder",
    "RoundRow",
    "UpdateRow",
]

_FLUSH_ROWS = 8192


class Recorder(Protocol):
    """Takes the records of a run in the order in which they come about."""

    def round(self, row: RoundRow) -> None:
        """A round has closed."""

    def update(self, row: UpdateRow) -> None:
        """An update has ended, or the run has ended before it."""

    def jam(self, row: JamRow) -> None:
        """A dwell of a jammer has ended."""

    def detection(self, row: DetectionRow) -> None:
        """The scheduler has declared a change."""

    def message(self, row: MessageRow) -> None:
        """A message between clients has ended, or the run has ended before it."""

    def close(self) -> None:
        """No more records will come."""


class NoRecorder:
    """Keeps nothing."""

    def round(self, row: RoundRow) -> None:
        return None

    def update(self, row: UpdateRow) -> None:
        return None

    def jam(self, row: JamRow) -> None:
        return None

    def detection(self, row: DetectionRow) -> None:
        return None

    def message(self, row: MessageRow) -> None:
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

    def round(self, row: RoundRow) -> None:
        self.rounds.append(row)

    def update(self, row: UpdateRow) -> None:
        self.updates.append(row)

    def jam(self, row: JamRow) -> None:
        self.jams.append(row)

    def detection(self, row: DetectionRow) -> None:
        self.detections.append(row)

    def message(self, row: MessageRow) -> None:
        self.messages.append(row)

    def close(self) -> None:
        return None


class _Table:
    """One Parquet file under way."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        # Values row after row. Kept as rows they would be objects for the garbage collector to walk through, again and again.
        self._values: list[Any] = []
        self._full = _FLUSH_ROWS * len(schema)
        # Times hardly repeat: a dictionary of a column of numbers costs more time and space than it saves.
        names = [field.name for field in schema if pa.types.is_dictionary(field.type)]
        self._writer = pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=names)

    def append(self, row: tuple[Any, ...]) -> None:
        self._values += row
        if len(self._values) >= self._full:
            self.flush()

    def flush(self) -> None:
        if not self._values:
            return
        width = len(self._schema)
        # from_pandas: NaN, which stands for "not reached" in the engine, becomes a null in the file.
        columns = [pa.array(self._values[i::width], type=field.type, from_pandas=True) for i, field in enumerate(self._schema)]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))
        self._values.clear()

    def close(self) -> None:
        self.flush()
        self._writer.close()


class ParquetRecorder:
    """Writes into an existing folder: `rounds.parquet`; `clients.parquet` unless `clients` is False; `jams.parquet` if `jams`;
    `detections.parquet` if `detections`; `messages.parquet` if `messages`."""

    def __init__(
        self, folder: Path, *, clients: bool = True, jams: bool = False, detections: bool = False, messages: bool = False
    ) -> None:
        rounds = _Table(folder / "rounds.parquet", ROUNDS)
        updates = _Table(folder / "clients.parquet", CLIENTS) if clients else None
        dwells = _Table(folder / "jams.parquet", JAMS) if jams else None
        declared = _Table(folder / "detections.parquet", DETECTIONS) if detections else None
        talk = _Table(folder / "messages.parquet", MESSAGES) if messages else None
        self._tables = [table for table in (rounds, updates, dwells, declared, talk) if table is not None]
        self.round = rounds.append
        self.update = updates.append if updates else NoRecorder().update
        self.jam = dwells.append if dwells else NoRecorder().jam
        self.detection = declared.append if declared else NoRecorder().detection
        self.message = talk.append if talk else NoRecorder().message

    def close(self) -> None:
        """Write what is buffered and the files' footers; the files are complete from here on."""
        for table in self._tables:
            table.close()

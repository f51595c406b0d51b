"""Flat typed records, written as they happen: the tables of a run, streamed to Parquet so that memory does not grow with rounds.

Every table states its name and format version in its metadata. Columns carry their units; null means not reached or not measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Protocol, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

FORMAT = 1
_FLUSH_ROWS = 8192


class RoundRow(NamedTuple):
    """One round. The counts of outcomes are of updates (of any round) that ended since the last round closed, so that up to every
    row the sums satisfy: selected = delivered + lost + late + aborted, + in_flight of that row."""

    round: int
    start_s: float
    end_s: float
    selected: int
    delivered: int
    lost: int
    late: int
    aborted: int
    in_flight: int
    max_leak: float
    version: int
    accuracy: float
    loss: float
    reward: float
    genie_reward: float
    bytes_down: int
    bytes_up: int


class UpdateRow(NamedTuple):
    """One client's part in a round: when each step began and ended, how it ended, what it cost."""

    round: int
    client: int
    outcome: str
    selected_s: float
    download_start_s: float
    download_end_s: float
    compute_start_s: float
    compute_end_s: float
    upload_start_s: float
    upload_end_s: float
    outcome_s: float
    censored: bool
    version: int
    age_rounds: int
    epsilon: float
    leak: float


def _schema(table: str, row: type, overrides: dict[str, pa.DataType]) -> pa.Schema:
    kinds = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
    fields = [pa.field(name, overrides.get(name, kinds[kind])) for name, kind in get_type_hints(row).items()]
    return pa.schema(fields, metadata={"netsim.table": table, "netsim.format": str(FORMAT)})


ROUNDS = _schema("rounds", RoundRow, dict.fromkeys(("selected", "delivered", "lost", "late", "aborted", "in_flight"), pa.int32()))
CLIENTS = _schema("clients", UpdateRow, {"outcome": pa.dictionary(pa.int8(), pa.string())})


class Recorder(Protocol):
    """Takes the records of a run in the order in which they come about."""

    def round(self, row: RoundRow) -> None:
        """A round has closed."""

    def update(self, row: UpdateRow) -> None:
        """An update has ended, or the run has ended before it."""

    def close(self) -> None:
        """No more records will come."""


class NoRecorder:
    """Keeps nothing."""

    def round(self, row: RoundRow) -> None:
        return None

    def update(self, row: UpdateRow) -> None:
        return None

    def close(self) -> None:
        return None


class MemoryRecorder:
    """Keeps every record in a list, for short runs in a notebook and for tests."""

    def __init__(self) -> None:
        self.rounds: list[RoundRow] = []
        self.updates: list[UpdateRow] = []

    def round(self, row: RoundRow) -> None:
        self.rounds.append(row)

    def update(self, row: UpdateRow) -> None:
        self.updates.append(row)

    def close(self) -> None:
        return None


class _Table:
    """One Parquet file under way."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows: list[tuple[Any, ...]] = []
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")

    def append(self, row: tuple[Any, ...]) -> None:
        self._rows.append(row)
        if len(self._rows) >= _FLUSH_ROWS:
            self.flush()

    def flush(self) -> None:
        if not self._rows:
            return
        # from_pandas: NaN, which stands for "not reached" in the engine, becomes a null in the file.
        columns = [
            pa.array(values, type=field.type, from_pandas=True)
            for field, values in zip(self._schema, zip(*self._rows, strict=True), strict=True)
        ]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))
        self._rows.clear()

    def close(self) -> None:
        self.flush()
        self._writer.close()


class ParquetRecorder:
    """Writes `rounds.parquet` and, unless `clients` is False, `clients.parquet` into an existing folder."""

    def __init__(self, folder: Path, *, clients: bool = True) -> None:
        self._rounds = _Table(folder / "rounds.parquet", ROUNDS)
        self._updates = _Table(folder / "clients.parquet", CLIENTS) if clients else None
        self.round = self._rounds.append
        self.update = self._updates.append if self._updates else NoRecorder().update

    def close(self) -> None:
        """Write what is buffered and the files' footers; the files are complete from here on."""
        self._rounds.close()
        if self._updates is not None:
            self._updates.close()

"""Records as Arrow tables: rows that wait to be written, and all tables of a run in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import pyarrow as pa

from netsim.core.rows import (
    BeliefRow,
    CommunicationRow,
    DetectionRow,
    EdgeRoundRow,
    EdgeRow,
    EvaluationRow,
    JamRow,
    LinkRow,
    MessageRow,
    ProbeRow,
    RoundRow,
    ScriptRow,
    TransferRow,
    schema_of,
)
from netsim.records.attempts import AttemptTable, Block, NoTable
from netsim.records.columns import column, empty, words_at
from netsim.records.wanted import USUAL, WantedTables

_FLUSH_ROWS = 8192
"""Rows of one row group in a Parquet file."""


class TableRows:
    """Buffer of the rows of one table. It passes them to `write` as a table when `_FLUSH_ROWS` have come, and at `flush`."""

    def __init__(self, table: str, write: Callable[[pa.Table], object]) -> None:
        self._name, self._write = table, write
        self.schema = schema_of(table)
        """Columns of the table. The run chooses them before the first row is written."""
        # Values of all rows in one flat list. As tuples they would be objects that the garbage collector scans repeatedly.
        self._values: list[Any] = []
        self._blocks: list[Any] = []
        """Rows that came as columns; empty while there are `_values`."""
        self._in_blocks = 0
        """Number of rows in `_blocks`."""
        self._sealed: list[pa.Table] = []
        """Earlier rows, as tables."""
        self._most_values = _FLUSH_ROWS * len(self.schema)
        """Number of `_values` at which a table is written."""

    def choose(self, columns: Sequence[str]) -> TableRows:
        """Restrict the table to these columns, in this order, and return it. From now on rows hold a value for each of them."""
        self.schema = schema_of(self._name, tuple(columns))
        self._set_most_values()
        return self

    def append(self, row: tuple[Any, ...]) -> None:
        """Add a row."""
        if self._blocks:
            self._seal()
        self._values += row
        if len(self._values) >= self._most_values:
            self.flush()

    def extend(self, block: Block) -> None:
        """Add the rows of `block`, which are converted together later."""
        if self._values:
            self._seal()
        self._blocks.append(block)
        self._in_blocks += len(block)
        if self._in_blocks * len(self.schema) >= self._most_values:
            self._write_blocks()

    def unwritten_rows(self) -> pa.Table:
        """Return the rows that are not written yet, as one table; they stay in the buffer."""
        self._seal()
        if not self._sealed:
            return empty(self.schema)
        if len(self._sealed) > 1:
            self._sealed = [pa.concat_tables(self._sealed).unify_dictionaries().combine_chunks()]
        return self._sealed[0]

    def replace_unwritten_rows(self, table: pa.Table) -> None:
        """Replace the rows that are not written yet by those of `table`."""
        self._values, self._blocks, self._in_blocks = [], [], 0
        self._sealed = [table] if len(table) else []
        self._set_most_values()

    def flush(self) -> None:
        """Write all rows that are not written yet."""
        self._seal()
        if self._sealed:
            self._write(self.unwritten_rows())
        self._sealed = []
        self._set_most_values()

    def _set_most_values(self) -> None:
        """Set the number of values at which a table is written, given the rows that are tables already."""
        sealed_rows = sum(map(len, self._sealed))
        self._most_values = max(0, _FLUSH_ROWS - sealed_rows) * len(self.schema)

    def _seal(self) -> None:
        """Convert the latest rows, which are values or blocks, to a table of `_sealed`."""
        if self._values:
            width = len(self.schema)
            arrays = [column(self._values[i::width], field.type) for i, field in enumerate(self.schema)]
            self._sealed.append(pa.Table.from_arrays(arrays, schema=self.schema))
            self._values.clear()
        elif self._blocks:
            rows = self._blocks[0].append_tables(self._blocks[1:])
            self._sealed.append(self._read_block(rows))
            self._blocks, self._in_blocks = [], 0
        else:
            return
        self._set_most_values()

    def _write_blocks(self) -> None:
        """Write full row groups of the blocks.

        They have the length that rows added one by one would have given, so that files are equal.
        """
        rows = self._blocks[0].append_tables(self._blocks[1:])
        # The first group is completed by rows that are tables already, so it takes fewer of the blocks.
        first, last = 0, self._most_values // len(self.schema)
        while last <= len(rows):
            self._blocks, self._in_blocks = [rows.piece(first, last)], last - first
            self.flush()
            first, last = last, last + _FLUSH_ROWS
        if first < len(rows):
            self._blocks, self._in_blocks = [rows.piece(first, len(rows))], len(rows) - first

    def _read_block(self, rows: Block) -> pa.Table:
        """Return `rows` as an Arrow table of this schema."""
        arrays = []
        for field in self.schema:
            text = rows.text_column(field.name)
            if text is not None:
                arrays.append(words_at(*text, field.type))
            else:
                arrays.append(column(rows.column(field.name), field.type))
        return pa.Table.from_arrays(arrays, schema=self.schema)


class ArrowRecorder:
    """Recorder that keeps all tables in memory, for runs that leave no files; the same tables as a `ParquetRecorder` writes.

    `tables` holds them by name once the recorder is closed.
    """

    def __init__(self, wanted: WantedTables = USUAL) -> None:
        self.tables: dict[str, pa.Table] = {}
        self._pieces: dict[str, list[pa.Table]] = {name: [] for name in wanted.names}
        self._rows = {name: TableRows(name, pieces.append) for name, pieces in self._pieces.items()}
        self._round: Callable[[RoundRow], tuple[Any, ...]] = tuple
        self._probe: Callable[[ProbeRow], tuple[Any, ...]] = tuple

    def _keep(self, table: str, row: tuple[Any, ...]) -> None:
        """Add a row to `table`, if the run keeps that table."""
        if table in self._rows:
            self._rows[table].append(row)

    def rounds_with(self, columns: Sequence[str]) -> None:
        """Set the columns of the table of rounds."""
        self._rows["rounds"].choose(columns)
        self._round = attrgetter(*columns)

    def round(self, row: RoundRow) -> None:
        self._keep("rounds", self._round(row))

    def communication(self, row: CommunicationRow) -> None:
        self._keep("communication_rounds", row)

    def edge(self, row: EdgeRow) -> None:
        self._keep("edges", row)

    def edge_round(self, row: EdgeRoundRow) -> None:
        self._keep("edge_rounds", row)

    def attempts(self, columns: Sequence[str]) -> AttemptTable:
        """Return the client table with these columns, or a table that keeps nothing."""
        if "clients" not in self._rows:
            return NoTable()
        return self._rows["clients"].choose(columns)

    def jam(self, row: JamRow) -> None:
        self._keep("jams", row)

    def detection(self, row: DetectionRow) -> None:
        self._keep("detections", row)

    def message(self, row: MessageRow) -> None:
        self._keep("messages", row)

    def belief(self, row: BeliefRow) -> None:
        self._keep("beliefs", row)

    def probes_with(self, columns: Sequence[str]) -> None:
        """Set the columns of the table of probes."""
        if "probes" in self._rows:
            self._rows["probes"].choose(columns)
            self._probe = attrgetter(*columns)

    def probe(self, row: ProbeRow) -> None:
        self._keep("probes", self._probe(row))

    def evaluation(self, row: EvaluationRow) -> None:
        self._keep("evaluations", row)

    def script(self, row: ScriptRow) -> None:
        self._keep("script", row)

    def transfer(self, row: TransferRow) -> None:
        self._keep("transfers", row)

    def link(self, row: LinkRow) -> None:
        self._keep("link_loads", row)

    def close(self) -> None:
        """Complete the tables."""
        for name, rows in self._rows.items():
            rows.flush()
            pieces = self._pieces.pop(name)
            self.tables[name] = pa.concat_tables(pieces) if pieces else empty(rows.schema)

"""Records as Arrow tables: rows that wait to be written, and all tables of a run in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from netsim.records.columns import column
from netsim.records.rows import (
    CLIENTS,
    DETECTIONS,
    EVALUATIONS,
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
)

_FLUSH_ROWS = 8192


class TableRows:
    """Rows of one table that are not yet in Arrow; `write` is given them as a table whenever there are many, and by `flush`."""

    def __init__(self, schema: pa.Schema, write: Callable[[pa.Table], object]) -> None:
        self._schema, self._write = schema, write
        # Values row after row. Kept as rows they would be objects for the garbage collector to walk through, again and again.
        self._values: list[Any] = []
        self._names: Sequence[str] = schema.names
        self._full = _FLUSH_ROWS * len(schema)

    def taking(self, columns: Sequence[str]) -> Callable[[tuple[Any, ...]], None]:
        """`append`, of rows that hold these `columns` of the table, in this order; the others are null."""
        table = self.waiting()
        self._names, self._full = columns, _FLUSH_ROWS * len(columns)
        self.wait(table)
        return self.append

    def append(self, row: tuple[Any, ...]) -> None:
        self._values += row
        if len(self._values) >= self._full:
            self.flush()

    def waiting(self) -> pa.Table:
        """The rows that are not yet written."""
        width = len(self._names)
        count, place = len(self._values) // width, {name: i for i, name in enumerate(self._names)}
        columns = [
            column(self._values[place[field.name] :: width], field.type)
            if field.name in place
            else pa.nulls(count, field.type)
            for field in self._schema
        ]
        return pa.Table.from_arrays(columns, schema=self._schema)

    def wait(self, table: pa.Table) -> None:
        """Let the rows of `table` wait, in place of those that do."""
        if not table.num_rows:
            self._values = []
            return
        columns = [table.column(name).to_pylist() for name in self._names]
        self._values = [value for row in zip(*columns, strict=True) for value in row]

    def flush(self) -> None:
        if self._values:
            self._write(self.waiting())
            self._values.clear()


class ArrowRecorder:
    """Keeps the tables that a `ParquetRecorder` of the same settings writes, for runs that leave no files.

    `tables` holds them by name once the recorder is closed.
    """

    def __init__(
        self,
        *,
        clients: bool = True,
        jams: bool = False,
        detections: bool = False,
        messages: bool = False,
        probes: bool = False,
        script: bool = False,
        evaluations: bool = False,
    ) -> None:
        self.tables: dict[str, pa.Table] = {}
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
        schemas = {
            "rounds": ROUNDS,
            "clients": CLIENTS,
            "jams": JAMS,
            "detections": DETECTIONS,
            "messages": MESSAGES,
            "probes": PROBES,
            "script": SCRIPT,
            "evaluations": EVALUATIONS,
        }
        self._schemas = {name: schemas[name] for name, kept in wanted.items() if kept}
        self._pieces: dict[str, list[pa.Table]] = {name: [] for name in self._schemas}
        self._rows = {name: TableRows(schema, self._pieces[name].append) for name, schema in self._schemas.items()}

    def _keep(self, table: str, row: tuple[Any, ...]) -> None:
        if table in self._rows:
            self._rows[table].append(row)

    def round(self, row: RoundRow) -> None:
        self._keep("rounds", row)

    def attempts(self, columns: Sequence[str]) -> Callable[[tuple[Any, ...]], None]:
        return self._rows["clients"].taking(columns) if "clients" in self._rows else lambda row: None

    def jam(self, row: JamRow) -> None:
        self._keep("jams", row)

    def detection(self, row: DetectionRow) -> None:
        self._keep("detections", row)

    def message(self, row: MessageRow) -> None:
        self._keep("messages", row)

    def probe(self, row: ProbeRow) -> None:
        self._keep("probes", row)

    def evaluation(self, row: EvaluationRow) -> None:
        self._keep("evaluations", row)

    def script(self, row: ScriptRow) -> None:
        self._keep("script", row)

    def close(self) -> None:
        """Make the tables complete."""
        for name, schema in self._schemas.items():
            self._rows[name].flush()
            pieces = self._pieces.pop(name)
            self.tables[name] = pa.concat_tables(pieces) if pieces else schema.empty_table()

"""Columns of a table as pieces of JSON text, from which events are assembled.

To encode each event as a dictionary takes several times as long.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

LEFT_OUT = ""
"""Text of a value that is missing, or a number that JSON cannot write; the event then goes without it."""


def json_texts(column: pa.ChunkedArray) -> list[str]:
    """Return the values of a `pyarrow` column as JSON texts (n,); null, NaN and infinite ones as `LEFT_OUT`."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        # Encode each distinct word once only.
        combined = column.combine_chunks()
        parts = combined.chunks if isinstance(combined, pa.ChunkedArray) else [combined]
        result: list[str] = []
        for part in parts:
            words = [LEFT_OUT if word is None else json.dumps(word) for word in part.dictionary.to_pylist()]
            result += [LEFT_OUT if place is None else words[place] for place in part.indices.to_pylist()]
        return result
    values = column.to_pylist()
    if pa.types.is_floating(kind):
        finite = np.isfinite(np.array(values, np.float64)).tolist()
        return [repr(value) if good else LEFT_OUT for value, good in zip(values, finite, strict=True)]
    if pa.types.is_integer(kind):
        return [LEFT_OUT if value is None else str(value) for value in values]
    return [LEFT_OUT if value is None else json.dumps(value) for value in values]


def row_objects(table: pa.Table, names: Sequence[str]) -> list[str]:
    """Return a JSON object for each row of the table, with its values in the columns `names`, null ones left out."""
    present = [name for name in names if name in table.column_names and table.column(name).null_count < table.num_rows]
    if not present:
        return ["{}"] * table.num_rows
    columns = []
    for name in present:
        key = f'"{name}":'
        columns.append([key + text if text else LEFT_OUT for text in json_texts(table.column(name))])
    return ["{" + ",".join(filter(None, row)) + "}" for row in zip(*columns, strict=True)]


def times_us(table: pa.Table, name: str) -> tuple[list[float], list[bool]]:
    """Return a column of seconds as microseconds (n,), 0 where null, and (n,) True where there is a value."""
    seconds = np.asarray(table.column(name).to_numpy(zero_copy_only=False), np.float64)
    present = ~np.isnan(seconds)
    return (np.where(present, seconds, 0.0) * 1e6).tolist(), present.tolist()

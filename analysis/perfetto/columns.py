"""Columns of a table as pieces of JSON text, from which events are assembled.

To encode each event as a dictionary takes several times as long.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

LEFT_OUT = ""
"""Text of a value that is missing, or a number that JSON cannot write; the event then goes without it."""


def json_texts(column: pa.ChunkedArray) -> list[str]:
    """Return the values of a column as JSON texts (n,); `LEFT_OUT` for null, NaN and infinite ones."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _word_texts(column)
    values = column.to_pylist()
    if pa.types.is_floating(kind):
        finite = np.isfinite(np.array(values, np.float64)).tolist()
        return [repr(value) if is_finite else LEFT_OUT for value, is_finite in zip(values, finite, strict=True)]
    # `str` writes a whole number as JSON does, and faster than `json.dumps`.
    encode: Callable[[Any], str] = str if pa.types.is_integer(kind) else json.dumps
    return [LEFT_OUT if value is None else encode(value) for value in values]


def _word_texts(column: pa.ChunkedArray) -> list[str]:
    """Return the words of a dictionary column (indices of distinct words) as JSON texts (n,), `LEFT_OUT` for null.

    Each distinct word is encoded once.
    """
    import pyarrow as pa

    combined = column.combine_chunks()
    texts: list[str] = []
    for part in combined.chunks if isinstance(combined, pa.ChunkedArray) else [combined]:
        words = [LEFT_OUT if word is None else json.dumps(word) for word in part.dictionary.to_pylist()]
        texts += [LEFT_OUT if place is None else words[place] for place in part.indices.to_pylist()]
    return texts


def row_objects(table: pa.Table, names: Sequence[str]) -> list[str]:
    """Return a JSON object for each row of the table: its values in the columns `names` that are not null, NaN or infinite."""
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

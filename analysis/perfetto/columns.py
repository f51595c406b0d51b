"""Columns of a table as pieces of JSON text: an event is put together of them; encoding it whole takes several times as long."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

LEFT_OUT = ""
"""The text of a value that JSON has no number for, or that there is not."""


def texts(column: Any) -> list[str]:
    """The values of a `pyarrow` column as JSON; null, NaN and infinite ones as `LEFT_OUT`."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        combined = column.combine_chunks()
        parts = combined.chunks if isinstance(combined, pa.ChunkedArray) else [combined]
        found: list[str] = []
        for part in parts:
            words = [LEFT_OUT if word is None else json.dumps(word) for word in part.dictionary.to_pylist()]
            found += [LEFT_OUT if place is None else words[place] for place in part.indices.to_pylist()]
        return found
    values = column.to_pylist()
    if pa.types.is_floating(kind):
        finite = np.isfinite(np.array(values, np.float64)).tolist()
        return [repr(value) if good else LEFT_OUT for value, good in zip(values, finite, strict=True)]
    if pa.types.is_integer(kind):
        return [LEFT_OUT if value is None else str(value) for value in values]
    return [LEFT_OUT if value is None else json.dumps(value) for value in values]


def said(table: Any, names: Sequence[str]) -> list[str]:
    """For each row what the viewer shows of it: a JSON object of those `names` that say something."""
    present = [name for name in names if name in table.column_names and table.column(name).null_count < table.num_rows]
    if not present:
        return ["{}"] * table.num_rows
    columns = []
    for name in present:
        key = f'"{name}":'
        columns.append([key + text if text else LEFT_OUT for text in texts(table.column(name))])
    return ["{" + ",".join(filter(None, row)) + "}" for row in zip(*columns, strict=True)]


def times_us(table: Any, name: str) -> tuple[list[float], list[bool]]:
    """A column of seconds as microseconds, and where there is a value; 0 where there is none."""
    seconds = np.asarray(table.column(name).to_numpy(zero_copy_only=False), np.float64)
    there = ~np.isnan(seconds)
    return (np.where(there, seconds, 0.0) * 1e6).tolist(), there.tolist()

"""A run's tables as columns, written as text: a line a column, so that a difference of two recordings can be read."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.golden import adapter
from tests.golden.cases import INPUTS

LEARNT = frozenset(
    {
        *("accuracy", "loss", "loss_rms", "training_loss", "opinion", "belief", "index_value", "reward", "genie_reward"),
        *("residual", "peer_accuracy", "worst_peer_accuracy", "best_peer_accuracy", "consensus_distance"),
    }
)
LEARNT_FIGURES = frozenset({"final.accuracy", "final.loss", "final.regret"})
"""Columns, and figures of the summary, that follow from trained weights where a scenario has a learner."""
EXACT, TRAINED = 1e-9, 1e-4
"""Relative and absolute tolerance of a float, and of one that follows from trained weights."""
AMPLIFIED = 0.05
"""Tolerance of what follows from trained weights in the variants `AMPLIFYING`."""
AMPLIFYING = {("pause_fig2_3", "authors-batch-norm-local"), ("pause_authors_cifar10", "pause-statistics-local")}
"""(case, variant) with batch normalisation over few samples of one client: it amplifies the last bits, in which processors
differ, within three rounds to a thousandth of the loss, and to one of forty test samples."""
_DIGITS = {EXACT: 11, TRAINED: 6}
SUMMARY = "summary.json"
_TABLE, _EMPTY, _TRAINED = "table", "empty", "trained"
_LEFT_OUT = ("format", "name", "policy", "seed", "wall_time_s", "versions", "warnings", "machine", "run_id")
_WORDS = ("ended",)
"""Texts of the summary that are results; all others are prose."""


@dataclass(frozen=True)
class Column:
    """`kind`: int, float, bool or text; `tolerance`: of a float, else 0. A missing value is None."""

    kind: str
    tolerance: float
    values: list[Any]


Recording = dict[str, dict[str, Column]]
"""Table -> column -> what it holds, of one run."""


def play(tables: dict[str, Any], out: Path, *, resumed: bool = False) -> Recording:
    """Run a scenario into the new folder `out` and read what it left; `resumed`: interrupted half-way."""
    with contextlib.chdir(INPUTS):
        adapter.play(tables, out, cut_after=max(1, tables["rounds"] // 2) if resumed else None)
    return read(out, learner="learner" in tables)


def read(folder: Path, *, learner: bool) -> Recording:
    """Every table in the folder of a run, and the figures of its summary."""
    recording = {}
    for file in sorted(folder.glob("*.parquet")):
        table = pq.read_table(file)
        recording[file.name] = {name: _column(table[name], learner and name in LEARNT) for name in table.column_names}
    figures = dict(_figures(json.loads((folder / SUMMARY).read_text(encoding="utf-8"))))
    recording[SUMMARY] = {key: _of_values(values, learner and key in LEARNT_FIGURES) for key, values in figures.items()}
    return recording


def _column(column: Any, learnt: bool) -> Column:
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_floating(kind):
        return Column("float", TRAINED if learnt else EXACT, column.to_pylist())
    names = {"int": pa.types.is_integer, "bool": pa.types.is_boolean, "text": pa.types.is_string}
    (name,) = (name for name, holds in names.items() if holds(kind))
    return Column(name, 0.0, column.to_pylist())


def _figures(value: Any, path: str = "") -> Iterator[tuple[str, list[Any]]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if path or key not in _LEFT_OUT:
                yield from _figures(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(inner, list | dict) for inner in value):
        for i, inner in enumerate(value):
            yield from _figures(inner, f"{path}.{i}")
    else:
        values = value if isinstance(value, list) else [value]
        if path in _WORDS or not any(isinstance(inner, str) for inner in values):
            yield path, values


def _of_values(values: list[Any], learnt: bool) -> Column:
    if any(isinstance(value, str) for value in values):
        return Column("text", 0.0, values)
    if any(isinstance(value, float) for value in values):
        return Column("float", TRAINED if learnt else EXACT, values)
    return Column("bool" if any(isinstance(value, bool) for value in values) else "int", 0.0, values)


def differences(recorded: Recording, now: Recording, *, trained: float = TRAINED) -> Iterator[str]:
    """Yield a line for each difference; tables, columns and figures that were added do not count.

    `trained`: the tolerance of what follows from trained weights.
    """
    for table, columns in recorded.items():
        if table not in now:
            yield f"{table}: is no longer written"
            continue
        for name, column in columns.items():
            if name not in now[table]:
                if all(value is None for value in column.values):
                    continue  # tables leave out columns that their run never fills
                yield f"{table}: {name}: is no longer written"
                continue
            told = _difference(column, now[table][name], trained)
            if told is not None:
                yield f"{table}: {name}: {told}"


def _difference(recorded: Column, now: Column, trained: float) -> str | None:
    if len(recorded.values) != len(now.values):
        return f"{len(recorded.values)} rows before, {len(now.values)} now"
    tolerance = trained if recorded.tolerance == TRAINED else recorded.tolerance
    rows = [i for i, pair in enumerate(zip(recorded.values, now.values, strict=True)) if not same(*pair, tolerance)]
    if not rows:
        return None
    first = rows[0]
    return f"row {first}: {recorded.values[first]!r} before, {now.values[first]!r} now ({len(rows)} of {len(now.values)} rows)"


def same(recorded: Any, now: Any, tolerance: float) -> bool:
    """Whether two values agree: floats to the tolerance, NaN with NaN, all else exactly."""
    if not all(type(value) in (int, float) for value in (recorded, now)):
        return type(recorded) is type(now) and bool(recorded == now)
    if math.isnan(recorded) or math.isnan(now):
        return math.isnan(recorded) and math.isnan(now)
    if not tolerance:
        return type(recorded) is type(now) and bool(recorded == now)
    return math.isclose(recorded, now, rel_tol=tolerance, abs_tol=tolerance)


def to_text(recordings: dict[str, Recording]) -> str:
    """All variants of a case as lines of words with tabs between: a head for each table, then a line a column.

    A line holds a column's name, its kind and its values; of a run of equal values [how often, value]; of what an earlier column
    of the case held already "=" and its variant, table and name. Columns without any value share the line `empty`.
    """
    lines: list[str] = []
    before: dict[tuple[str, str], tuple[str, str, str]] = {}
    for variant, recording in recordings.items():
        for table, columns in recording.items():
            rows = max((len(column.values) for column in columns.values()), default=0)
            lines.append("\t".join((_TABLE, variant, table, str(rows))))
            empty = [name for name, column in columns.items() if column.values == [None] * rows]
            lines += ["\t".join((_EMPTY, *empty))] if empty else []
            for name, column in columns.items():
                if name in empty:
                    continue
                kind = _TRAINED if column.tolerance == TRAINED else column.kind
                values = json.dumps(_packed(column), separators=(",", ":"))
                place, here = before.setdefault((kind, values), (variant, table, name)), (variant, table, name)
                long = len(values) > len("".join(place))
                lines.append("\t".join((name, kind, *(("=", *place) if long and place != here else (values,)))))
    return "\n".join(lines) + "\n"


def from_text(text: str) -> dict[str, Recording]:
    """The inverse of `to_text`, up to its rounding."""
    recordings: dict[str, Recording] = {}
    columns: dict[str, Column] = {}
    rows = 0
    for line in text.splitlines():
        word, *rest = line.split("\t")
        if word == _TABLE:
            columns, rows = recordings.setdefault(rest[0], {}).setdefault(rest[1], {}), int(rest[2])
        elif word == _EMPTY:
            columns.update({name: Column("int", 0.0, [None] * rows) for name in rest})
        elif rest[1] == "=":
            variant, table, name = rest[2:]
            columns[word] = recordings[variant][table][name]
        else:
            kind = "float" if rest[0] == _TRAINED else rest[0]
            tolerance = {_TRAINED: TRAINED, "float": EXACT}.get(rest[0], 0.0)
            columns[word] = Column(kind, tolerance, _unpacked(json.loads(rest[1]), kind))
    return recordings


def _packed(column: Column) -> list[Any]:
    values = column.values
    if column.kind == "float":
        # nan is not equal to itself: as a word, runs of it are found.
        digits = _DIGITS[column.tolerance]
        values = [None if v is None else "nan" if math.isnan(v) else float(f"{v:.{digits}g}") for v in values]
        values = [int(v) if isinstance(v, float) and v.is_integer() and abs(v) < 1e15 else v for v in values]
    packed: list[Any] = []
    for (_, value), run in groupby(values, key=lambda value: (type(value), value)):
        times = len(list(run))
        packed += [value] * times if times < 3 else [[times, value]]
    return packed


def _unpacked(packed: list[Any], kind: str) -> list[Any]:
    values = [v for entry in packed for v in ([entry[1]] * entry[0] if isinstance(entry, list) else [entry])]
    return [float(v) if kind == "float" and v is not None else v for v in values]

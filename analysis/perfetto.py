"""A run as a timeline for the Perfetto viewer (ui.perfetto.dev): JSON of the Trace Event Format, one event a line.

One track for the rounds, one for each client with its downloads, computing, waits and uploads, and those of probes, one for each
jammed sub-channel, and the messages between clients. A simulated second is a second of the viewer.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TextIO

from analysis.results import Run
from analysis.sources import TableName

SERVER, CLIENTS, JAMMERS, MESSAGES = 1, 2, 3, 4
_TRACKS = {SERVER: "server", CLIENTS: "clients", JAMMERS: "jammed sub-channels", MESSAGES: "messages between clients"}
_PHASES = (
    ("download", "download_start_s", "download_end_s"),
    ("compute", "compute_start_s", "compute_end_s"),
    ("wait", "compute_end_s", "upload_start_s"),
    ("upload", "upload_start_s", "upload_end_s"),
)
_SAID = {
    "rounds": ("selected", "delivered", "lost", "late", "aborted", "in_flight", "accuracy", "loss", "reward", "version"),
    "probes": ("round", "outcome", "cause", "version", "samples", "loss", "compute_j", "send_j", "receive_j"),
    "clients": (
        *("round", "outcome", "cause", "version", "age_rounds", "epsilon", "leak", "channel"),
        *("compute_j", "send_j", "receive_j"),
    ),
}
_COUNTERS = ("accuracy", "in_flight", "max_leak", "sum_age", "disagreement", "batteries_empty")
_TABLES: tuple[TableName, ...] = ("rounds", "clients", "probes", "jams", "messages")


def write_trace(run: Run, path: Path, *, first: int = 1, last: int | None = None) -> int:
    """Write rounds `first` to `last` (None: to the end) of `run` to `path`, packed if its name ends in .gz; returns the events.

    Raises:
        ValueError: no such rounds in the run, or a table that cannot be read.
    """
    for table in _TABLES:
        if table == "rounds" or run.source.has(table):
            run.arrow(table, ["round"])  # before anything is written: refuses what is no such table
    if not any(True for _ in _rows(run, "rounds", first, last)):
        raise ValueError(f"{run.source.place}: has no round from {first} to {'the end' if last is None else last}")
    count = 0
    with closing(_open(path)) as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        for event in _events(run, first, last):
            file.write((",\n" if count else "") + json.dumps(event, separators=(",", ":")))
            count += 1
        file.write("\n]}\n")
    return count


def _open(path: Path) -> TextIO:
    return gzip.open(path, "wt", encoding="utf-8") if path.suffix == ".gz" else path.open("w", encoding="utf-8")


def _rows(run: Run, table: TableName, first: int, last: int | None) -> Iterator[dict[str, Any]]:
    """The rows of those rounds, batch by batch; none where the run has no such table."""
    import pyarrow.compute

    if not run.source.has(table):
        return
    with run.source.open(table) as opened:
        for piece in opened.pieces():
            rounds = piece.column("round")
            inside = pyarrow.compute.greater_equal(rounds, first)
            if last is not None:
                inside = pyarrow.compute.and_(inside, pyarrow.compute.less_equal(rounds, last))
            yield from piece.filter(inside).to_pylist()


def _events(run: Run, first: int, last: int | None) -> Iterator[dict[str, Any]]:
    for process, name in _TRACKS.items():
        yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}}
    for table, of_row in zip(_TABLES, (_round, _part, _probe, _jam, _message), strict=True):
        for number, row in enumerate(_rows(run, table, first, last)):
            yield from of_row(row, number)


def _us(time_s: float) -> float:
    return time_s * 1e6


def _said(table: str, row: dict[str, Any]) -> dict[str, Any]:
    """What the viewer shows of a row; JSON has no infinity."""
    said = {name: row.get(name) for name in _SAID[table]}
    return {name: value for name, value in said.items() if value is not None and not _endless(value)}


def _endless(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _slice(process: int, track: int, name: str, start_s: float, end_s: float, said: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": _us(start_s), "dur": _us(end_s) - _us(start_s)}
    return {"ph": "X", "name": name, "pid": process, "tid": track, **times, "args": said}


def _round(row: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    yield _slice(SERVER, 0, f"round {row['round']}", row["start_s"], row["end_s"], _said("rounds", row))
    for name in _COUNTERS:
        value = row.get(name)
        if value is not None and not _endless(value):
            yield {"ph": "C", "name": name, "pid": SERVER, "ts": _us(row["end_s"]), "args": {name: value}}


def _part(row: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    yield from _of_client(row, _said("clients", row), "")


def _probe(row: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    yield from _of_client(row, _said("probes", row), "probe: ")


def _of_client(row: dict[str, Any], said: dict[str, Any], what: str) -> Iterator[dict[str, Any]]:
    client = row["client"]
    for name, start, end in _PHASES:
        begun, over = row[start], row[end]
        if begun is None or (over is None and name == "wait"):
            continue
        # What had not ended as the run did ends there.
        yield _slice(CLIENTS, client, what + name, begun, row["outcome_s"] if over is None else over, said)
    if row["outcome"] != "in_flight":
        marked = {"ph": "i", "s": "t", "name": what + row["outcome"], "pid": CLIENTS, "tid": client}
        yield {**marked, "ts": _us(row["outcome_s"]), "args": said}


def _jam(row: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    said = {name: row[name] for name in ("round", "hit", "destroyed")}
    yield _slice(JAMMERS, row["channel"], row["jammer"], row["start_s"], row["end_s"], said)


def _message(row: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    # Messages between two clients may overtake each other: async events, which need not nest.
    name = f"{row['protocol']} {row['source']} to {row['target']}"
    event = {"cat": row["protocol"], "name": name, "pid": MESSAGES, "tid": row["source"], "id": number}
    said = {name: row[name] for name in ("round", "number", "resend", "outcome", "cause", "size_bytes") if row[name] is not None}
    yield {"ph": "b", "ts": _us(row["sent_s"]), "args": said, **event}
    yield {"ph": "e", "ts": _us(row["end_s"]), **event}

"""Writes the timeline of a run, table by table and piece by piece."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import closing
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

from analysis.files import replace_file
from analysis.perfetto.events import Events
from analysis.results.run import Run
from analysis.results.sources import COLUMNS, TableName

if TYPE_CHECKING:
    import pyarrow as pa

_EVENTS_OF: dict[TableName, Callable[[Events, pa.Table], Iterator[str]]] = {
    "rounds": Events.rounds,
    "clients": Events.attempts,
    "probes": Events.probes,
    "jams": Events.jams,
    "messages": Events.messages,
}
"""Tables of the timeline, in the order of the file, and the method that makes events of a piece of each."""
_AT_ONCE = 4096
"""Events written in one go."""
_LEVEL = 3
"""Compression level of gzip: higher levels take most of the time, and save a tenth of the size."""


def write_trace(run: Run, path: Path, *, first: int = 1, last: int | None = None) -> int:
    """Write rounds `first` to `last` (None: to the end) of `run` to `path`; return the number of events.

    The file is compressed if its name ends in .gz. Rounds are counted as in `rounds.parquet`: with slots, these are counted.

    Raises:
        ValueError: no such rounds in the run, or a table that cannot be read.
    """
    for table in _EVENTS_OF:
        if table == "rounds" or run.source.has(table):
            run.arrow(table, ["round"])  # before anything is written: refuses what is no such table
    if not any(piece.num_rows for piece in _pieces(run, "rounds", first, last)):
        raise ValueError(f"{run.source.place}: has no round from {first} to {'the end' if last is None else last}")
    count = 0
    with replace_file(path) as temporary, temporary.open("wb") as raw, closing(_text(raw, path)) as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        events = _events(run, first, last)
        while lines := list(islice(events, _AT_ONCE)):
            file.write((",\n" if count else "") + ",\n".join(lines))
            count += len(lines)
        file.write("\n]}\n")
    return count


def _text(raw: BinaryIO, path: Path) -> TextIO:
    """Wrap `raw`, an open file, so that it takes text and compresses it if `path` ends in .gz."""
    if path.suffix == ".gz":
        return TextIOWrapper(gzip.GzipFile(path.with_suffix("").name, "wb", _LEVEL, raw), encoding="utf-8")
    return TextIOWrapper(raw, encoding="utf-8")


def _pieces(run: Run, table: TableName, first: int, last: int | None) -> Iterator[pa.Table]:
    """Yield the rows of rounds `first` to `last` as `pyarrow.Table`s; none where the run has no such table."""
    import pyarrow.compute

    if not run.source.has(table):
        return
    if _numbers_communication_rounds(run, table):
        # A row of the rounds table is a slot of several communication rounds.
        first, last = (first - 1) * run.rounds_per_row + 1, None if last is None else last * run.rounds_per_row
    for piece in run.pieces(table, COLUMNS[table]):
        rounds = piece.column("round")
        inside = pyarrow.compute.greater_equal(rounds, first)
        if last is not None:
            inside = pyarrow.compute.and_(inside, pyarrow.compute.less_equal(rounds, last))
        yield piece.filter(inside)


def _numbers_communication_rounds(run: Run, table: TableName) -> bool:
    """Return True if `round` in a table numbers communication rounds, False if it numbers slots, or there are none."""
    # Jams are of sub-channels or cables, else of messages between clients, which belong to slots.
    return table in ("clients", "probes") or (table == "jams" and (bool(run.scenario.get("channels")) or run.jams_cables))


def _events(run: Run, first: int, last: int | None) -> Iterator[str]:
    """Yield the events of rounds `first` to `last`, table by table, each as a line of JSON."""
    events = Events(jammed="cable" if run.jams_cables else "sub-channel")
    for table, events_of in _EVENTS_OF.items():
        for piece in _pieces(run, table, first, last):
            yield from events_of(events, piece)
    # The names come last: only now all tracks are known.
    yield from events.names()

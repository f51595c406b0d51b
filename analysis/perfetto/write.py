"""Writing of the timeline of a run for a trace viewer, table by table and piece by piece."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import closing
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

import numpy as np

from analysis.files import replace_file
from analysis.perfetto.events import Events
from analysis.results.run import Run
from analysis.results.sources import COLUMNS, TableName

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_EVENTS_OF: dict[TableName, Callable[[Events, pa.Table], Iterator[str]]] = {
    "rounds": Events.round_events,
    "clients": Events.attempt_events,
    "probes": Events.probe_events,
    "jams": Events.jam_events,
    "messages": Events.message_events,
}
"""Tables of the timeline, in the order of the file, each with the method that yields the events of a piece of it."""
_AT_ONCE = 4096
"""Number of events that are written together."""
_LEVEL = 3
"""Compression level of gzip: higher levels take most of the time, and save a tenth of the size."""


def write_trace(run: Run, path: Path, *, first: int = 1, last: int | None = None) -> int:
    """Write the timeline of rounds `first` to `last` (None: to the end) of `run` to `path`; return the number of events.

    The file is compressed if its name ends in .gz. Rounds are rows of `rounds.parquet`: in a run with slots, they are slots.

    Raises:
        ValueError: no such rounds in the run, or a table that cannot be read.
    """
    for table in _EVENTS_OF:
        if table == "rounds" or run.source.has(table):
            run.arrow(table, ["round"])  # raises ValueError for a damaged table before anything is written
    if not any(piece.num_rows for piece in _round_pieces(run, "rounds", first, last)):
        raise ValueError(f"{run.source.place}: has no round from {first} to {'the end' if last is None else last}")
    count = 0
    with replace_file(path) as temporary, temporary.open("wb") as raw, closing(_text_writer(raw, path)) as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        events = _event_lines(run, first, last)
        while lines := list(islice(events, _AT_ONCE)):
            file.write((",\n" if count else "") + ",\n".join(lines))
            count += len(lines)
        file.write("\n]}\n")
    return count


def _text_writer(raw: BinaryIO, path: Path) -> TextIO:
    """Return a text file that writes to `raw`, an open file, compressed if `path` ends in .gz."""
    if path.suffix == ".gz":
        # The name in the header of gzip is that of the final file, not of `raw`, which is a temporary one.
        return TextIOWrapper(gzip.GzipFile(path.with_suffix("").name, "wb", _LEVEL, raw), encoding="utf-8")
    return TextIOWrapper(raw, encoding="utf-8")


def _round_pieces(run: Run, table: TableName, first: int, last: int | None) -> Iterator[pa.Table]:
    """Yield the rows of a table that lie in rounds `first` to `last`, as several `pyarrow.Table`; none without such a table."""
    if not run.source.has(table):
        return
    for piece in run.pieces(table, COLUMNS[table]):
        rows = _row_numbers(run, table, piece)
        yield piece.filter((rows >= first) & (rows <= (rows.max(initial=first) if last is None else last)))


def _row_numbers(run: Run, table: TableName, piece: pa.Table) -> NDArray[np.int64]:
    """Return the row (n,) of the rounds table to which each row of `piece`, a part of `table`, belongs."""
    rounds: NDArray[np.int64] = piece.column("round").to_numpy()
    if table in ("clients", "probes"):
        return run.row_of(rounds)
    if table == "jams":
        # A jam of messages between clients, or of opinions, lies in a slot; other jams lie in a communication round.
        in_slots = [name for name, jammed in run.jammed.items() if jammed in ("peers", "opinions")]
        names = piece.column("jammer").to_numpy(zero_copy_only=False).astype(str)
        return np.where(np.isin(names, in_slots), rounds, run.row_of(rounds))
    return rounds


def _event_lines(run: Run, first: int, last: int | None) -> Iterator[str]:
    """Yield the events of rounds `first` to `last` as lines of JSON, table by table."""
    events = Events(jammed=run.jammed)
    for table, events_of in _EVENTS_OF.items():
        for piece in _round_pieces(run, table, first, last):
            yield from events_of(events, piece)
    # The names come last: only now all tracks are known.
    yield from events.name_events()

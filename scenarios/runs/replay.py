"""Replay of a finished run: its scenario is run again, and the tables are compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from analysis.results.sources import RunFolder
from netsim.simulation import BY_EVENTS, Simulation
from scenarios.runs.folders.own_code import changes, latest
from scenarios.runs.folders.replacement import SCENARIO, not_a_run, read_beginning, read_ending, read_summary
from scenarios.runs.reading import load
from scenarios.runs.run import run
from scenarios.runs.unfinished import INTERRUPTED
from scenarios.schema.errors import UserError
from scenarios.schema.scenario import Scenario
from scenarios.workers.scratch import temporary_folder

if TYPE_CHECKING:
    import pyarrow as pa

WHAT_IFS = "what_ifs.parquet"
"""Table that `netsim stragglers` adds to the folder of a run."""


def read_finished(folder: Path) -> Scenario:
    """Return the scenario of the run in `folder`; raises UserError if there is no finished run."""
    if not folder.is_dir() or read_beginning(folder) is None:
        raise not_a_run(folder)
    if read_ending(folder) in (None, INTERRUPTED):
        raise UserError(f"{folder}: the run has not come to its end; netsim resume {folder} goes on with it")
    damages = RunFolder(folder).find_damages()
    if damages:
        raise UserError("\n".join(damages))
    return load(str(folder / SCENARIO))


def replay(folder: Path, *, after_round: Callable[[Simulation], None] | None = None) -> list[str]:
    """Run the scenario of the run in `folder` again, in a temporary folder, and compare the tables.

    Return a line for each table that differs, and lines that name changed code and versions; an empty list if all are equal.
    Tables are compared byte for byte, and those that differ value for value.
    Raises UserError, also for a run that ended by a limit of its events: the limit is not stored with the run.
    """
    scenario = read_finished(folder)
    if read_ending(folder) == BY_EVENTS:
        problem = "ended by --event-limit, and the limit is not stored with the run"
        raise UserError(f"{folder}: {problem}; run it again without, and replay that")
    with temporary_folder() as scratch:
        copy = scratch / "run"
        try:
            summary = run(scenario, copy, after_round=after_round)
        except UserError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            # The temporary folder no longer exists when the user reads this, so the message names its parent.
            reason = error.__cause__.strerror or error.__cause__
            where = f"cannot be run again in {scratch.parent} ({reason})"
            raise UserError(f"{where}; make room there, or name another folder in TMPDIR, and try again") from error
        if summary["ended"] == INTERRUPTED:
            raise KeyboardInterrupt
        # Leave out the table that a later command adds to the folder.
        tables = {file.name for file in (*folder.glob("*.parquet"), *copy.glob("*.parquet"))} - {WHAT_IFS}
        differences = [_difference(folder / name, copy / name) for name in sorted(tables)]
        lines = [difference for difference in differences if difference is not None]
    if not lines:
        return []
    original = read_summary(folder)
    code = changes(latest(original.get("own_code", [])), latest(summary["own_code"]))
    if code:
        lines.append(f"made with other code of your own: {', '.join(code)}")
    old, new = original["versions"], summary["versions"]
    versions = [f"{name} {old.get(name)}, now {new[name]}" for name in new if old.get(name) != new[name]]
    if versions:
        lines.append(f"made with other versions: {'; '.join(versions)}")
    return lines


def _difference(first_file: Path, second_file: Path) -> str | None:
    """Return the first difference between a table of two runs as a line; None if the files are equal."""
    table = first_file.name
    if not second_file.is_file():
        return f"{table}: is only in the first run"
    if not first_file.is_file():
        return f"{table}: is only in the second run"
    if first_file.read_bytes() == second_file.read_bytes():
        return None
    first, second = pq.read_table(first_file), pq.read_table(second_file)
    if first.num_rows != second.num_rows:
        return f"{table}: {first.num_rows} rows, and {second.num_rows} the second time"
    for name in dict.fromkeys([*first.schema.names, *second.schema.names]):
        for row, (old, new) in enumerate(zip(_values(first, name), _values(second, name), strict=True)):
            # Only NaN differs from itself; two NaN count as equal.
            both_nan = old != old and new != new
            if old != new and not both_nan:
                return f"{table}: {name} of row {row} is {old}, and {new} the second time"
    return f"{table}: the same values in other bytes"


def _values(table: pa.Table, name: str) -> list[Any]:
    """Return a column of an Arrow table; all None for a column that the run left out."""
    return table[name].to_pylist() if name in table.column_names else [None] * table.num_rows

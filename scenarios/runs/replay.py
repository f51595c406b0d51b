"""Does a run come out the same again? Its scenario is run once more, and the tables are compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from analysis.results.sources import RunFolder
from netsim.simulation import BY_EVENTS, Simulation
from scenarios.runs.folders import SCENARIO, not_a_run, read_beginning, read_ending, read_summary
from scenarios.runs.own_code import changes, latest
from scenarios.runs.reading import load
from scenarios.runs.run import run
from scenarios.runs.scratch import temporary_folder
from scenarios.runs.unfinished import INTERRUPTED
from scenarios.schema.errors import UserError
from scenarios.schema.scenario import Scenario

WHAT_IFS = "what_ifs.parquet"
"""Table that `netsim stragglers` adds to the folder of a run."""


def read_finished(folder: Path) -> Scenario:
    """The scenario of the run in `folder`; raises UserError where there is none that came to its end."""
    if not folder.is_dir() or read_beginning(folder) is None:
        raise not_a_run(folder)
    if read_ending(folder) in (None, INTERRUPTED):
        raise UserError(f"{folder}: the run has not come to its end; netsim resume {folder} goes on with it")
    damages = RunFolder(folder).damages()
    if damages:
        raise UserError("\n".join(damages))
    return load(str(folder / SCENARIO))


def replay(folder: Path, *, after_round: Callable[[Simulation], None] | None = None) -> list[str]:
    """Run the run in `folder` again, elsewhere, and say what is different: nothing, if the list is empty.

    Every table is compared byte for byte, and where it differs, value for value; so are the versions the run was made with.
    Raises UserError, also for a run that ended by a limit of its events, which is not kept.
    """
    scenario = read_finished(folder)
    if read_ending(folder) == BY_EVENTS:
        why = "ended by --event-limit, after events that nobody counted"
        raise UserError(f"{folder}: {why}; run it again without, and replay that")
    with temporary_folder() as scratch:
        again = scratch / "run"
        try:
            summary = run(scenario, again, after_round=after_round)
        except UserError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            # That folder is gone as this is read.
            reason = error.__cause__.strerror or error.__cause__
            where = f"cannot be run again in {scratch.parent} ({reason})"
            raise UserError(f"{where}; make room there, or name another folder in TMPDIR, and try again") from error
        if summary["ended"] == INTERRUPTED:
            raise KeyboardInterrupt
        # What later commands found out about the run is not the run's.
        tables = sorted({file.name for place in (folder, again) for file in place.glob("*.parquet")} - {WHAT_IFS})
        different = [told for name in tables if (told := _difference(folder / name, again / name)) is not None]
    first = read_summary(folder)
    before = first["versions"]
    code = changes(latest(first.get("own_code", [])), latest(summary["own_code"]))
    now: dict[str, Any] = summary["versions"]
    changed = [f"{name} {before.get(name)}, now {now[name]}" for name in now if before.get(name) != now[name]]
    if different and code:
        different.append(f"made with other code of your own: {', '.join(code)}")
    return different + ([f"made with other versions: {'; '.join(changed)}"] if different and changed else [])


def _difference(before: Path, now: Path) -> str | None:
    """Return the difference of a table in a line, or None."""
    if not (before.is_file() and now.is_file()):
        return f"{before.name}: is only in the {'first' if before.is_file() else 'second'} run"
    if before.read_bytes() == now.read_bytes():
        return None
    first, second = pq.read_table(before), pq.read_table(now)
    if first.num_rows != second.num_rows:
        return f"{before.name}: {first.num_rows} rows, and {second.num_rows} the second time"
    for name in dict.fromkeys([*first.schema.names, *second.schema.names]):
        here, there = _values(first, name), _values(second, name)
        values = zip(here, there, strict=True)
        # Of no number, NaN, one is the other.
        row = next((i for i, (a, b) in enumerate(values) if a != b and (a == a or b == b)), None)
        if row is not None:
            return f"{before.name}: {name} of row {row} is {here[row]}, and {there[row]} the second time"
    return f"{before.name}: the same values in other bytes"


def _values(table: Any, name: str) -> list[Any]:
    """Return a column of an Arrow table; all None for a column that the run left out."""
    return table[name].to_pylist() if name in table.column_names else [None] * table.num_rows

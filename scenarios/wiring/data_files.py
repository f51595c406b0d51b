"""Data files that a scenario names: a user's, or one of the library."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path

from models.data_files import csv_rows, lines_of
from scenarios.schema.errors import UserError

LIBRARY = Path(__file__).parents[1] / "library"


def data_file(path: str) -> Path:
    """Return the path of a data file: `path`, or, if no file is there and it is a bare name, the library file of that name."""
    file = Path(path)
    # Not Path.is_file, which raises OSError for a name that is too long.
    if os.path.isfile(file) or file.parent != Path():
        return file
    return next((shipped for shipped in sorted(LIBRARY.rglob("*")) if shipped.name == file.name), file)


def read_table(path: str, columns: Sequence[str], key: str) -> list[tuple[str, list[str]]]:
    """Return the lines of a CSV file with exactly these columns: the location of each line, for messages, and its values.

    The columns may stand in any order in the file. `key`: key of the scenario that names the file. Raises UserError.
    """
    file = data_file(path)
    try:
        numbered_rows = csv_rows(lines_of(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{key} = {path!r}: cannot be read as a text file ({error})") from error
    rows = []
    for number, cells in numbered_rows:
        row = [cell.strip() for cell in cells]
        if any(row) and not row[0].startswith("#"):
            rows.append((number, row))
    names = ", ".join(columns)
    header = rows[0][1] if rows else []
    if sorted(header) != sorted(columns):
        raise UserError(f"{key} = {path!r}: must begin with a line of the column names {names}")
    indexes = [header.index(name) for name in columns]
    lines = []
    for number, row in rows[1:]:
        where = f"{key}: {file}, line {number}"
        if len(row) != len(columns) or not all(row):
            raise UserError(f"{where}: must have a value for each of {names}")
        lines.append((where, [row[index] for index in indexes]))
    return lines

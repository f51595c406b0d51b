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
    """Return the path of the file; if there is none at `path` and it is a bare name, that of the library file of this name."""
    place = Path(path)
    # Of a name that no file can have, such as one too long, Path.is_file would raise.
    if not os.path.isfile(place) and place.parent == Path():
        return next((file for file in sorted(LIBRARY.rglob("*")) if file.name == place.name), place)
    return place


def read_table(path: str, columns: Sequence[str], key: str) -> list[tuple[str, list[str]]]:
    """Return the lines of a CSV file with exactly these columns: the place of each line, for messages, and its values.

    `key`: key of the scenario that names the file. Raises UserError.
    """
    place = data_file(path)
    try:
        found = csv_rows(lines_of(place))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{key} = {path!r}: cannot be read as a text file ({error})") from error
    cells = ((number, [cell.strip() for cell in row]) for number, row in found)
    rows = [(number, row) for number, row in cells if any(row) and not row[0].startswith("#")]
    wanted = ", ".join(columns)
    if not rows or sorted(rows[0][1]) != sorted(columns):
        raise UserError(f"{key} = {path!r}: must begin with a line of the column names {wanted}")
    places = [rows[0][1].index(name) for name in columns]
    lines = []
    for number, row in rows[1:]:
        where = f"{key}: {place}, line {number}"
        if len(row) != len(columns) or not all(row):
            raise UserError(f"{where}: must have a value for each of {wanted}")
        lines.append((where, [row[n] for n in places]))
    return lines

"""Readers of the files that a user names: regular files only, of a size that fits into memory, with errors that name the fault.

Callers catch OSError, UnicodeDecodeError and csv.Error, and name the key and the file.
"""

from __future__ import annotations

import csv
import errno
import os
import stat
from pathlib import Path
from typing import NamedTuple

MOST_BYTES = 1 << 31
"""Size above which files are refused before they are read."""


def refuse_special(path: str | Path) -> int:
    """Return the size of a regular file. Raises OSError for a folder, a device or a pipe."""
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "its name holds a NUL character")
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return status.st_size


def bytes_of(path: str | Path) -> bytes:
    """Return the content of a regular file. Raises OSError for a folder, a device, a pipe, or a file that is too large."""
    size = refuse_special(path)
    if size > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it has {size} bytes, more than {MOST_BYTES}")
    return Path(path).read_bytes()


def text_of(path: str | Path) -> str:
    """Return the text of a file in UTF-8, without a byte order mark.

    Raises OSError for a file that cannot be read (`bytes_of`), and UnicodeDecodeError.
    """
    return bytes_of(path).decode("utf-8-sig")


def lines_of(path: str | Path) -> list[str]:
    """Return the lines of a text file. Raises OSError and UnicodeDecodeError (`text_of`)."""
    return text_of(path).splitlines()


_OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs"}


def refuse_other_separator(lines: list[str]) -> None:
    """Raise csv.Error if the first line that is no comment has no comma but another separator, as spreadsheets may write."""
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        for sign, name in _OTHER_SEPARATORS.items():
            if sign in line and "," not in line:
                raise csv.Error(f"line {number}: its values are separated by {name}; separate them by commas")
        return


class CsvRow(NamedTuple):
    """Row of a CSV file; without cells if its line is blank."""

    line: int
    """Number of its line in the file, from 1."""
    cells: list[str]


def csv_rows(lines: list[str]) -> list[CsvRow]:
    """Return the rows of a CSV file, the header among them. Raises csv.Error, which names the line."""
    refuse_other_separator(lines)
    reader = csv.reader(lines)
    try:
        return [CsvRow(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise csv.Error(f"line {reader.line_num}: {error}") from None

"""Readers of files of presence: text, never a pickle; refusals name file and line."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.data_files import bytes_of, refuse_other_separator
from models.errors import ParameterError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

PARAMETER = "path"
"""Name of the parameter that holds the path of a file."""
COLUMNS = (["client", "start_s", "end_s"], ["client", "on_s", "off_s"])
"""The two headers that a file of intervals may have."""
CONVERT = "python -c \"import json, pickle; json.dump(pickle.load(open('TABLE', 'rb')), open('TABLE.json', 'w'))\""
"""Command that converts a pickle to JSON."""
# Pickles of protocol 2 and later begin with PROTO and a version; older ones with a dict, a list or a tuple that is stored or
# filled next, or with a class. No CSV or JSON text begins like this.
_PICKLE = re.compile(rb"\x80[\x02-\x0f]|\([dltIL]|[}\])][qr(]|c[A-Za-z_.]+\n[A-Za-z_.]+\n[pq(]")
_JSON = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_SHOWN = 60
"""Letters of a bad line that a message quotes."""


class Intervals(NamedTuple):
    """Intervals in which clients are present, one client after the other, each in order of time."""

    clients: IntArray
    """(n,) client of each interval."""
    starts: FloatArray
    """(n,) seconds."""
    ends: FloatArray
    """(n,) seconds; inf: it never ends."""


def make_refusal(path: str, reason: str) -> ParameterError:
    """Return the error that refuses the file at `path` for `reason`."""
    return ParameterError(PARAMETER, path, reason)


def read_text(path: str) -> str:
    """Return the text of a UTF-8 file. Raises ParameterError if it cannot be read, or is a pickle of any name."""
    try:
        data = bytes_of(path)
        if _PICKLE.match(data):
            raise make_refusal(path, f"is a pickle, which can run any code as it is read; if you trust it, convert it: {CONVERT}")
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise make_refusal(path, f"cannot be read as a text file ({error})") from None


def read_intervals(path: str, clients: int, repeat_s: float) -> Intervals:
    """Return the intervals of a CSV file for `clients` (their number); `repeat_s`: period of the file, or inf.

    Raises:
        ParameterError: a line is not "client, start, end", a client's intervals overlap or are not in order of time, or one ends
            after `repeat_s`.
    """
    lines = read_text(path).splitlines()
    try:
        refuse_other_separator(lines)
        header = [name.strip() for name in next(csv.reader(lines[:1]), [])]
    except csv.Error as error:
        problem = str(error) if str(error).startswith("line") else f"line 1: {error}"
        raise make_refusal(path, problem) from None
    if header not in COLUMNS:
        raise make_refusal(path, f"line 1: the columns are {header!r}; must be client, start_s, end_s")
    numbers = np.array([i for i, line in enumerate(lines, 1) if i > 1 and line.strip()], np.int64)
    table = _numbers(path, lines, numbers)
    client_of, starts, ends = table[:, 0], table[:, 1], table[:, 2]
    first, second = header[1:]

    def check(good: NDArray[np.bool_], describe: Callable[[int], str]) -> None:
        """Refuse the file unless all rows are `good` (n,); `describe` says what is wrong with a row."""
        if not good.all():
            row = int(np.argmin(good))
            raise make_refusal(path, f"line {numbers[row]}: {describe(row)}")

    def describe_times(row: int) -> str:
        """Return the times of a row in words."""
        return f"{first} = {float(starts[row])!r}, {second} = {float(ends[row])!r}"

    is_whole = np.isfinite(client_of) & (client_of == np.floor(client_of))
    check(is_whole, lambda row: f"client = {float(client_of[row])!r}: must be a whole number")
    check((client_of >= 0) & (client_of < clients), lambda row: f"client = {int(client_of[row])}: must lie in 0..{clients - 1}")
    check((starts >= 0) & (starts < ends), lambda row: f"{describe_times(row)}: must be 0 <= {first} < {second}")
    if repeat_s < np.inf:
        check(ends <= repeat_s, lambda row: f"{describe_times(row)}: must end by repeat_s = {repeat_s!r}")
    # Sort by client, each in the order of its lines. Of several bad lines the message names the first in the file.
    order = np.argsort(client_of, kind="stable")
    sorted_clients, starts, ends = client_of[order].astype(np.int64), starts[order], ends[order]
    same_client = sorted_clients[1:] == sorted_clients[:-1]
    overlapping = np.flatnonzero(same_client & (starts[1:] < ends[:-1])) + 1
    if overlapping.size:
        j = int(overlapping[np.argmin(order[overlapping])])
        last = f"{float(ends[j - 1])!r}, where client {sorted_clients[j]}'s last interval ends"
        raise make_refusal(path, f"line {numbers[order[j]]}: {first} = {float(starts[j])!r}: must be >= {last}")
    return Intervals(sorted_clients, starts, ends)


def _numbers(path: str, lines: list[str], numbers: IntArray) -> FloatArray:
    """Return the lines with these `numbers` (n,), from 1, as a table (n, 3). Raises ParameterError for the first bad line."""
    chosen = [lines[number - 1] for number in numbers.tolist()]
    # Fast path: it reads the same numbers as the loop below, but does not tell which line is bad.
    try:
        if chosen:
            table = np.loadtxt(chosen, delimiter=",", comments=None, quotechar='"', ndmin=2)
            if table.shape == (len(chosen), 3):
                return np.asarray(table, np.float64)
    except ValueError:
        pass  # the loop below finds the line
    table = np.empty((len(chosen), 3))
    for row, (number, line) in enumerate(zip(numbers.tolist(), chosen, strict=True)):
        try:
            table[row] = [float(cell) for cell in next(csv.reader([line]))]
        except (ValueError, csv.Error):  # csv.Error: a cell is longer than the reader allows
            shown = line if len(line) <= _SHOWN else f"{line[:_SHOWN]}.."
            raise make_refusal(path, f"line {number}: {shown!r} is not a client number and two times in seconds") from None
    return table


def json_entries(path: str, kind: type[list[Any]] | type[dict[str, Any]], what: str) -> Iterator[tuple[str, Any, int]]:
    """Yield (key, value, line) for each entry of a JSON file that holds a list (key "") or an object, as `kind` says.

    The text is decoded entry by entry, so that errors of the content can name the line; the json module decodes the values.
    `what` describes the expected content in messages.

    Raises:
        ParameterError: the file is no such JSON, or cannot be read.
    """
    text = read_text(path)
    opening, closing = ("[", "]") if kind is list else ("{", "}")
    # `at`: present place in the text; `line`: line of the present entry; `counted`: place up to which line breaks are counted.
    at, line, counted = _SPACE.match(text).end(), 1, 0  # type: ignore[union-attr]
    if text[at : at + 1] != opening:
        raise make_refusal(path, f"line {text.count(chr(10), 0, at) + 1}: must be JSON, {what}")

    def token(at: int, allowed: str) -> tuple[str, int]:
        """Return the next sign from `at` on, which must be in `allowed`, and the place of what follows it; blanks are skipped."""
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        sign = text[at : at + 1]
        if not sign or sign not in allowed:
            raise json.JSONDecodeError(f"expecting {' or '.join(allowed)}", text, at)
        return sign, _SPACE.match(text, at + 1).end()  # type: ignore[union-attr]

    try:
        _, at = token(at, opening)
        if text[at : at + 1] == closing:
            at += 1
        else:
            separator = ","
            while separator == ",":
                line, counted, key = line + text.count("\n", counted, at), at, ""
                if kind is dict:
                    key, at = _JSON.raw_decode(text, at)
                    if not isinstance(key, str):
                        raise json.JSONDecodeError("expecting a name in quotes", text, at)
                    _, at = token(at, ":")
                value, at = _JSON.raw_decode(text, at)
                yield key, value, line
                separator, at = token(at, f",{closing}")
        if at < len(text.rstrip()):
            raise json.JSONDecodeError("nothing may follow", text, at)
    except json.JSONDecodeError as error:
        raise make_refusal(path, f"line {error.lineno}: is not JSON ({error.msg}); must be {what}") from None
    except RecursionError:
        raise make_refusal(path, f"line {line}: is nested too deeply; must be {what}") from None


def numbers_only(value: Any) -> bool:
    """Return True if a JSON value is a list of numbers that a float can hold; True and False are no numbers."""
    if not isinstance(value, list) or not set(map(type, value)) <= {int, float}:
        return False
    return all(-1e300 < entry < 1e300 for entry in value)


def read_times(value: Any) -> FloatArray | None:
    """Return a JSON list of numbers as an array (n,), each finite and >= 0; None for any other value."""
    if not numbers_only(value):
        return None
    times = np.array(value, np.float64)
    return times if bool((times >= 0).all()) else None

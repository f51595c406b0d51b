"""Readers of files of measured bandwidth: steps in CSV, and the packet-delivery format of Mahimahi."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from models.data_files import CsvRow, csv_rows, lines_of
from models.errors import ParameterError
from models.laws.delays import FloatArray, IntArray, explain_bad_rate

CLIENT = "{client}"
"""Placeholder for the number of a client in the name of a file."""
_MS = 1e-3


@dataclass(frozen=True)
class Points:
    """Steps of a trace: `bytes_per_s[j]` from `time_s[j]` on; `time_s[0]` is 0, the last step ends at `end_s`."""

    time_s: FloatArray
    bytes_per_s: FloatArray
    end_s: float


class ClientTraces(NamedTuple):
    """Traces of all clients."""

    traces: list[Points]
    trace_of: IntArray | None
    """(K,) number of the trace that each client follows; None: all follow the only one."""


def read_step_files(
    *, path: str | None, time_s: list[float] | None, bytes_per_s: list[float] | None, end_s: float | None, clients: int
) -> ClientTraces:
    """Return the traces of `clients` (their number) from a file, a file for each client, or two lists; see `Trace`.

    `end_s`: end of every trace; None: the last step is as long as the one before it. Raises ParameterError that names file and
    line, or the parameter.
    """
    if (path is None) == (time_s is None):
        raise ParameterError("path", path, "give either path, or time_s and bytes_per_s")
    if (time_s is None) != (bytes_per_s is None):
        raise ParameterError("bytes_per_s", bytes_per_s, "must be given with time_s, a rate for each time, and not with path")
    if end_s is not None and not 0.0 < end_s < math.inf:
        raise ParameterError("end_s", end_s, "must be finite and > 0 seconds")
    if path is None:
        assert time_s is not None
        assert bytes_per_s is not None
        return ClientTraces([_points_of_lists(time_s, bytes_per_s, end_s)], trace_of=None)
    if CLIENT in path:
        # A file for each client, without a column of clients.
        own = [_points(name, _read_steps(name, None)[None], end_s) for name in _client_paths(path, clients)]
        return ClientTraces(own, trace_of=np.arange(clients))
    by_client = _read_steps(path, clients)
    if None in by_client:
        return ClientTraces([_points(path, by_client[None], end_s)], trace_of=None)
    for client in range(clients):
        if client not in by_client:
            raise ParameterError("path", path, f"has no line of client {client}; give every client a trace")
    return ClientTraces([_points(path, by_client[client], end_s) for client in range(clients)], trace_of=np.arange(clients))


def read_packet_files(*, path: str, packet_bytes: float, clients: int) -> ClientTraces:
    """Return the traces of `clients` (their number) from files of Mahimahi's format, with packets of `packet_bytes`."""
    if not 0.0 < packet_bytes < math.inf:
        raise ParameterError("packet_bytes", packet_bytes, "must be finite and > 0 bytes")
    if CLIENT in path:
        own = [_read_packets(name, packet_bytes) for name in _client_paths(path, clients)]
        return ClientTraces(own, trace_of=np.arange(clients))
    return ClientTraces([_read_packets(path, packet_bytes)], trace_of=None)


def _client_paths(path: str, clients: int) -> list[str]:
    """Return the names of the clients' own files."""
    return [path.replace(CLIENT, str(client)) for client in range(clients)]


def _lines(path: str) -> list[str]:
    """Return the lines of a file. Raises ParameterError if it cannot be read."""
    try:
        return lines_of(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError("path", path, f"cannot be read as a text file ({error})") from None


def _rows(path: str) -> list[CsvRow]:
    """Return the rows of a CSV file. Raises ParameterError if it cannot be read."""
    try:
        return csv_rows(_lines(path))
    except csv.Error as error:
        raise ParameterError("path", path, f"cannot be read as a CSV file ({error})") from None


@dataclass
class _StepLines:
    """Lines of a file that belong to one trace."""

    times_s: list[float]
    bytes_per_s: list[float]
    last_line: int
    """Number of the last line, which messages name."""


def _read_steps(path: str, clients: int | None) -> dict[int | None, _StepLines]:
    """Return the lines of each client by its number; at the key None those of a file without a column of clients.

    `clients` is K; None: the file must not have a column of clients. Raises ParameterError that names file and line.
    """
    rows = _rows(path)
    header = [name.strip() for name in rows[0].cells] if rows else []
    required = {"time_s", "bytes_per_s"}
    allowed, names = required, "time_s, bytes_per_s"
    if clients is not None:
        allowed, names = required | {"client"}, f"{names}, and client where clients differ"
    has_duplicates = len(set(header)) < len(header)
    if not required <= set(header) <= allowed or has_duplicates:
        columns = ", ".join(header) or "missing"
        raise ParameterError("path", path, f"line 1: the columns are {columns}; must be {names}")
    time_column, rate_column = header.index("time_s"), header.index("bytes_per_s")
    client_column = header.index("client") if "client" in header else None
    steps: dict[int | None, _StepLines] = {}
    for number, cells in rows[1:]:
        if not cells:
            continue
        if len(cells) > len(header):
            problem = f"{','.join(cells)!r} has {len(cells)} values for {len(header)} columns"
            raise ParameterError("path", path, f"line {number}: {problem}; write numbers without commas")
        try:
            time, rate = float(cells[time_column]), float(cells[rate_column])
            client = None if client_column is None else int(cells[client_column])
        except (ValueError, IndexError):
            expected = "a time and a rate" + ("" if client_column is None else " of a client")
            raise ParameterError("path", path, f"line {number}: {','.join(cells)!r} is not {expected}") from None
        if client is not None and not 0 <= client < (clients or 0):
            raise ParameterError("path", path, f"line {number}: client = {client}: must lie in 0..{(clients or 0) - 1}")
        reason = explain_bad_rate(rate)
        if reason is not None:
            raise ParameterError("path", path, f"line {number}: bytes_per_s = {rate!r}: {reason}")
        trace = steps.setdefault(client, _StepLines(times_s=[], bytes_per_s=[], last_line=0))
        if not trace.times_s and time != 0.0:
            raise ParameterError("path", path, f"line {number}: time_s = {time!r}: the first line of a trace must be at 0")
        if trace.times_s and not trace.times_s[-1] < time < math.inf:
            before = f"{trace.times_s[-1]!r}, that of line {trace.last_line}"
            raise ParameterError("path", path, f"line {number}: time_s = {time!r}: must be finite and > {before}")
        trace.times_s.append(time)
        trace.bytes_per_s.append(rate)
        trace.last_line = number
    if not steps:
        raise ParameterError("path", path, "holds no steps; must hold at least one line below the header")
    return steps


def _points(path: str, lines: _StepLines, end_s: float | None) -> Points:
    """Return the trace of `lines`, which were read from `path`. Raises ParameterError for an `end_s` before its last line."""
    last_s = lines.times_s[-1]
    if end_s is not None and end_s <= last_s:
        raise ParameterError("end_s", end_s, f"must be > {last_s!r}, the time of line {lines.last_line} of {path}")
    return _trace_of(np.array(lines.times_s), np.array(lines.bytes_per_s), end_s)


def _points_of_lists(times: list[float], rates: list[float], end_s: float | None) -> Points:
    """Return the steps of a trace given as lists. Raises ParameterError that names the parameter."""
    if len(times) != len(rates):
        raise ParameterError("bytes_per_s", rates, f"must have {len(times)} numbers, one for each of time_s")
    if not times or times[0] != 0.0:
        raise ParameterError("time_s", times, "must hold at least one time, and begin with 0")
    for j, (time, rate) in enumerate(zip(times, rates, strict=True)):
        if not math.isfinite(time) or (j and time <= times[j - 1]):
            raise ParameterError("time_s", times, f"{time!r} must be finite and come after {times[j - 1]!r}")
        reason = explain_bad_rate(rate)
        if reason is not None:
            raise ParameterError("bytes_per_s", rates, f"{rate!r} {reason}")
    if end_s is not None and end_s <= times[-1]:
        raise ParameterError("end_s", end_s, f"must be > {times[-1]!r}, the last of time_s")
    if not any(rates):
        raise ParameterError("bytes_per_s", rates, "carry nothing; give at least one above 0")
    return _trace_of(np.array(times, np.float64), np.array(rates, np.float64), end_s)


def _trace_of(times: FloatArray, rates: FloatArray, end_s: float | None) -> Points:
    """Return a trace of these steps, with equal neighbours merged.

    Without `end_s` the last step is as long as the one before.
    """
    if end_s is None:
        # A single step is the whole trace; its length does not matter.
        end_s = float(times[-1] + (times[-1] - times[-2])) if len(times) > 1 else 1.0
    differs_from_previous = np.append(True, rates[1:] != rates[:-1])
    return Points(times[differs_from_previous], rates[differs_from_previous], end_s)


_MOST_DIGITS = 18
"""Digits of a line beyond which it is refused without being read as a number: `int` refuses thousands of digits."""


def _read_packets(path: str, packet_bytes: float) -> Points:
    """Return the trace of a file of Mahimahi's format. Raises ParameterError that names file and line."""
    stamps: list[int] = []
    for number, line in enumerate(_lines(path), start=1):
        text = line.strip()
        if not text:
            continue
        if not (text.isascii() and text.isdigit()):
            raise ParameterError("path", path, f"line {number}: {text!r} is not a whole number of milliseconds")
        if len(text) > _MOST_DIGITS:
            raise ParameterError("path", path, f"line {number}: {text[:20]}.. ms: must be at most 10^9, eleven days")
        stamp = int(text)
        if stamps and stamp < stamps[-1]:
            raise ParameterError("path", path, f"line {number}: {stamp} ms: must be >= {stamps[-1]}, the line before")
        if stamp > 10**9:
            raise ParameterError("path", path, f"line {number}: {stamp} ms: must be at most 10^9, eleven days")
        stamps.append(stamp)
    if not stamps or not stamps[-1]:
        raise ParameterError("path", path, "holds no packets after 0 ms; must end with a line above 0")
    # A line at t ms is a packet in millisecond t - 1, from t - 1 to t. Only milliseconds in which packets pass, and those after
    # them, begin a step.
    with_packets, packets = np.unique(np.maximum(np.array(stamps) - 1, 0), return_counts=True)
    steps = np.unique(np.concatenate(([0], with_packets, with_packets + 1)))
    steps = steps[steps < stamps[-1]]
    rates = np.zeros(len(steps))
    rates[np.searchsorted(steps, with_packets)] = packets * packet_bytes / _MS
    return _trace_of(steps * _MS, rates, stamps[-1] * _MS)

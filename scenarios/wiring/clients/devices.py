"""The device table of a scenario, `clients.devices`: abilities of classes of clients, or single clients, from a CSV file.

Its columns fill keys of the scenario, and its classes are the groups.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.data_files import csv_rows, lines_of
from scenarios.schema.errors import UserError, did_you_mean
from scenarios.schema.per_client import ByGroup
from scenarios.schema.scenario import Scenario
from scenarios.schema.section import Tables
from scenarios.schema.world import SPEEDS, VaryingLink
from scenarios.wiring.data_files import data_file

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
KEYS = {
    "samples_per_s": "compute.samples_per_s",
    "down_bytes_per_s": "downlink.bandwidth_bytes_per_s",
    "up_bytes_per_s": "uplink.bandwidth_bytes_per_s",
    "idle_w": "energy.idle_w",
    "compute_w": "energy.compute_w",
    "send_w": "energy.send_w",
    "receive_w": "energy.receive_w",
    "battery_j": "energy.battery.capacity_j",
}
"""Key of the scenario that each column of numbers fills."""
_POSITIVE = ("samples_per_s", "down_bytes_per_s", "up_bytes_per_s", "battery_j", "share")
_ROW_COLUMNS = ("class", "share", "client")


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    line: int
    """Its number in the file."""
    name: str
    """The class; "" where the table has no column of that name."""
    client: int
    """Number of the client; -1 where the table has no column of that name."""
    share: float
    """Share of all clients; NaN where the table has no column of that name."""
    numbers: tuple[float, ...]
    """Abilities, in the order of `Devices.columns`."""


@dataclass(frozen=True)
class Devices:
    """A device table: a line for each class, or one for each client."""

    path: Path
    by_client: bool
    columns: tuple[str, ...]
    """Columns of numbers, in the order of `Row.numbers`."""
    rows: tuple[Row, ...]

    def shares(self) -> dict[str, float]:
        """Return the share of each class, in the order of the file; NaN where the table has none."""
        return {row.name: row.share for row in self.rows}

    def refusal(self, row: Row, text: str) -> UserError:
        """Return the error that refuses a line, for the caller to raise."""
        return UserError(f"clients.devices: {self.path}, line {row.line}: {text}")

    def members(self, count: int) -> dict[str, IntArray]:
        """Return the clients of each class, from a table with one line for each client; raises UserError.

        A table without classes has one class, "all".
        """
        line_counts = Counter(row.client for row in self.rows)
        for row in self.rows:
            if row.client >= count:
                raise self.refusal(row, f"client = {row.client}: must be below clients.count = {count}")
            if (times := line_counts[row.client]) > 1:
                raise self.refusal(row, f"client = {row.client}: is there {times} times; give each client one line")
        if len(line_counts) < count:
            absent = next(client for client in range(count) if client not in line_counts)
            raise UserError(f"clients.devices: {self.path}: has no line for client {absent}; give each of {count} clients one")
        classes: dict[str, list[int]] = {}
        for row in self.rows:
            classes.setdefault(row.name or "all", []).append(row.client)
        return {name: np.array(sorted(clients), np.int64) for name, clients in classes.items()}

    def values(self) -> Tables:
        """Return the values of each key: numbers by class, or, with a line for each client, an array (K,)."""
        columns = list(zip(*(row.numbers for row in self.rows), strict=True))
        filled: Tables = {}
        for name, numbers in zip(self.columns, columns, strict=True):
            if self.by_client:
                array: FloatArray = np.empty(len(self.rows))
                array[[row.client for row in self.rows]] = numbers
                filled[KEYS[name]] = array
            else:
                by_class = {row.name: number for row, number in zip(self.rows, numbers, strict=True)}
                filled[KEYS[name]] = ByGroup(by_group=by_class)
        return filled


def read_devices(path: str) -> Devices:
    """Return the table in a file; raises UserError that names the file and the line."""
    file = data_file(path)
    try:
        numbered_rows = csv_rows(lines_of(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"clients.devices = {path!r}: cannot be read as a text file ({error})") from error
    rows = []
    for line, cells in numbered_rows:
        row = [cell.strip() for cell in cells]
        if any(row) and not row[0].startswith("#"):
            rows.append((line, row))
    if len(rows) < 2:
        raise UserError(f"clients.devices = {path!r}: must hold a line of column names and at least one of a class or a client")
    header_line, header = rows[0]
    _check_header(file, header_line, header)
    for line, row in rows[1:]:
        if len(row) > len(header):
            problem = f"has {len(row)} values for {len(header)} columns; write numbers without commas, or leave the last ones out"
            raise UserError(f"clients.devices: {file}, line {line}: {problem}")
    # A line with fewer values than columns is refused by `_row`.
    checked_rows = tuple(_row(file, line, dict(zip(header, row, strict=False)), header) for line, row in rows[1:])
    columns = tuple(name for name in header if name in KEYS)
    table = Devices(path=file, by_client="client" in header, columns=columns, rows=checked_rows)
    if not table.by_client:
        _check_classes(table)
    return table


def _check_header(file: Path, line: int, header: list[str]) -> None:
    """Raise UserError for unknown or repeated columns, and for columns that do not go together."""
    where = f"clients.devices: {file}, line {line}"
    for i, name in enumerate(header):
        if name not in (*_ROW_COLUMNS, *KEYS):
            raise UserError(f"{where}: unknown column {name!r}; {did_you_mean(name, (*_ROW_COLUMNS, *KEYS))}")
        if name in header[:i]:
            raise UserError(f"{where}: column {name!r} is there twice; leave one out")
    if "client" in header and "share" in header:
        raise UserError(f"{where}: give either client, a line for each, or share, a line for each class")
    if "client" not in header and "class" not in header:
        raise UserError(f"{where}: no column is class or client; name the class of each line, or its client")


def _row(file: Path, line: int, cells: Mapping[str, str], header: list[str]) -> Row:
    """Return a checked line of the device table; raises UserError."""
    where = f"clients.devices: {file}, line {line}"
    for name in header:
        if not cells.get(name):
            raise UserError(f"{where}: {name} is missing; give each line a value in every column, or leave the column out")
    if "client" in cells and not (cells["client"].isascii() and cells["client"].isdigit()):
        raise UserError(f"{where}: client = {cells['client']!r}: must be the number of a client, from 0")
    numbers = {name: _number(where, name, cells[name]) for name in header if name in KEYS or name == "share"}
    return Row(
        line=line,
        name=cells.get("class", ""),
        client=int(cells.get("client", -1)),
        share=numbers.pop("share", math.nan),
        numbers=tuple(numbers.values()),
    )


def _number(where: str, name: str, text: str) -> float:
    """Return the number in a cell; raises UserError."""
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"{where}: {name} = {text!r}: must be a number") from None
    is_allowed, allowed = (value > 0, "> 0") if name in _POSITIVE else (value >= 0, ">= 0")
    if not math.isfinite(value) or not is_allowed:
        raise UserError(f"{where}: {name} = {text}: must be finite and {allowed}")
    return value


def _check_classes(table: Devices) -> None:
    """Raise UserError for a class with two lines."""
    for i, row in enumerate(table.rows):
        if any(row.name == other.name for other in table.rows[:i]):
            raise table.refusal(row, f"class {row.name!r} is there twice; give each class one line, or a column client")


def fill_keys(scenario: Scenario, devices: Devices | None) -> Scenario:
    """Return the scenario with the columns of its device table in their keys, in place of earlier values.

    Columns of tables that the scenario does not have (`[energy]`, `[energy.battery]`) are ignored. Raises UserError if the
    scenario changes a law that a column replaces.
    """
    if devices is None:
        return scenario
    for key, value in devices.values().items():
        _refuse_changes(scenario, key)
        scenario = _replace_key(scenario, key.split("."), value)
    return scenario


def _refuse_changes(scenario: Scenario, key: str) -> None:
    """Raise UserError for a change of a bandwidth law that a column replaces. Changes of a speed are checked elsewhere."""
    section, _, name = key.rpartition(".")
    if name != "bandwidth_bytes_per_s":
        return
    link: VaryingLink = getattr(scenario, section)
    for i, change in enumerate(link.changes):
        if change.bandwidth:
            reason = f"clients.devices gives {key} in place of the law; change that, or leave the column out"
            raise UserError(f"{section}.changes.{i}.bandwidth = {change.bandwidth!r}: {reason}")


def _replace_key(section: Any, path: list[str], value: Any) -> Any:
    """Return the section with `value` at `path`; unchanged if a table on the path is absent."""
    name, *rest = path
    if rest:
        inner = getattr(section, name, None)
        return section if inner is None else section.model_copy(update={name: _replace_key(inner, rest, value)})
    # Remove the alternative keys for the same quantity.
    alternatives: tuple[str, ...] = ()
    if name == "bandwidth_bytes_per_s":
        alternatives = ("bandwidth",)
    elif name in SPEEDS:
        alternatives = (*SPEEDS, "flops_per_sample")
    return section.model_copy(update=dict.fromkeys(alternatives) | {name: value})

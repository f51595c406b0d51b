"""Recorded presence: on/off intervals from a CSV file, or times of toggling from a JSON file, with or without repetition.

From any file only the times of change of each client within one period are kept, one client after the other in one array. The
present place is found by bisection, so that a leap over a month costs as much as a leap over a minute. The base class of all
laws of presence is in `presence.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.laws.availability.files import Intervals, json_entries, make_refusal, numbers_only, read_intervals
from models.laws.availability.presence import BoolArray, Changes, Draws, Presence
from models.laws.delays import FloatArray, IntArray

_LONGEST_S = 1e100
"""Longest period: multiples of it are still finite."""
Absent = Annotated[
    Literal["never", "always"], Doc('Presence of clients that the file does not mention: "never" or "always".')
]
RepeatS = Annotated[
    float | None,
    Doc("Period in seconds with which the file repeats; every interval ends within it. Absent: no repetition."),
]


class ChangeTables(NamedTuple):
    """Times at which presence changes, one table after the other in one array.

    Table j holds the times `times[first[j]:first[j + 1]]`, ascending, each in [0, period of the table), in seconds.
    """

    times: FloatArray
    first: IntArray
    """(tables + 1,) place of the first time of each table, and the end of the last one."""
    wraps: BoolArray
    """(tables,) True where a client is present as a period begins: the first change ends an interval, else it begins one."""


class Recorded(Presence):
    """Base class of presence by tables of `changes`: client k follows table `table_of[k]`.

    `clients` is K. Table j repeats every `periods[j]` seconds; inf: no repetition.
    """

    state_fields: ClassVar[tuple[str, ...]] = ("_now_s",)

    def __init__(self, *, clients: int, changes: ChangeTables, periods: FloatArray, table_of: IntArray) -> None:
        super().__init__(clients)
        self._times, self._first, self._wraps = changes
        self._periods, self._table_of = periods, table_of
        self._restart()

    def _restart(self) -> None:
        """Set presence and next changes of all clients at the present time."""
        self._settle(np.arange(len(self.on)), self._now_s)

    def _settle(self, clients: IntArray, now: float | FloatArray) -> None:
        """Set presence and next changes of `clients` (n,) at time `now`, one for all or one for each."""
        table = self._table_of[clients]
        low, high, period = self._first[table], self._first[table + 1], self._periods[table]
        repeats = period < math.inf
        length = np.where(repeats, period, 1.0)
        cycle = np.floor(now / length)
        # The quotient may be rounded across a whole number: correct it so that cycle * length <= now < (cycle + 1) * length.
        cycle -= cycle * length > now
        cycle += (cycle + 1) * length <= now
        begins = np.where(repeats, cycle * length, 0.0)
        ends = np.where(repeats, (cycle + 1) * length, math.inf)

        def times_at(place: IntArray) -> FloatArray:
            """Return the times of the changes at places `place` (n,) in the present cycle."""
            # Without the minimum, rounding could put a change after the end of its period.
            return np.minimum(begins + self._times[np.minimum(place, len(self._times) - 1)], ends)

        # Bisection for all clients at once: `left` becomes the place of the first change after `now`.
        left, right = low.copy(), high.copy()
        undecided = left < right
        while undecided.any():
            middle = (left + right) // 2
            is_past = times_at(middle) <= now
            left = np.where(undecided & is_past, middle + 1, left)
            right = np.where(undecided & ~is_past, middle, right)
            undecided = left < right
        # Each change since the beginning of the period has flipped presence.
        changes = left - low
        self.on[clients] = self._wraps[table] ^ (changes % 2 == 1)
        # The first change of the next period, at most at the end of that period.
        first_time = self._times[np.minimum(low, len(self._times) - 1)]
        first_of_next = np.minimum(ends + first_time, (cycle + 2) * length)
        after_period = np.where(repeats & (high > low), first_of_next, math.inf)
        self.next_change_s[clients] = np.where(left < high, times_at(left), after_period)

    def forecast(self, from_s: float, to_s: float) -> FloatArray:
        """Return the exact share of the interval from the tables; (K,)."""
        if to_s <= from_s:
            return self.on.astype(np.float64)
        share: FloatArray = (self._present_s(to_s) - self._present_s(from_s)) / (to_s - from_s)
        # A difference of large sums may leave [0, 1] by rounding.
        return np.clip(share, 0.0, 1.0)

    def _present_s(self, until_s: float) -> FloatArray:
        """Return the seconds (K,) for which each client is present in [0, `until_s`]."""
        # First of each table, then of the table of each client.
        tables = np.arange(len(self._first) - 1)
        repeats = self._periods[tables] < math.inf
        # 0 stands for no period.
        period_s = np.where(repeats, self._periods[tables], 0.0)
        cycles = np.where(repeats, np.floor(until_s / np.where(repeats, period_s, 1.0)), 0.0)
        into_cycle_s = until_s - cycles * period_s
        # Whole cycles, and the part of the last one.
        of_tables = self._present_within(tables, into_cycle_s)
        of_tables += cycles * self._present_within(tables, period_s)
        of_clients: FloatArray = of_tables[self._table_of]
        return of_clients

    def _present_within(self, tables: IntArray, into_s: FloatArray) -> FloatArray:
        """Return the seconds (tables,) of presence in the first `into_s` (tables,) seconds of a period."""
        counts = np.diff(self._first)
        table_of_time = np.repeat(tables, counts)
        place = np.arange(len(table_of_time)) - self._first[table_of_time]
        # Changes after `into_s` are moved to it, where intervals of no length remain.
        times = np.minimum(self._times[: len(table_of_time)], into_s[table_of_time])
        # Presence is the sum of the ends less the sum of the beginnings; a table that wraps is present from 0.
        sign = np.where(self._wraps[table_of_time] ^ (place % 2 == 1), 1.0, -1.0)
        total: FloatArray = np.bincount(table_of_time, weights=sign * times, minlength=len(tables)).astype(np.float64)
        present_last = self._wraps ^ (counts % 2 == 1)
        return total + np.where(present_last, into_s, 0.0)

    def advance(self, now_s: float, draws: Draws) -> None:
        self._move_clock(now_s)
        due = self._due()
        if due.size:
            self._settle(due, now_s)

    def changes(self, now_s: float, draws: Draws) -> Changes:
        """Advance to `now_s`; yield (clients, times in s) of changes: first the next one of each client, then further ones."""
        self._move_clock(now_s)
        due = self._due()
        while due.size:
            times_s = self.next_change_s[due]
            self._settle(due, times_s)
            yield due, times_s
            due = due[self.next_change_s[due] <= now_s]

    def on_load(self) -> None:
        self._restart()


def merge_intervals(table_of: IntArray, starts: FloatArray, ends: FloatArray, periods: FloatArray) -> ChangeTables:
    """Return the times of change of intervals [start, end), which are sorted by table and time; all in seconds.

    `table_of` (n,): the table of each interval; `periods` (tables,). Intervals that touch are merged, also across the end of a
    period.
    """
    count = len(periods)
    wraps = np.zeros(count, np.bool_)
    # An end at the end of the period is the beginning of the next one. If an interval begins there, neither is a change.
    lasts_to_end = ends >= periods[table_of]
    wraps[table_of[lasts_to_end & (ends < math.inf)]] = True
    begins_at_zero = np.zeros(count, np.bool_)
    begins_at_zero[table_of[starts == 0.0]] = True
    touches_previous = np.zeros(len(table_of), np.bool_)
    touches_previous[1:] = (table_of[1:] == table_of[:-1]) & (starts[1:] == ends[:-1])
    arrives = ~touches_previous & ~((starts == 0.0) & wraps[table_of])
    touches_next = np.zeros(len(table_of), np.bool_)
    touches_next[:-1] = touches_previous[1:]
    departs = ~touches_next & ~lasts_to_end
    # A client that is present up to the end of a period, but not from its beginning, departs as the next period begins.
    depart_at_zero = np.flatnonzero(wraps & ~begins_at_zero)
    times = np.concatenate((starts[arrives], ends[departs], np.zeros(len(depart_at_zero))))
    tables = np.concatenate((table_of[arrives], table_of[departs], depart_at_zero))
    order = np.lexsort((times, tables))
    first = np.concatenate(([0], np.cumsum(np.bincount(tables, minlength=count)))).astype(np.int64)
    # Without any change one time stays, which no table holds: places beyond the end of the array are moved to its last entry.
    sorted_times = times[order] if len(times) else np.zeros(1)
    return ChangeTables(times=sorted_times, first=first, wraps=wraps)


class RecordedByClient(Recorded, ABC):
    """Base of presence by a file with the intervals of each client, in seconds. Subclasses read it, in `_read`."""

    def __init__(
        self,
        *,
        clients: int,
        path: Annotated[str, Doc("The file to read, with times in seconds.")],
        absent: Absent = "never",
        repeat_s: RepeatS = None,
    ) -> None:
        if absent not in ("never", "always"):
            raise ParameterError("absent", absent, "must be 'never' or 'always'")
        if repeat_s is not None and not 0 < repeat_s <= _LONGEST_S:
            raise ParameterError("repeat_s", repeat_s, f"must be > 0 and <= {_LONGEST_S:g} seconds")
        count, end_s = max(clients, 1), math.inf if repeat_s is None else repeat_s
        periods = np.full(count, end_s)
        intervals, mentioned = self._read(path, clients, end_s)
        changes = merge_intervals(intervals.clients, intervals.starts, intervals.ends, periods)
        # A table that wraps and has no changes is present throughout.
        always = (absent == "always") & ~mentioned
        changes = changes._replace(wraps=changes.wraps | always)
        super().__init__(clients=clients, changes=changes, periods=periods, table_of=np.arange(count))

    @abstractmethod
    def _read(self, path: str, clients: int, end_s: float) -> tuple[Intervals, BoolArray]:
        """Return the intervals of a file up to `end_s`, and True for the clients that it mentions; (max(`clients`, 1),).

        Raises ParameterError, with file and line, for any other content.
        """


class Trace(RecordedByClient):
    r"""Presence from a CSV file with the columns client, start_s, end_s: present from start_s until end_s, which may be `inf`.

    The intervals of a client are in order of time and do not overlap; intervals that touch are merged. The columns may also be
    called client, on_s, off_s.

    Raises:
        ParameterError: any other content of the file; file and line are named.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "presence.csv")
        ...     _ = path.write_text("client,start_s,end_s\n0,0,60\n1,30,inf\n")
        ...     law = Trace(clients=2, path=str(path))
        >>> law.on, law.next_change_s
        (array([ True, False]), array([60., 30.]))
    """

    def _read(self, path: str, clients: int, end_s: float) -> tuple[Intervals, BoolArray]:
        intervals = read_intervals(path, clients, end_s)
        return intervals, np.bincount(intervals.clients, minlength=max(clients, 1)) > 0


class Toggles(RecordedByClient):
    """Presence from a JSON file with one list for each client, [[0, 3600, 7200], [600, 900], ...]: the times at which it comes,
    goes, comes, and so on.

    Times ascend strictly. After an odd number of them the client stays (with `repeat_s`: to the end of the period). The file
    does not mention a client with `null`, nor the last clients if it has fewer lists.

    Raises:
        ParameterError: any other content of the file; file and line are named.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "presence.json")
        ...     _ = path.write_text("[[0, 60], [30]]")
        ...     law = Toggles(clients=2, path=str(path))
        >>> law.on, law.next_change_s
        (array([ True, False]), array([60., 30.]))
    """

    def _read(self, path: str, clients: int, end_s: float) -> tuple[Intervals, BoolArray]:
        """Pair the times at which each client comes with those at which it goes; without the latter it stays until `end_s`."""
        client_of, times, mentioned = _read_toggles(path, clients, end_s)
        # Times at even places are arrivals; the next time of the client, if there is one, is the departure.
        place = np.arange(len(client_of)) - np.searchsorted(client_of, client_of)
        arrivals = np.flatnonzero((place % 2 == 0) & (times < end_s))
        has_next = np.zeros(len(client_of), np.bool_)
        has_next[:-1] = client_of[1:] == client_of[:-1]
        next_times = np.append(times[1:], math.inf)[: len(times)]
        ends = np.where(has_next[arrivals], next_times[arrivals], end_s)
        return Intervals(clients=client_of[arrivals], starts=times[arrivals], ends=ends), mentioned


class _ToggleTimes(NamedTuple):
    """Times at which clients come or go, one client after the other, in seconds."""

    clients: IntArray
    """(n,)"""
    times: FloatArray
    """(n,)"""
    mentioned: BoolArray
    """(K,) True for clients that the file has a list for."""


def _read_toggles(path: str, clients: int, end_s: float) -> _ToggleTimes:
    """Return the toggles in a JSON file. Raises ParameterError that names file and line, also for times after `end_s`."""
    values: list[float] = []
    counts, lines = np.zeros(clients, np.int64), []
    mentioned = np.zeros(max(clients, 1), np.bool_)
    allowed = "must be a list of times in seconds, finite and >= 0, or null"
    for client, (_, value, line) in enumerate(json_entries(path, list, "a list with one list of times a client")):
        if client >= clients:
            raise make_refusal(path, f"line {line}: holds a list for client {client}; there are {clients} clients, from 0")
        mentioned[client] = value is not None
        lines.append(line)
        if value is not None:
            if not numbers_only(value):
                raise make_refusal(path, f"line {line}: client {client}: {allowed}")
            values += value
            counts[client] = len(value)
    client_of, times = np.repeat(np.arange(clients), counts), np.array(values, np.float64)

    def check(good: BoolArray, reason: Callable[[int], str]) -> None:
        """Refuse the file unless all times are `good` (n,); `reason` says what is wrong with time j."""
        if not good.all():
            j = int(np.argmin(good))
            raise make_refusal(path, f"line {lines[client_of[j]]}: client {client_of[j]}: {reason(j)}")

    check(np.isfinite(times) & (times >= 0), lambda j: allowed)
    ascends = np.ones(len(client_of), np.bool_)
    ascends[1:] = (client_of[1:] != client_of[:-1]) | (times[1:] > times[:-1])
    check(ascends, lambda j: f"{times[j]:g} stands after {times[j - 1]:g}; times must ascend")
    check(times <= end_s, lambda j: f"{times[j]:g} is after repeat_s = {end_s:g}")
    return _ToggleTimes(client_of, times, mentioned)

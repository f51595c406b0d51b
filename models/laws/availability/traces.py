"""Presence as recorded: on/off intervals from a CSV file, times of toggling from a JSON file, with or without repetition.

Whatever the file, all that is kept are each client's times of change within one period, one after the other in one array, and
where it stands in them. A change is found by bisection, so that a leap over a month costs what one over a minute does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.laws.availability.availability import BoolArray, Changes, Draws, Presence
from models.laws.availability.files import json_entries, numbers_only, read_intervals, refused
from models.laws.delays import FloatArray, IntArray

_LONGEST_S = 1e100
"""The longest period: multiples of it are still numbers."""
Absent = Annotated[
    Literal["never", "always"], Doc('What clients are of whom the file does not speak: "never" present, or "always".')
]
RepeatS = Annotated[
    float | None,
    Doc("Period in seconds with which all of it repeats; every interval ends within it. Absent: it happens once."),
]


class Recorded(Presence):
    """Presence by tables of times of change: client k goes by table `table_of[k]`.

    Table j holds the times `times[first[j]:first[j + 1]]`, ascending, each in [0, `periods[j]`), at which presence changes; the
    first of them begins an interval unless `wraps[j]`, where the client is present as a period begins. `periods[j]` inf: no
    repetition.
    """

    def __init__(
        self, *, clients: int, times: FloatArray, first: IntArray, periods: FloatArray, wraps: BoolArray, table_of: IntArray
    ) -> None:
        super().__init__(clients)
        self._times, self._first, self._periods, self._wraps = times, first, periods, wraps
        self._table_of = table_of
        self._restart()

    def _restart(self) -> None:
        self._settle(np.arange(len(self.on)), self._now_s)

    def _settle(self, who: IntArray, now: float | FloatArray) -> None:
        """Presence of clients `who` (n,) at the time `now`, one for all or one each, and their next changes."""
        table = self._table_of[who]
        low, high, period = self._first[table], self._first[table + 1], self._periods[table]
        repeats = period < math.inf
        length = np.where(repeats, period, 1.0)
        cycle = np.floor(now / length)
        # A quotient may be rounded across a whole number: what counts is where the products lie.
        cycle -= cycle * length > now
        cycle += (cycle + 1) * length <= now
        begins = np.where(repeats, cycle * length, 0.0)
        ends = np.where(repeats, (cycle + 1) * length, math.inf)

        def at(place: IntArray) -> FloatArray:
            # No change lies past its period's end by rounding.
            return np.minimum(begins + self._times[np.minimum(place, len(self._times) - 1)], ends)

        left, right = low.copy(), high.copy()
        while (open_ := left < right).any():
            middle = (left + right) // 2
            passed = open_ & (at(middle) <= now)
            left = np.where(passed, middle + 1, left)
            right = np.where(open_ & ~passed, middle, right)
        self.on[who] = self._wraps[table] ^ ((left - low) % 2 == 1)
        # The first change of the next period, held back to its end likewise.
        first = np.minimum(ends + self._times[np.minimum(low, len(self._times) - 1)], (cycle + 2) * length)
        again = np.where(repeats & (high > low), first, math.inf)
        self.next_change_s[who] = np.where(left < high, at(left), again)

    def forecast(self, from_s: float, to_s: float) -> FloatArray:
        """As of `Presence`, exactly: the tables say what will be."""
        if to_s <= from_s:
            return self.on.astype(np.float64)
        share: FloatArray = (self._present_s(to_s) - self._present_s(from_s)) / (to_s - from_s)
        # Differences of large sums: a share is one all the same.
        return np.clip(share, 0.0, 1.0)

    def _present_s(self, until_s: float) -> FloatArray:
        """(K,) how long each client is present in [0, `until_s`]."""
        tables = np.arange(len(self._first) - 1)
        period = self._periods[tables]
        repeats = period < math.inf
        cycles = np.where(repeats, np.floor(until_s / np.where(repeats, period, 1.0)), 0.0)
        into = until_s - cycles * np.where(repeats, period, 0.0)
        total = self._present_within(tables, into)
        total += cycles * self._present_within(tables, np.where(repeats, period, 0.0))
        each: FloatArray = total[self._table_of]
        return each

    def _present_within(self, tables: IntArray, into_s: FloatArray) -> FloatArray:
        """(tables,) how long presence lasts in the first `into_s` (tables,) seconds of a period."""
        count = np.diff(self._first)
        owner = np.repeat(tables, count)
        place = np.arange(len(owner)) - self._first[owner]
        times = np.minimum(self._times[: len(owner)], into_s[owner])
        # Presence ends at every other change, and begins at the others; a wrapping table is present from 0 on.
        sign = np.where(self._wraps[owner] ^ (place % 2 == 1), 1.0, -1.0)
        total: FloatArray = np.bincount(owner, weights=sign * times, minlength=len(tables)).astype(np.float64)
        present_last = self._wraps ^ (count % 2 == 1)
        return total + np.where(present_last, into_s, 0.0)

    def advance(self, now_s: float, draws: Draws) -> None:
        self._move_clock(now_s)
        due = self._due()
        if due.size:
            self._settle(due, now_s)

    def changes(self, now_s: float, draws: Draws) -> Changes:
        """As `advance`, change by change: who (n,) came or went, and when (n,); all that are due take a step at once."""
        self._move_clock(now_s)
        due = self._due()
        while due.size:
            times_s = self.next_change_s[due]
            self._settle(due, times_s)
            yield due, times_s
            due = due[self.next_change_s[due] <= now_s]

    def state_dict(self) -> dict[str, Any]:
        return {"now_s": self._now_s}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._now_s = float(state["now_s"])
        self._restart()


def tables_of(
    who: IntArray, starts: FloatArray, ends: FloatArray, periods: FloatArray
) -> tuple[FloatArray, IntArray, BoolArray]:
    """Times of change, where each table's begin, and which tables wrap, of intervals [start, end) that are sorted by table.

    `who` (n,): the table of each interval. Intervals that touch are one, also across the end of a period. `periods` (tables,).
    """
    count = len(periods)
    wraps = np.zeros(count, np.bool_)
    # An end that is the period's is the beginning of the next one; where an interval begins there, both are none.
    whole = ends >= periods[who]
    wraps[who[whole & (ends < math.inf)]] = True
    at_zero = np.zeros(count, np.bool_)
    at_zero[who[starts == 0.0]] = True
    joins = np.zeros(len(who), np.bool_)
    joins[1:] = (who[1:] == who[:-1]) & (starts[1:] == ends[:-1])
    arrives = ~joins & ~((starts == 0.0) & wraps[who])
    departs = np.append(~joins[1:], np.ones(min(len(who), 1), np.bool_)) & ~whole
    ghosts = np.flatnonzero(wraps & ~at_zero)
    # Someone who is present to the end of a period, and not from its beginning, departs as it begins.
    times = np.concatenate((starts[arrives], ends[departs], np.zeros(len(ghosts))))
    of = np.concatenate((who[arrives], who[departs], ghosts))
    order = np.lexsort((times, of))
    first = np.concatenate(([0], np.cumsum(np.bincount(of, minlength=count)))).astype(np.int64)
    return times[order] if len(times) else np.zeros(1), first, wraps


def _period(repeat_s: float | None, count: int) -> FloatArray:
    if repeat_s is not None and not 0 < repeat_s <= _LONGEST_S:
        raise ParameterError("repeat_s", repeat_s, f"must be > 0 and <= {_LONGEST_S:g} seconds")
    return np.full(count, math.inf if repeat_s is None else repeat_s)


def _silent(absent: str) -> bool:
    if absent not in ("never", "always"):
        raise ParameterError("absent", absent, "must be 'never' or 'always'")
    return absent == "always"


class Trace(Recorded):
    """Presence from a CSV file with the columns client, start_s, end_s: present from start_s until end_s, which may be `inf`.

    A client's intervals stand in order of time and do not overlap; where one begins as the last one ends, they are one. The
    columns may also be called client, on_s, off_s.

    Raises:
        ValueError: anything else in the file; file and line are named.
    """

    def __init__(
        self,
        *,
        clients: int,
        path: Annotated[str, Doc("The file to read: a CSV file with the columns client, start_s, end_s, in seconds.")],
        absent: Absent = "never",
        repeat_s: RepeatS = None,
    ) -> None:
        always = _silent(absent)
        periods = _period(repeat_s, max(clients, 1))
        who, starts, ends = read_intervals(path, clients, math.inf if repeat_s is None else repeat_s)
        times, first, wraps = tables_of(who, starts, ends, periods)
        mentioned = np.bincount(who, minlength=max(clients, 1)) > 0
        # Without a change, who is present as a period begins stays so.
        wraps |= always & ~mentioned
        super().__init__(
            clients=clients, times=times, first=first, periods=periods, wraps=wraps, table_of=np.arange(max(clients, 1))
        )


class Toggles(Recorded):
    """Presence from a JSON file, a list with one list a client: the times at which it comes, goes, comes, and so on.

    Times ascend strictly; after an odd number of them the client stays (with `repeat_s`: to the end of the period). `null`, or
    no list for the last clients: the file does not speak of them.

    Raises:
        ValueError: anything else in the file; file and line are named.
    """

    def __init__(
        self,
        *,
        clients: int,
        path: Annotated[str, Doc("The file to read: JSON, [[0, 3600, 7200], [600, 900], ...], in seconds.")],
        absent: Absent = "never",
        repeat_s: RepeatS = None,
    ) -> None:
        always = _silent(absent)
        periods = _period(repeat_s, max(clients, 1))
        end_s = math.inf if repeat_s is None else repeat_s
        who, times, mentioned = _read_toggles(path, clients, end_s)
        # Every other time is an arrival; the one after it, if there is one, the departure.
        place = np.arange(len(who)) - np.searchsorted(who, who)
        arrivals = np.flatnonzero((place % 2 == 0) & (times < end_s))
        follows = np.append(who[1:] == who[:-1], np.zeros(min(len(who), 1), np.bool_))[arrivals]
        ends = np.where(follows, np.append(times, math.inf)[arrivals + 1], end_s)
        times, first, wraps = tables_of(who[arrivals], times[arrivals], ends, periods)
        wraps |= always & ~mentioned
        super().__init__(
            clients=clients, times=times, first=first, periods=periods, wraps=wraps, table_of=np.arange(max(clients, 1))
        )


def _read_toggles(path: str, clients: int, end_s: float) -> tuple[IntArray, FloatArray, BoolArray]:
    """Whose (n,) and when (n,) all toggles of a JSON file are, client by client; and of whom it speaks, (K,)."""
    values: list[float] = []
    counts, lines = np.zeros(clients, np.int64), []
    mentioned = np.zeros(max(clients, 1), np.bool_)
    told = "must be a list of times in seconds, finite and >= 0, or null"
    for client, (_, value, line) in enumerate(json_entries(path, list, "a list with one list of times a client")):
        if client >= clients:
            raise refused(path, f"line {line}: holds a list for client {client}; there are {clients} clients, from 0")
        mentioned[client] = value is not None
        lines.append(line)
        if value is not None:
            if not numbers_only(value):
                raise refused(path, f"line {line}: client {client}: {told}")
            values += value
            counts[client] = len(value)
    who, times = np.repeat(np.arange(clients), counts), np.array(values, np.float64)

    def check(good: BoolArray, reason: Callable[[int], str]) -> None:
        if not good.all():
            j = int(np.argmin(good))
            raise refused(path, f"line {lines[who[j]]}: client {who[j]}: {reason(j)}")

    check(np.isfinite(times) & (times >= 0), lambda j: told)
    ascends = np.ones(len(who), np.bool_)
    ascends[1:] = (who[1:] != who[:-1]) | (times[1:] > times[:-1])
    check(ascends, lambda j: f"{times[j]:g} stands after {times[j - 1]:g}; times must ascend")
    check(times <= end_s, lambda j: f"{times[j]:g} is after repeat_s = {end_s:g}")
    return who, times, mentioned

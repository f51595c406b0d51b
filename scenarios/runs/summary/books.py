"""Checks of a run's accounts: every attempt and message has ended or is in flight, and the tables on disk agree with the
counts.

A run whose books do not balance has counted something twice or not at all, and its figures cannot be trusted. The cause is a
defect of the program (or of a script that changed the run), never a user's mistake.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.results.sources import OpenTable, TableName
from netsim.clients.power.energy import COLUMNS, Energy
from netsim.clients.update import OUTCOMES
from netsim.core.protocols import Notes
from netsim.records.columns import count_words, numbers
from scenarios.schema.errors import BooksError

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

SUMMED = (
    *("selected", *OUTCOMES, "bytes_down", "bytes_up", "probes", "probes_answered"),
    *("jam_dwells", "messages", "messages_delivered", "messages_lost"),
)
"""Columns of `rounds.parquet` that add up over rounds, and that servers count over the whole run (`Server.counts`)."""
OpenTables = Mapping[TableName, Callable[[], AbstractContextManager[OpenTable]]]
"""Tables of a finished run, each with a function that opens it."""
_UPDATES = ("selected", (*OUTCOMES, "in_flight"))
_BYTES = ("bytes_down", "bytes_up")
_JOULES = ("compute_j", "send_j", "receive_j")
_MESSAGES = ("messages", ("messages_delivered", "messages_lost", "messages_in_flight"))
# Relative difference that another order of summation may cause. A missing release changes a leak by much more.
_TOLERANCE = 1e-9
# Joules below which float products have lost most of their digits.
_LEAST_J = 1e-290


@dataclass(frozen=True, slots=True)
class Accounts:
    """Energy of a run in two accounts, which must be equal: sums over attempts, messages and idle times; integral of power."""

    attempts_j: Mapping[str, float]
    """Joules of attempts, by column."""
    probes_j: Mapping[str, float]
    """Joules of probes, by column; empty without probes."""
    accounts: Mapping[str, tuple[float, float]]
    """The two accounts, sum and integral, in joules, by column of a round."""

    @classmethod
    def close(cls, energy: Energy, now_s: float, probes_j: Mapping[str, float]) -> Accounts:
        """Return the accounts at the end of a run, at `now_s`. `probes_j`: joules of probes, by column."""
        accounts = energy.accounts(now_s)
        total = {name: energy.spent.attempts_j[state] for name, state in COLUMNS.items() if name in _JOULES}
        attempts_j = {name: joules - probes_j.get(name, 0.0) for name, joules in total.items()}
        return cls(attempts_j, probes_j, accounts)

    def _differ(self, first_j: float, second_j: float) -> bool:
        """Return True if two sums of joules differ by more than rounding."""
        total_j = sum(integral for _, integral in self.accounts.values())
        return not math.isclose(first_j, second_j, rel_tol=_TOLERANCE, abs_tol=max(_TOLERANCE * total_j, _LEAST_J))

    def problems(self) -> list[str]:
        """Return the differences between the two accounts, as text."""
        return [
            f"{name}: {booked!r} J are accounted for, and the integral of power over time is {integral!r} J"
            for name, (booked, integral) in self.accounts.items()
            if self._differ(booked, integral)
        ]

    def differences(self, table_j: Mapping[str, float], drawn_j: Mapping[str, float]) -> list[str]:
        """Return the sums of a table, `table_j`, that differ from the joules `drawn_j` of attempts or probes, as text."""
        return [
            f"{name} adds up to {joules!r}, not {drawn_j[name]!r}"
            for name, joules in table_j.items()
            if self._differ(joules, drawn_j[name])
        ]


def audit(
    tables: OpenTables,
    counts: Mapping[str, int],
    summed: Mapping[str, int],
    rounds: int,
    max_leak: float,
    energy: Accounts | None = None,
) -> Notes:
    """Audit the books of a run with complete `tables` and return the entry `books` of its summary.

    `counts`: what the server counted (`Server.counts`); `summed`: sums of the columns SUMMED over the `rounds` records of rounds.
    `max_leak`: largest leak of the accountant. `energy`: None if energy is not counted.
    """
    problems = _find_imbalances(counts)
    if energy is not None:
        problems += energy.problems()
    checks: dict[TableName, Callable[[OpenTable], list[str]]] = {
        "rounds": lambda file: _check_rounds(file, counts, summed, rounds),
        "clients": lambda file: _check_clients(file, counts, max_leak, energy),
        "probes": lambda file: _check_probes(file, counts, energy),
        "jams": lambda file: _check_row_count(file, counts.get("jam_dwells", 0)),
        "messages": lambda file: _check_messages(file, counts),
    }
    checked = [name for name in checks if name in tables]
    for name in checked:
        with tables[name]() as table:
            problems += [f"{name}.parquet: {text}" for text in checks[name](table)]
    return {"balanced": not problems, "tables": checked, "problems": problems}


def refuse_unbalanced(books: Mapping[str, Any], place: Path | str, kept: str = "The files are kept; ") -> None:
    """Raise BooksError if the books of the run in `place` do not balance. `kept`: sentence on the files that are kept."""
    if not books["balanced"]:
        raise BooksError(
            f"{place}: the books of this run do not balance ({'; '.join(books['problems'])}). Its figures are wrong: this is a "
            f"defect of netsim, or of a script that changed the run. {kept}please report it with the scenario"
        )


def _find_imbalances(counts: Mapping[str, int]) -> list[str]:
    """Return the counts of attempts and messages that do not add up, as text."""
    imbalances = []
    for begun, ends in (_UPDATES, _MESSAGES):
        total = sum(counts.get(name, 0) for name in ends)
        if counts.get(begun, 0) != total:
            terms = " + ".join(f"{counts.get(name, 0)} {name}" for name in ends)
            imbalances.append(f"{counts.get(begun, 0)} {begun} are not {terms} = {total}")
    return imbalances


def _check_rounds(file: OpenTable, counts: Mapping[str, int], summed: Mapping[str, int], rounds: int) -> list[str]:
    """Return differences between the table of rounds, the server's `counts`, and the sums taken as rounds were recorded."""
    # Messages of opinions are counted over the run, and have no column of rounds.
    counted = {name: counts[name] for name in SUMMED if name in counts and name in file.schema.names}
    table = file.read([*counted, "in_flight"])
    columns = {name: numbers(table[name], 0).astype(np.int64) for name in table.column_names}
    problems = _differences({"rows": table.num_rows}, {"rows": rounds})
    problems += _differences({name: int(columns[name].sum()) for name in counted}, {name: summed[name] for name in counted})
    problems += [
        f"{name} adds up to {summed[name]}, more than the {count} counted"
        for name, count in counted.items()
        if summed[name] > count
    ]
    # Attempts that had begun and not ended as each round closed.
    open_at_close = columns["selected"].cumsum() - sum(columns[name].cumsum() for name in OUTCOMES)
    wrong = np.flatnonzero(open_at_close != columns["in_flight"])
    if wrong.size:
        row = int(wrong[0])
        text = f"in_flight is {columns['in_flight'][row]} in row {row + 1}"
        problems.append(f"{text}, and {open_at_close[row]} of those selected up to there have not ended")
    return problems


def _check_clients(file: OpenTable, counts: Mapping[str, int], max_leak: float, energy: Accounts | None) -> list[str]:
    """Return differences between the client table and the counts of the server, the largest leak, and the energy."""
    leak = 0.0
    rows, sent = Counter[str](), dict.fromkeys(_BYTES, 0)
    joules: dict[str, float] = {} if energy is None else dict.fromkeys(_JOULES, 0.0)
    for table in file.pieces(["outcome", "leak", *sent, *joules]):
        _add_up(table, rows, sent, joules)
        leak = max(leak, float(numbers(table["leak"], 0.0).max(initial=0.0)))
    begun, outcomes = _UPDATES
    # The server's bytes include those of probes, which have a table of their own.
    attempt_bytes = {name: counts[name] - counts.get(f"probe_{name}", 0) for name in _BYTES}
    sums = {begun: rows.total()} | {name: rows[name] for name in outcomes} | sent
    problems = _differences(sums, {**counts, **attempt_bytes})
    if not math.isclose(leak, max_leak, rel_tol=_TOLERANCE):
        problems.append(f"the largest leak is {leak!r}, and {max_leak!r} was spent")
    if energy is not None:
        problems += energy.differences(joules, energy.attempts_j)
    return problems


def _check_probes(file: OpenTable, counts: Mapping[str, int], energy: Accounts | None) -> list[str]:
    """Return differences between the table of probes, the server's counts, and the energy."""
    drawn_j = energy.probes_j if energy is not None else {}
    rows, sent, joules = Counter[str](), dict.fromkeys(_BYTES, 0), dict.fromkeys(drawn_j, 0.0)
    for table in file.pieces(["outcome", *sent, *joules]):
        _add_up(table, rows, sent, joules)
    sums = {"probes": rows.total(), "probes_answered": rows["delivered"]}
    sums |= {f"probe_{name}": count for name, count in sent.items()}
    problems = _differences(sums, {name: counts.get(name, 0) for name in sums})
    if energy is not None:
        problems += energy.differences(joules, drawn_j)
    return problems


def _add_up(table: pa.Table, rows: Counter[str], sent: dict[str, int], joules: dict[str, float]) -> None:
    """Add the outcomes, bytes and joules of a piece of a table of attempts or probes."""
    # Joules have no gaps: NaN for a missing one makes the sum NaN, which differs from every account.
    for name in joules:
        joules[name] += float(numbers(table[name], math.nan).sum())
    for name in sent:
        sent[name] += int(numbers(table[name], 0).sum())
    rows.update(count_words(table["outcome"]))


def _check_messages(file: OpenTable, counts: Mapping[str, int]) -> list[str]:
    """Return differences between the table of messages and the server's counts."""
    rows = Counter[str]()
    for table in file.pieces(["outcome"]):
        rows.update(count_words(table["outcome"]))
    begun, outcomes = _MESSAGES
    sums = {begun: rows.total()} | {name: rows[name.removeprefix("messages_")] for name in outcomes}
    sums["messages_lost"] += rows["late"]
    return _differences(sums, {name: counts.get(name, 0) for name in (begun, *outcomes)})


def _check_row_count(file: OpenTable, expected: int) -> list[str]:
    """Return a text if a table does not have the expected number of rows."""
    return _differences({"rows": file.rows}, {"rows": expected})


def _differences(actual: Mapping[str, int], expected: Mapping[str, int]) -> list[str]:
    """Return the numbers that differ from the expected ones, as text."""
    return [f"{name} is {count}, not {expected[name]}" for name, count in actual.items() if count != expected[name]]

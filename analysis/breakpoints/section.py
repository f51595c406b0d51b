"""The section of a report on changes: how soon each variant answered them, and how long it took to recover."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from analysis.breakpoints.changes import WINDOW, Unit
from analysis.breakpoints.summary import Answered, answered
from analysis.documents.blocks import Section, Table
from analysis.documents.numbers import MISSING, format_interval, format_number

if TYPE_CHECKING:
    from analysis.results.groups import Groups


def breakpoint_table(groups: Groups, *, window: int = WINDOW, unit: Unit = "rounds") -> Table | None:
    """A row for each variant; None where no run went through a change."""
    found = answered(groups, window=window, unit=unit)
    if not found:
        return None
    short = "rounds" if unit == "rounds" else "s"
    header = ["", "changes", "declared", "missed", f"delay ({short})", "false alarms (of 1,000 rounds)", "by jamming"]
    header += ["recovered", f"recovery ({short})"]
    note = (
        f"Delays are restricted means, of min(delay, {format_number(found[0].delay_horizon)}), times to recovery of "
        f"min(time, {format_number(found[0].recovery_horizon)}), over all changes; 95 % intervals over seeds. Recovered: the "
        f"mean regret of {window} rounds, all after the change, is at most that of the {window} rounds before it."
    )
    return Table("breakpoints", "How changes were answered", (header, [_row(one) for one in found]), note=note)


def _row(one: Answered) -> list[str]:
    nobody = math.isnan(one.false_alarms.mean)
    spread = [format_interval(one.delay), format_interval(one.false_alarms)]
    told = [MISSING] * 4 if nobody else [f"{one.declared:,}", f"{one.missed:,}", *spread]
    jamming = MISSING if nobody else f"{one.jamming:,}"
    recovery = [f"{one.recovered:,} of {one.watched:,}", format_interval(one.recovery)] if one.watched else [MISSING, MISSING]
    return [one.label, f"{one.changes:,}", *told, jamming, *recovery]


def recovery_is_known(row: list[str]) -> bool:
    """Whether a row of the table says how long recovery took."""
    return row[-1] != MISSING


def breakpoint_sections(groups: Groups, *, window: int = WINDOW, unit: Unit = "rounds") -> list[Section]:
    """The section, or none where no run went through a change."""
    table = breakpoint_table(groups, window=window, unit=unit)
    return [] if table is None else [Section("What changes did", [table])]

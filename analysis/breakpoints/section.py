"""The section of a report on changes: times to declaration and to recovery, by variant."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from analysis.breakpoints.changes import WINDOW, Unit
from analysis.breakpoints.summary import ChangeSummary, summarize_changes
from analysis.documents.blocks import Section, Table
from analysis.documents.numbers import MISSING, format_interval, format_number

if TYPE_CHECKING:
    from analysis.results.groups import Groups


def breakpoint_table(groups: Groups, *, window: int = WINDOW, unit: Unit = "rounds") -> Table | None:
    """Return the table of changes, a row for each variant; None where no run went through a change."""
    summaries = summarize_changes(groups, window=window, unit=unit)
    if not summaries:
        return None
    short = "rounds" if unit == "rounds" else "s"
    header = ["", "changes", "declared", "missed", f"delay ({short})", "false alarms (of 1,000 rounds)", "by jamming"]
    header += ["recovered", f"recovery ({short})"]
    note = (
        f"Delays are restricted means, of min(delay, {format_number(summaries[0].delay_horizon)}), times to recovery of "
        f"min(time, {format_number(summaries[0].recovery_horizon)}), over all changes; 95 % intervals over seeds. Recovered: the "
        f"mean regret of {window} rounds, all after the change, is at most that of the {window} rounds before it."
    )
    return Table("breakpoints", "How changes were answered", (header, [_row(summary) for summary in summaries]), note=note)


def _row(summary: ChangeSummary) -> list[str]:
    """Return the row of a variant as text; cells on declarations are empty for a scheduler that declares no changes."""
    declares_nothing = math.isnan(summary.false_alarms.mean)
    spread = [format_interval(summary.delay), format_interval(summary.false_alarms)]
    counts = [MISSING] * 4 if declares_nothing else [f"{summary.declared:,}", f"{summary.missed:,}", *spread]
    jamming = MISSING if declares_nothing else f"{summary.jamming:,}"
    recovery = [MISSING] * 2
    if summary.watched:
        recovery = [f"{summary.recovered:,} of {summary.watched:,}", format_interval(summary.recovery)]
    return [summary.label, f"{summary.changes:,}", *counts, jamming, *recovery]


def recovery_is_known(row: list[str]) -> bool:
    """Return True if a row of the table has a recovery time."""
    return row[-1] != MISSING


def breakpoint_sections(groups: Groups) -> list[Section]:
    """Return the section on changes; empty where no run went through a change."""
    table = breakpoint_table(groups)
    return [] if table is None else [Section("What changes did", [table])]

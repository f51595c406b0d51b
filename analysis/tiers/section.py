"""The section of a report on edge tiers: where the time of a round of the server goes, and how attempts of edges ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.documents.blocks import Section, Table
from analysis.documents.numbers import MISSING, format_interval, format_number, format_percent
from analysis.statistics.intervals import mean_interval
from analysis.tiers.measure import PARTS, has_tiers, tier_times

if TYPE_CHECKING:
    from analysis.results.groups import Groups
    from analysis.results.run import Run


def tier_sections(groups: Groups) -> list[Section]:
    """Return the section on tiers; empty where no run has edges."""
    kept = {label: [run for run in runs if has_tiers(run)] for label, runs in groups.items()}
    kept = {label: runs for label, runs in kept.items() if runs}
    if not kept:
        return []
    return [Section("Edge tiers", [_times_table(kept), _attempts_table(kept)])]


def _times_table(groups: Groups) -> Table:
    """Return the table of the parts of a mean round of the server in seconds, a row for each variant."""
    header = ["", *(f"{words} (s)" for words in PARTS.values())]
    rows = []
    for label, runs in groups.items():
        times = [tier_times(run) for run in runs]
        rows.append([label, *(_cell([each[name] for each in times]) for name in PARTS)])
    note = (
        "Means over edges and rounds of the server, which they add up to; within an edge's rounds as for its mean client. Means "
        "over seeds, with 95 % intervals where there are several."
    )
    return Table("tiers", "Seconds of a mean round of the server", (header, rows), note=note)


def _attempts_table(groups: Groups) -> Table:
    """Return the table of outcomes of attempts of edges, and of bytes between edges and nodes above; a row for each variant."""
    header = ["", "attempts of edges", "delivered", "lost", "aborted", "backhaul (MB)", "of all bytes"]
    rows = []
    for label, runs in groups.items():
        outcomes = [_outcomes(run) for run in runs]
        number = sum(sum(each.values()) for each in outcomes)
        shares = [format_percent(sum(each.get(name, 0) for each in outcomes) / number) if number else MISSING for name in _NAMED]
        backhaul = [float(run.rounds["backhaul_bytes"].sum()) for run in runs]
        all_bytes = sum(backhaul) + sum(float(run.rounds[["bytes_down", "bytes_up"]].sum().sum()) for run in runs)
        share = format_percent(sum(backhaul) / all_bytes) if all_bytes else MISSING
        rows.append([label, f"{number:,}", *shares, _cell([each / 1e6 for each in backhaul]), share])
    note = "Attempts of edges in rounds of the node above, over all seeds; aborted: the edge failed, or no update arrived."
    return Table("edge-attempts", "What became of the models of edges", (header, rows), note=note)


_NAMED = ("delivered", "lost", "aborted")


def _outcomes(run: Run) -> dict[str, int]:
    """Return the number of attempts of edges by outcome."""
    outcomes = run.arrow("edges", ["outcome"]).to_pandas()["outcome"].astype(str)
    return {str(name): int(count) for name, count in outcomes.value_counts().items()}


def _cell(values: list[float]) -> str:
    """Return a mean with its interval."""
    if len(values) < 2:
        return format_number(values[0])
    return format_interval(mean_interval(values))

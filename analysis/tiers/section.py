"""The section of a report on edge tiers: where the time of a round of the server goes, and how attempts of edges ended."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from analysis.documents.blocks import Section, Table
from analysis.documents.numbers import MISSING, format_interval, format_number, format_percent
from analysis.results.groups import select_runs
from analysis.statistics.intervals import mean_interval
from analysis.tiers.measure import PARTS, has_tiers, tier_times

if TYPE_CHECKING:
    from analysis.results.groups import Groups
    from analysis.results.run import Run


def tier_sections(groups: Groups) -> list[Section]:
    """Return the section on tiers; empty where no run has edges."""
    with_tiers = select_runs(groups, has_tiers)
    if not with_tiers:
        return []
    return [Section("Edge tiers", [_times_table(with_tiers), _attempts_table(with_tiers)])]


def _times_table(groups: Groups) -> Table:
    """Return the table of the parts of a mean round of the server in seconds, a row for each variant."""
    header = ["", *(f"{words} (s)" for words in PARTS.values())]
    rows = []
    for label, runs in groups.items():
        times = [tier_times(run) for run in runs]
        cells = [_cell([run_times[part] for run_times in times]) for part in PARTS]
        rows.append([label, *cells])
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
        counts: Counter[str] = Counter()
        backhaul_bytes, client_bytes = [], []
        for run in runs:
            counts.update(_outcomes(run))
            backhaul_bytes.append(float(run.rounds["backhaul_bytes"].sum()))
            client_bytes.append(float(run.rounds[["bytes_down", "bytes_up"]].sum().sum()))
        attempts, all_bytes = counts.total(), sum(backhaul_bytes) + sum(client_bytes)
        shares = [format_percent(counts[outcome] / attempts) if attempts else MISSING for outcome in _NAMED]
        backhaul_share = format_percent(sum(backhaul_bytes) / all_bytes) if all_bytes else MISSING
        megabytes = _cell([sent / 1e6 for sent in backhaul_bytes])
        rows.append([label, f"{attempts:,}", *shares, megabytes, backhaul_share])
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

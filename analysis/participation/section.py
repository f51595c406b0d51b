"""The section of a report on the participation of each group of clients, and its evenness."""

from __future__ import annotations

from typing import Any

from analysis.documents.blocks import Section, Table
from analysis.documents.numbers import format_interval
from analysis.metrics.definitions import jain_index
from analysis.results.groups import Groups
from analysis.statistics.intervals import mean_interval


def participation_sections(groups: Groups) -> list[Section]:
    """Return a section with a table of groups (or classes of devices) by variant; empty where no run has groups.

    Each number is a mean over seeds: the share of a group in all clients, in updates begun and in updates delivered; the share
    of its updates that were delivered; and the share of its clients with a delivery. Jain's index compares
    the groups by deliveries per client: 1 where clients of all groups deliver as much.
    """
    rows = []
    for label, runs in groups.items():
        by_run = [run.summary["groups"] for run in runs if run.summary.get("groups")]
        if not by_run:
            continue
        for group in by_run[0]:
            shares = [_shares(run_groups, group) for run_groups in by_run if group in run_groups]
            cells = [format_interval(mean_interval([share[name] for share in shares]), scale=100.0) for name in _COLUMNS]
            rows.append([label, group, *cells, ""])
        fairness = mean_interval(list(map(_fairness_between_groups, by_run)))
        # The index covers all groups of the variant, and is shown in the row of the last one.
        rows[-1][-1] = format_interval(fairness)
    if not rows:
        return []
    header = ["variant", "group", *(f"{title} (%)" for title in _COLUMNS.values()), "Jain over groups"]
    note = "Means over seeds ± half-width of the 95 % interval, of whole runs. " + _NOTE
    return [Section("Who took part", [Table("participation", "Participation by group", (header, rows), note=note, words=(0, 1))])]


_COLUMNS = {
    "clients": "of all clients",
    "selected": "of updates begun",
    "delivered": "of updates delivered",
    "worked": "of its updates delivered",
    "reached": "of its clients with a delivery",
}
"""Columns of percentages, with their headings; `_shares` computes them."""
_NOTE = (
    "Jain's index of deliveries for each client of a group, over the groups: 1 where clients of all groups deliver as "
    "much, 1 over "
    "their number where those of one group deliver all."
)


def _shares(groups: dict[str, Any], group: str) -> dict[str, float]:
    """Return the shares `_COLUMNS` of a group. `groups`: counts of each group of a run, as its summary has them."""
    own = groups[group]
    shares = {}
    for name in ("clients", "selected", "delivered"):
        total = sum(counts[name] for counts in groups.values())
        shares[name] = _ratio(own[name], total)
    shares["worked"] = _ratio(own["delivered"], own["selected"])
    shares["reached"] = _ratio(own["clients_delivered"], own["clients"])
    return shares


def _fairness_between_groups(groups: dict[str, Any]) -> float:
    """Return Jain's index of the deliveries per client of each group."""
    return jain_index([_ratio(counts["delivered"], counts["clients"]) for counts in groups.values() if counts["clients"]])


def _ratio(part: float, whole: float) -> float:
    """Return part / whole; NaN if the whole is 0."""
    return part / whole if whole else float("nan")

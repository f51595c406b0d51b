"""The section of a report on the links of a network: the busiest links, and links on the critical path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.documents.blocks import Block, Section, Table, Text
from analysis.documents.numbers import format_number, format_percent
from analysis.network.measure import has_loads, link_table, path_limits
from analysis.stragglers.critical_path import critical_path
from analysis.stragglers.records import run_records

if TYPE_CHECKING:
    from analysis.results.run import Run

_SHOWN = 10
"""Links that the table lists."""


def network_sections(run: Run) -> list[Section]:
    """Return the section of a run on the links of its network; empty if it did not record them."""
    if not has_loads(run):
        return []
    loads = link_table(run)
    busiest = loads.index[0]
    cables = run.arrow("cables", ["cable"]).num_rows
    words = (
        f"Bytes crossed {len(loads):,} links of {cables:,} cables. {busiest} was the busiest: "
        f"{_percent(loads['utilisation'].iloc[0])} of its bandwidth over the run."
    )
    on_path = limited_on_path(run)
    header = ["link", "MB", "mean use", "most in a round", "transfers limited", "for (s)", "critical path (s)"]
    rows = [
        [
            str(link),
            format_number(row["carried_bytes"] / 1e6),
            _percent(row["utilisation"]),
            _percent(row["peak"]),
            f"{int(row['transfers']):,}",
            format_number(row["limited_s"]),
            format_number(on_path.get(str(link), 0.0)),
        ]
        for link, row in loads.head(_SHOWN).iterrows()
    ]
    note = (
        "Transfers limited: those whose rate the link decided the longest; for: seconds for which it decided rates, added up "
        "over transfers; critical path: those of them that lie on it."
    )
    caption = f"The {len(rows)} busiest links, of {len(loads):,}"
    blocks: list[Block] = [Text(words), Table("links", caption, (header, rows), note=note)]
    return [Section("Links of the network", blocks)]


def _percent(utilisation: float) -> str:
    """Return a share as a percentage with one decimal at most."""
    return format_percent(round(utilisation, 3))


def limited_on_path(run: Run) -> dict[str, float]:
    """Return the seconds of the critical path for which each link limited a transfer, the most first.

    Empty without records of clients and of transfers.
    """
    if not (run.has_clients and run.states_causes and len(run.rounds) and len(run.clients)):
        return {}
    limits = path_limits(run, critical_path(run_records(run)))
    sums = limits.groupby("link")["limited_s"].sum().sort_values(ascending=False, kind="stable")
    return {str(link): float(seconds) for link, seconds in sums.items()}

"""The section of a report on the clients that delayed a run: its critical path, and each client's time on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.documents.blocks import Block, Section, Table, Text
from analysis.documents.numbers import format_number
from analysis.stragglers.critical_path import critical_path
from analysis.stragglers.records import run_records
from analysis.stragglers.savings import client_table, saved_rounds, savings

if TYPE_CHECKING:
    from analysis.results.run import Run

_PHASES = ("download_s", "compute_s", "queue_s", "upload_s", "resend_s", "wait_s")
"""Phases with columns in the table."""
_SHOWN = 10
"""Clients that the table lists."""


def straggler_sections(run: Run) -> list[Section]:
    """Return the section on the clients that held a run up; empty if no round closed, or the run is of format 1.

    The clients table of the run must have rows.
    """
    if not run.states_causes:
        return []
    view = run_records(run)
    path = critical_path(view)
    if not len(path):
        return []
    seconds = (path["end_s"] - path["start_s"]).groupby(path["phase"]).sum().sort_values(ascending=False)
    shares = ", ".join(f"{phase} {format_number(value)} s" for phase, value in seconds.items())
    words = (
        "The chain of phases that led, without a gap, from the beginning to the last close took "
        f"{format_number(seconds.sum())} s: {shares}. To shorten one of them shortens the run."
    )
    table = client_table(run, view)
    exact = run.source.has("what_ifs")
    note = (
        "Seconds, added up over rounds; path: on the critical path; last: rounds that the client alone closed; by: by how much "
        "all others had ended earlier in these."
    )
    if exact:
        table = table.join(savings(run)[["saved_s"]])
        first, last = saved_rounds(run)
        some = "" if (first, last) == (1, len(view.rounds)) else f" {first} to {last}"
        note += f" Saved: by how much earlier rounds{some} would have closed without the client, each by itself"
        note += " (netsim stragglers)."
    worst = table.sort_values("saved_s" if exact else "path_s", ascending=False, kind="stable").head(_SHOWN)
    columns = ["rounds", "last", "stretch_s", *_PHASES, "path_s", *(["saved_s"] if exact else [])]
    header = ["client"]
    for name in columns:
        title = "by" if name == "stretch_s" else name.removesuffix("_s")
        header.append(f"{title} (s)" if name.endswith("_s") else title)
    rows = []
    for client, row in worst.iterrows():
        # Seconds, or counts of rounds.
        cells = [format_number(row[name]) if name.endswith("_s") else f"{int(row[name]):,}" for name in columns]
        rows.append([str(client), *cells])
    caption = f"The {len(rows)} clients with most seconds {'saved' if exact else 'on the critical path'}, of {len(table)}"
    blocks: list[Block] = [Text(words), Table("clients-time", caption, (header, rows), note=note)]
    return [Section("Who held the run up", blocks)]

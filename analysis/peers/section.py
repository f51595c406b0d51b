"""The section of a report on training without a server: models of the peers, bytes, and which peer waited for which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analysis.documents.blocks import Block, Section, Table, Text
from analysis.documents.numbers import MISSING, format_interval, format_number, format_percent
from analysis.peers.measure import has_peers, waits
from analysis.results.groups import select_runs
from analysis.statistics.intervals import mean_interval

if TYPE_CHECKING:
    from analysis.results.groups import Groups
    from analysis.results.run import Run

_MODELS = {
    "accuracy": ("mean model (%)", 100.0),
    "peer_accuracy": ("mean of peers (%)", 100.0),
    "worst_peer_accuracy": ("worst peer (%)", 100.0),
    "best_peer_accuracy": ("best peer (%)", 100.0),
    "consensus_distance": ("consensus distance", 1.0),
}
"""Columns of rounds that are shown as of the last evaluation: heading, and factor."""
_SHOWN = 10
"""Pairs of peers that the table of waits lists."""


def peer_sections(groups: Groups, *, single: Run | None = None) -> list[Section]:
    """Return the section on peers; empty where no run has any. `single`: the run whose waits are shown, or None."""
    with_peers = select_runs(groups, has_peers)
    if not with_peers:
        return []
    blocks: list[Block] = [_models_table(with_peers)]
    if single is not None:
        blocks += _wait_blocks(single)
    return [Section("Peers", blocks)]


def _models_table(groups: Groups) -> Table:
    """Return figures of the peers' models and messages, a row for each variant."""
    header = ["", *(heading for heading, _ in _MODELS.values()), "sent (MB)", "lost (%)"]
    rows = []
    for label, runs in groups.items():
        cells = [_cell([_last(run, column) for run in runs], scale) for column, (_, scale) in _MODELS.items()]
        sent = [float(run.rounds["message_bytes"].sum()) for run in runs]
        lost = [_lost_share(run) for run in runs]
        rows.append([label, *cells, _cell(sent, 1e-6), _cell(lost, 100.0)])
    note = (
        "Accuracies on the test set, and the mean squared distance of the peers' parameters from their mean, at the last "
        "evaluation; sent: bytes of all messages between peers, lost ones included; lost: messages lost, of all that ended. "
        "Means over seeds, with 95 % intervals where there are several."
    )
    return Table("peers", "Models and messages of the peers", (header, rows), note=note)


def _last(run: Run, column: str) -> float:
    """Return the last value of a column of rounds that is known; NaN without any, and without the column."""
    if column not in run.rounds:
        return float("nan")
    values = run.rounds[column].to_numpy(np.float64)
    known = values[~np.isnan(values)]
    return float(known[-1]) if known.size else float("nan")


def _lost_share(run: Run) -> float:
    """Return the share of messages that were lost, of all that ended; NaN without messages."""
    lost, delivered = (float(run.rounds[name].sum()) for name in ("messages_lost", "messages_delivered"))
    return lost / (lost + delivered) if lost + delivered else float("nan")


def _cell(values: list[float], scale: float) -> str:
    """Return the mean of the known `values` (one a run) times `scale` as text, with an interval if there are several."""
    known = [value for value in values if not np.isnan(value)]
    if not known:
        return MISSING
    return format_number(known[0] * scale) if len(known) == 1 else format_interval(mean_interval(known), scale=scale)


def _wait_blocks(run: Run) -> list[Block]:
    """Return a text and a table on the peers that waited, and the peers that they waited for."""
    if not run.has_clients:
        return []
    table = waits(run)
    if not len(table):
        return [Text("No peer waited for a message of another one.")]
    table["seconds"] = table["until_s"] - table["from_s"]
    peers = run.arrow("clients", ["client"]).to_pandas()["client"].nunique()
    share = table["seconds"].sum() / (peers * float(run.rounds["end_s"].iloc[-1]))
    pairs = table.groupby(["peer", "waited_for"], as_index=False).agg(sum=("seconds", "sum"), times=("seconds", "count"))
    pairs = pairs.sort_values("sum", ascending=False, kind="stable")
    causes = table.groupby("waited_for")["seconds"].sum().sort_values(ascending=False, kind="stable")
    words = (
        f"Peers waited for messages {format_percent(round(float(share), 3))} of their time. The others waited longest for peer "
        f"{causes.index[0]}: {format_number(causes.iloc[0])} s, added up over them."
    )
    rows = [
        [str(peer), str(other), format_number(seconds), f"{times:,}"]
        for peer, other, seconds, times in pairs.head(_SHOWN).itertuples(index=False)
    ]
    caption = f"Which peer waited for which: the {len(rows)} longest, of {len(pairs):,} pairs"
    note = "A wait lasts from the end of a training to the beginning of the next, which a message of the other peer let begin."
    return [Text(words), Table("waits", caption, (["peer", "waited for", "for (s)", "times"], rows), note=note, words=(0, 1))]

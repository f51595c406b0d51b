"""Seconds of a run by tier: training and links of clients, links of edges, and what clients and edges wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analysis.stragglers.decomposition import decompose
from analysis.stragglers.records import run_records

if TYPE_CHECKING:
    import pandas as pd

    from analysis.results.run import Run
    from analysis.statistics.arrays import FloatArray

PARTS = {
    "compute": "training",
    "links": "links of clients",
    "edge_wait": "waiting in the edge's round",
    "backhaul": "backhaul",
    "wait": "waiting for the server",
}
"""Words for the parts of a round of the server, by their names. Without edges a server stands in the place of the edge."""


def has_tiers(run: Run) -> bool:
    """Return True if the run had edges, and kept the records that `tier_times` reads."""
    return run.source.has("edge_rounds") and run.has_clients and run.states_causes and len(run.rounds) > 0


def tier_times(run: Run) -> dict[str, float]:
    """Return the seconds of each of `PARTS` in a mean round of the server; they add up to the length of that round.

    They are means over the edges of clients. Within an edge's rounds, time is divided as it is for the mean client of a round.
    Outside of them a model of the edge, or of an edge above it, is on its way, or the edge waits. Without edges the rounds of
    the server are divided.
    """
    number, end_s = len(run.rounds), float(run.rounds["end_s"].iloc[-1])
    phases = decompose(run_records(run))
    sums = {name: float(phases[name].sum()) for name in phases.columns if name.endswith("_s")}
    of_clients = {
        "compute": sums["compute_s"],
        "links": sums["download_s"] + sums["upload_s"] + sums["resend_s"],
        "edge_wait": sums["queue_s"] + sums["wait_s"] + sums["before_s"],
    }
    if not has_tiers(run):
        edge_s, backhaul_s = float((run.rounds["end_s"] - run.rounds["start_s"]).sum()), 0.0
    else:
        edge_s, backhaul_s = np.mean(_edge_times(run, end_s), axis=0).tolist()
    whole = sum(of_clients.values())
    seconds = {name: edge_s * value / whole if whole else 0.0 for name, value in of_clients.items()}
    seconds |= {"backhaul": backhaul_s, "wait": max(0.0, end_s - edge_s - backhaul_s)}
    return {name: value / number for name, value in seconds.items()}


def _edge_times(run: Run, end_s: float) -> list[tuple[float, float]]:
    """Return for each edge of clients the seconds in own rounds, and those in which only a model is on its way; up to `end_s`."""
    own = run.arrow("edge_rounds", ["edge", "start_s", "end_s"]).to_pandas().astype({"edge": str})
    attempts = run.arrow("edges").to_pandas().astype({"edge": str})
    above = {edge: over for edge, over in zip(attempts["edge"], attempts["above"], strict=True) if isinstance(over, str)}
    times = []
    for edge in sorted(set(own["edge"]) - set(above.values())):
        chain = [edge]
        while chain[-1] in above:
            chain.append(above[chain[-1]])
        mine = attempts[attempts["edge"].isin(chain)]
        rounds = own.loc[own["edge"] == edge, ["start_s", "end_s"]].to_numpy(np.float64)
        both = np.concatenate([rounds, _on_the_way(mine)])
        times.append((_covered_s(rounds, end_s), _covered_s(both, end_s) - _covered_s(rounds, end_s)))
    return times


def _on_the_way(attempts: pd.DataFrame) -> FloatArray:
    """Return begin and end (n, 2) of the transfers of models of edges; one without an end lasts to the end of the attempt."""
    ways = []
    for phase in ("download", "upload"):
        times = attempts[[f"{phase}_start_s", f"{phase}_end_s", "outcome_s"]].to_numpy(np.float64)
        ways.append(np.column_stack([times[:, 0], np.where(np.isnan(times[:, 1]), times[:, 2], times[:, 1])]))
    found: FloatArray = np.concatenate(ways)
    found = found[~np.isnan(found[:, 0])]
    # A transfer under way at the end of the run.
    found[np.isnan(found[:, 1]), 1] = np.inf
    return found


def _covered_s(intervals: FloatArray, end_s: float) -> float:
    """Return the seconds before `end_s` that lie in at least one of `intervals` (n, 2)."""
    total, reached_s = 0.0, 0.0
    for start_s, stop_s in np.minimum(intervals[np.argsort(intervals[:, 0])], end_s).tolist():
        total += max(0.0, stop_s - max(start_s, reached_s))
        reached_s = max(reached_s, stop_s)
    return total

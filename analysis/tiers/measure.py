"""Seconds of a run by tier: training and links of clients, links of edges, and what clients and edges wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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

    They are means over the edges that have clients. Time within the rounds of an edge is divided in the proportions of the phases
    of its clients. Outside of them, models of the edge or of one above are on their way, or the edge waits. Without edges, the
    rounds of the server are divided.
    """
    rounds, end_s = len(run.rounds), float(run.rounds["end_s"].iloc[-1])
    phases = decompose(run_records(run))
    sums = {name: float(phases[name].sum()) for name in phases.columns if name.endswith("_s")}
    # Proportions in which a round of an edge is divided.
    client_phases_s = {
        "compute": sums["compute_s"],
        "links": sums["download_s"] + sums["upload_s"] + sums["resend_s"],
        "edge_wait": sums["queue_s"] + sums["wait_s"] + sums["before_s"],
    }
    if not has_tiers(run):
        edge_s, backhaul_s = float((run.rounds["end_s"] - run.rounds["start_s"]).sum()), 0.0
    else:
        edge_s, backhaul_s = np.mean(_edge_times(run, end_s), axis=0).tolist()
    whole = sum(client_phases_s.values())
    seconds = {name: edge_s * value / whole if whole else 0.0 for name, value in client_phases_s.items()}
    seconds |= {"backhaul": backhaul_s, "wait": max(0.0, end_s - edge_s - backhaul_s)}
    return {name: value / rounds for name, value in seconds.items()}


class _EdgeTimes(NamedTuple):
    """Seconds of an edge over a run."""

    in_rounds_s: float
    """In its own rounds."""
    backhaul_s: float
    """Outside of them, while a model of the edge or of an edge above it is on its way."""


def _edge_times(run: Run, end_s: float) -> list[_EdgeTimes]:
    """Return the times up to `end_s` of each edge with clients: in its rounds, and in transfers of models outside them.

    Edges above other edges have no clients of their own.
    """
    own_rounds = run.arrow("edge_rounds", ["edge", "start_s", "end_s"]).to_pandas().astype({"edge": str})
    attempts = run.arrow("edges").to_pandas().astype({"edge": str})
    # The node above an edge is another edge, by its name, or the server, which has none.
    above = {edge: over for edge, over in zip(attempts["edge"], attempts["above"], strict=True) if isinstance(over, str)}
    times = []
    for edge in sorted(set(own_rounds["edge"]) - set(above.values())):
        chain = [edge]
        while chain[-1] in above:
            chain.append(above[chain[-1]])
        rounds = own_rounds.loc[own_rounds["edge"] == edge, ["start_s", "end_s"]].to_numpy(np.float64)
        # Times in both at once are counted once, as those of rounds.
        with_transfers = np.concatenate([rounds, _transfer_times(attempts[attempts["edge"].isin(chain)])])
        in_rounds_s = _covered_s(rounds, end_s)
        times.append(_EdgeTimes(in_rounds_s, _covered_s(with_transfers, end_s) - in_rounds_s))
    return times


def _transfer_times(attempts: pd.DataFrame) -> FloatArray:
    """Return begin and end (n, 2) in seconds of the transfers of models of edges; inf: under way at the end of the run."""
    by_phase = []
    for phase in ("download", "upload"):
        starts, ends, outcomes = attempts[[f"{phase}_start_s", f"{phase}_end_s", "outcome_s"]].to_numpy(np.float64).T
        # A transfer that was cut short ended with its attempt.
        by_phase.append(np.column_stack([starts, np.where(np.isnan(ends), outcomes, ends)]))
    times: FloatArray = np.concatenate(by_phase)
    times = times[~np.isnan(times[:, 0])]
    # Neither transfer nor attempt had ended.
    times[np.isnan(times[:, 1]), 1] = np.inf
    return times


def _covered_s(intervals: FloatArray, end_s: float) -> float:
    """Return the seconds before `end_s` that lie in at least one of `intervals` (n, 2)."""
    # By start: what lies before `reached_s` has been counted.
    total, reached_s = 0.0, 0.0
    for start_s, stop_s in np.minimum(intervals[np.argsort(intervals[:, 0])], end_s).tolist():
        total += max(0.0, stop_s - max(start_s, reached_s))
        reached_s = max(reached_s, stop_s)
    return total

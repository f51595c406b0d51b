"""Ring or clique, in rounds and in seconds, by the law of the times of training: `netsim reproduce ring_or_clique`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from scenarios.papers.rules import Near, Rule
from scenarios.papers.study import Reproduction, Setup, Size

if TYPE_CHECKING:
    from analysis import Sweep
    from analysis.documents.blocks import Section, Table
    from analysis.statistics.arrays import FloatArray
    from analysis.statistics.intervals import Interval

LAWS = ("constant", "uniform", "exponential")
DATA = ("alike", "skewed")
TARGET = 0.9
MEAN_S = {
    "ring": {"constant": 1.0, "uniform": 1.619, "exponential": 2.270},
    "clique": {"constant": 1.0, "uniform": 1.882, "exponential": 3.397},
}
"""Mean seconds a round of 16 peers, times of training of mean 1 s, messages that take no time: the recursion, 20,000 rounds."""


def sections(done: Sweep) -> list[Section]:
    """Return a table for each measure of the peers, with the ratios of ring and clique at equal seeds."""
    from analysis.documents.blocks import Section

    measures = (
        ("accuracy", "mean model", "Until the mean of all models has 90 %"),
        ("worst_peer_accuracy", "worst tested peer", "Until the worst of the tested peers has 90 %"),
    )
    return [Section("Ring against clique", [_table(done, *measure) for measure in measures])]


def _table(done: Sweep, column: str, what: str, caption: str) -> Table:
    """Return the table of rounds and seconds to the target, for ring and clique, and their ratios."""
    from analysis.documents.blocks import Table
    from analysis.documents.numbers import format_interval
    from analysis.statistics.intervals import mean_interval

    heads = ["data, times"]
    heads += [f"{unit}, {graph}" for unit in ("rounds", "seconds") for graph in ("ring", "clique")]
    heads += ["rounds, ring / clique", "seconds, ring / clique", "reached, ring and clique"]
    rows = []
    for data in DATA:
        for law in LAWS:
            times = {graph: to_target(done, f"{graph}-{law}-{data}", column) for graph in ("ring", "clique")}
            rounds, seconds = ({graph: reached[:, place] for graph, reached in times.items()} for place in (0, 1))
            cells = [format_interval(mean_interval(values[graph])) for values in (rounds, seconds) for graph in times]
            cells += [_ratio_text(ratio(values["ring"], values["clique"])) for values in (rounds, seconds)]
            reached = [f"{np.isfinite(values).sum()} of {len(values)}" for values in rounds.values()]
            rows.append([f"{data}, {law}", *cells, " and ".join(reached)])
    note = (
        f"Accuracy of the {what}. Means over the seeds that reached it, with 95 % intervals; ratios are geometric means at equal "
        "seeds, over those at which both did."
    )
    name = f"to-target-{column.replace('_', '-')}"
    return Table(name, caption, (heads, rows), note=note, words=(0,))


def to_target(done: Sweep, variant: str, column: str) -> FloatArray:
    """Return rounds and seconds (seeds, 2) of each run of `variant` until `column` first is at the target; NaN: never."""
    times = []
    for seed in done.seeds:
        columns = done.run(variant, seed).columns([column, "round", "end_s"])
        reached = np.flatnonzero(columns[column] >= TARGET)
        at = reached[0] if reached.size else None
        times.append([math.nan, math.nan] if at is None else [columns["round"][at], columns["end_s"][at]])
    return np.array(times, np.float64).reshape(-1, 2)


def ratio(first: FloatArray, second: FloatArray) -> Interval:
    """Return the interval of the mean logarithm of `first` over `second`, paired."""
    from analysis.statistics.intervals import mean_interval

    return mean_interval(np.log(first / second))


def _ratio_text(interval: Interval) -> str:
    if not interval.count:
        return "—"
    if math.isnan(interval.half_width):
        return f"{math.exp(interval.mean):.2f}"
    return f"{math.exp(interval.mean):.2f} ({math.exp(interval.low):.2f} to {math.exp(interval.high):.2f})"


def _rules() -> Sequence[Rule]:
    by_graph = [(graph, law, value) for graph, laws in MEAN_S.items() for law, value in laws.items() if law != "constant"]
    return tuple(Near(f"{graph}-{law}-skewed", "mean_round_s", value, 0.05 * value) for graph, law, value in by_graph)


REPRODUCTIONS = (
    Reproduction(
        name="ring_or_clique",
        paper="Study of this project, after Lian et al. 2017",
        shows="Ring or clique: rounds and seconds of D-PSGD by the law of the times of training",
        metrics=("target_s", "mean_round_s", "final_accuracy", "worst_peer_accuracy", "consensus_distance"),
        sections=sections,
        rules=tuple(_rules()),
        notes="The numbers that mean seconds a round are compared with are those of the recursion T_i(k+1) = max T_j(k) + X_i(k) "
        "over a peer and its neighbours; within 5 %. docs/results-peers.md.",
        sizes={
            Size.SMOKE: Setup(seeds=(1,), settings=("rounds=15",)),
            Size.LAPTOP: Setup(seeds=(1, 2, 3), settings=("rounds=50",)),
            Size.FULL: Setup(seeds=tuple(range(1, 11))),
        },
    ),
)

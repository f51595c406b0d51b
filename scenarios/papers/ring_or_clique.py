"""Ring or clique, in rounds and in seconds, by the law of the times of training: `netsim reproduce ring_or_clique`."""

from __future__ import annotations

import math
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
"""Accuracy whose first round and second are compared."""
MEAN_S = {
    "ring": {"constant": 1.0, "uniform": 1.619, "exponential": 2.270},
    "clique": {"constant": 1.0, "uniform": 1.882, "exponential": 3.397},
}
"""Mean seconds a round by the recursion, over 20,000 rounds: 16 peers, training of mean 1 s, messages that take no time."""


def sections(sweep: Sweep) -> list[Section]:
    """Return the section of the result: a table for the mean model, and one for the worst tested peer."""
    from analysis.documents.blocks import Section

    # Column of the rounds' table, its name in the note, and the caption.
    measures = (
        ("accuracy", "mean model", "Until the mean of all models has 90 %"),
        ("worst_peer_accuracy", "worst tested peer", "Until the worst of the tested peers has 90 %"),
    )
    return [Section("Ring against clique", [_table(sweep, *measure) for measure in measures])]


def _table(sweep: Sweep, column: str, model: str, caption: str) -> Table:
    """Return the table of rounds and seconds until `column` is at the target, for ring and clique, with their ratios.

    `model`: the model that `column` measures, in words.
    """
    from analysis.documents.blocks import Table
    from analysis.documents.numbers import format_interval
    from analysis.statistics.intervals import mean_interval

    heads = ["data, times"]
    heads += [f"{unit}, {graph}" for unit in ("rounds", "seconds") for graph in ("ring", "clique")]
    heads += ["rounds, ring / clique", "seconds, ring / clique", "reached, ring and clique"]
    rows = []
    for data in DATA:
        for law in LAWS:
            # Columns: round and second of each seed.
            ring = costs_to_target(sweep, f"ring-{law}-{data}", column)
            clique = costs_to_target(sweep, f"clique-{law}-{data}", column)
            means, ratios = [], []
            for ring_costs, clique_costs in zip(ring.T, clique.T, strict=True):
                means += [format_interval(mean_interval(costs)) for costs in (ring_costs, clique_costs)]
                ratios.append(_ratio_text(log_ratio(ring_costs, clique_costs)))
            reached = [f"{np.isfinite(costs[:, 0]).sum()} of {len(costs)}" for costs in (ring, clique)]
            rows.append([f"{data}, {law}", *means, *ratios, " and ".join(reached)])
    note = (
        f"Accuracy of the {model}. Means over the seeds that reached it, with 95 % intervals; ratios are geometric means at "
        "equal seeds, over those at which both did."
    )
    name = f"to-target-{column.replace('_', '-')}"
    return Table(name, caption, (heads, rows), note=note, words=(0,))


def costs_to_target(sweep: Sweep, variant: str, column: str) -> FloatArray:
    """Return the round and the second (seeds, 2) in which `column` first is at the target, for each run of `variant`.

    NaN where a run never reaches it.
    """
    costs = []
    for seed in sweep.seeds:
        columns = sweep.run(variant, seed).columns([column, "round", "end_s"])
        reached = np.flatnonzero(columns[column] >= TARGET)
        if reached.size:
            first = reached[0]
            costs.append([columns["round"][first], columns["end_s"][first]])
        else:
            costs.append([math.nan, math.nan])
    return np.array(costs, np.float64).reshape(-1, 2)


def log_ratio(first: FloatArray, second: FloatArray) -> Interval:
    """Return the interval of the mean of ln(`first` / `second`) over seeds; pairs with NaN are left out."""
    from analysis.statistics.intervals import mean_interval

    return mean_interval(np.log(first / second))


def _ratio_text(interval: Interval) -> str:
    """Return the geometric mean ratio with its bounds, as text, from the interval of its logarithm; "—" without a pair."""
    if not interval.count:
        return "—"
    if math.isnan(interval.half_width):
        return f"{math.exp(interval.mean):.2f}"
    return f"{math.exp(interval.mean):.2f} ({math.exp(interval.low):.2f} to {math.exp(interval.high):.2f})"


def _rules() -> tuple[Rule, ...]:
    """Return a rule for each graph and random law: the mean round is as long as the recursion says, within 5 %."""
    expected = [(graph, law, mean_s) for graph, laws in MEAN_S.items() for law, mean_s in laws.items() if law != "constant"]
    return tuple(Near(f"{graph}-{law}-skewed", "mean_round_s", mean_s, 0.05 * mean_s) for graph, law, mean_s in expected)


REPRODUCTIONS = (
    Reproduction(
        name="ring_or_clique",
        paper="Study of this project, after Lian et al. 2017",
        shows="Ring or clique: rounds and seconds of D-PSGD by the law of the times of training",
        metrics=("target_s", "mean_round_s", "final_accuracy", "worst_peer_accuracy", "consensus_distance"),
        sections=sections,
        rules=_rules(),
        notes="The numbers that mean seconds a round are compared with are those of the recursion T_i(k+1) = max T_j(k) + X_i(k) "
        "over a peer and its neighbours; within 5 %. docs/results-peers.md.",
        sizes={
            Size.SMOKE: Setup(seeds=(1,), settings=("rounds=15",)),
            Size.LAPTOP: Setup(seeds=(1, 2, 3), settings=("rounds=50",)),
            Size.FULL: Setup(seeds=tuple(range(1, 11))),
        },
    ),
)

"""Tables of a comparison as text: the same cells for the terminal (rich) and for Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis.documents.blocks import Cells
from analysis.documents.numbers import MISSING, UNITS, format_cost, format_interval, format_percent, format_seconds
from analysis.documents.terminal import terminal_table
from analysis.metrics.comparison import TARGETS, Comparison, ComparisonRow, DifferenceRow, compare
from analysis.metrics.registry import metric
from analysis.metrics.targets import Cost
from analysis.results.sweep import Sweep

if TYPE_CHECKING:
    from rich.table import Table

MOST_COLUMNS = 4
"""Most metrics shown in the terminal, as many as fit into 80 characters; the report has all."""
MOST_CUT = 0.9
"""Ratio of the shortest run to the longest below which a warning is given: runs are compared up to the end of the shortest."""


def comparison_cells(comparison: Comparison, metrics: Sequence[str] | None = None) -> Cells:
    """Return header and rows of the comparison, a row for each variant; `metrics` None: those of `Comparison.shown_metrics`."""
    shown = comparison.shown_metrics() if metrics is None else metrics
    header = ["variant", *(heading(comparison, name) for name in shown)]
    return header, [[row.label, *(value_cell(row, comparison, name) for name in shown)] for row in comparison.rows]


def difference_cells(comparison: Comparison, metrics: Sequence[str] | None = None) -> Cells:
    """Return header and rows of the differences to the baseline; `metrics` None: those of `Comparison.shown_metrics`."""
    shown = comparison.shown_metrics() if metrics is None else metrics
    header = ["variant", *(heading(comparison, name).replace("accuracy (%)", "accuracy (points)") for name in shown)]
    return header, [[row.label, *(difference_cell(row, name) for name in shown)] for row in comparison.differences]


def heading(comparison: Comparison, name: str) -> str:
    """Return the heading of the column of metric `name`: title and unit, with the target or the oracle where it has one."""
    if name in TARGETS:
        return _target_title(comparison, TARGETS[name])
    return aoi_regret_title(comparison.oracles) if name == "aoi_regret" else metric(name).heading


def value_cell(row: ComparisonRow, comparison: Comparison, name: str) -> str:
    """Return metric `name` of one variant as text: mean ± half-width; for a target, also the number of runs that reached it."""
    if name in TARGETS:
        return _target_cell(row, comparison, name)
    if name == "max_leak" and math.isinf(row[name].mean):
        return "unprotected"
    text = format_interval(row[name], scale=metric(name).scale)
    if name == "aoi_regret" and len(comparison.oracles) > 1 and row.oracle:
        # Runs were measured against different oracles: each cell names its own.
        text += f" ({row.oracle})"
    return text


def difference_cell(row: DifferenceRow, name: str) -> str:
    """Return a difference to the baseline as text, or the reason why there is none.

    "another oracle": the AoI regrets are against different oracles. "neither": no run of either variant reached the target.
    """
    if name == "aoi_regret" and not row.same_oracle:
        return "another oracle"
    paired = row[name]
    if name in TARGETS and paired.difference.count and paired.reached == paired.baseline_reached == 0:
        return "neither"
    return format_interval(paired.difference, scale=metric(name).scale, signed=True)


def comparison_table(source: Sweep | Comparison) -> Table:
    """Return a table for the terminal: each variant's metrics, mean ± half-width over seeds."""
    comparison = source if isinstance(source, Comparison) else compare(source)
    shown = _terminal_metrics(comparison)
    caption = "; ".join([interval_words(comparison), *extent_words(comparison, shown)])
    return terminal_table(comparison.name, caption, comparison_cells(comparison, shown))


def difference_table(source: Sweep | Comparison) -> Table:
    """Return a table for the terminal: paired differences to the baseline at equal seeds."""
    comparison = source if isinstance(source, Comparison) else compare(source)
    title = f"Variant minus {baseline_label(comparison)}, at equal seeds"
    return terminal_table(title, interval_words(comparison), difference_cells(comparison, _terminal_metrics(comparison)))


_CONSENSUS = ("agreed_s", "disagreement", "messages", "message_bytes")
"""Metrics that describe the consensus phase of clients that decide among themselves, in four columns."""


def _terminal_metrics(comparison: Comparison) -> tuple[str, ...]:
    """Return the metrics for the terminal: those asked for, otherwise the `MOST_COLUMNS` that say most about the study.

    Metrics of ages come first, because a study that measures ages is about them. Bytes to the target come last, unless the study
    counts joules and so is about costs. A study without training whose clients decide among themselves shows their agreement.
    """
    shown = comparison.shown_metrics()
    consensus = tuple(name for name in _CONSENSUS if name in shown)
    if comparison.asked:
        return shown
    if consensus and not comparison.has("final_accuracy"):
        return consensus
    first = ("aoi_regret", "cumulated_age_variance")
    last = () if comparison.has("target_j") else ("target_bytes",)
    # The sort is stable: metrics of one rank stay in the order of tables.
    chosen = sorted(shown, key=lambda name: (name not in first) + (name in last))[:MOST_COLUMNS]
    return tuple(name for name in shown if name in chosen)


def aoi_regret_title(oracles: Sequence[str]) -> str:
    """Return the title of the AoI regret with the name of its oracle, or oracles."""
    return f"AoI regret (oracle {' or '.join(oracles)})" if oracles else "AoI regret"


def interval_words(comparison: Comparison) -> str:
    """Return a phrase that says over how many seeds the numbers of a comparison are averaged, and which interval they have."""
    counts = sorted({row.seeds for row in comparison.rows})
    if not counts:
        return "no runs"
    if counts[-1] == 1:
        return "one seed: no intervals"
    seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"mean over {seeds} seeds ± half-width of the {format_percent(comparison.confidence)} interval"


def extent_words(comparison: Comparison, metrics: Sequence[str] | None = None) -> list[str]:
    """Return phrases on the limits of the comparison: horizons of costs, and the point at which final accuracies are taken.

    A first phrase warns where a round has another meaning for some variants. `metrics`: those in the table; None: those of
    `Comparison.shown_metrics`.
    """
    words = []
    metrics = comparison.shown_metrics() if metrics is None else metrics
    if not comparison.rounds_alike:
        words.append("servers with different rules of rounds: a round of one is not a round of another")
    for name in TARGETS:
        if name in metrics and comparison.has(name):
            text = f"{_target_title(comparison, TARGETS[name])}: mean of {restricted_words(comparison, name)}"
            if name == "target_s" and comparison.smoothing_s:
                text += f", of accuracies averaged over {comparison.smoothing_s:g} s"
            words.append(text)
    if "final_accuracy" in metrics and comparison.has("final_accuracy"):
        if comparison.equal == "bytes":
            where = f"within the first {comparison.until.sent_bytes:,.0f} bytes sent"
        elif comparison.until.time_s:
            where = f"by {format_seconds(comparison.until.time_s)}"
        else:
            where = "(nothing in these runs takes time)"
        words.append(f"final accuracy: mean of the last {comparison.last} evaluations {where}")
    return words


_AMOUNTS: dict[Cost, str] = {"seconds": "time", "bytes": "bytes", "joules": "energy"}


def restricted_words(comparison: Comparison, name: str) -> str:
    """Return the formula by which the cost of a target is cut before averaging, such as "min(time, 20 s)"."""
    cost = TARGETS[name]
    return f"min({_AMOUNTS[cost]}, {format_cost(horizon_of(comparison, cost), cost)})"


def short_run_note(comparison: Comparison) -> str:
    """Return a warning if one run ends so early that much of the other runs is not compared; otherwise ""."""
    ends = [(extent.time_s, label, seed) for label, seed, extent in comparison.extents if extent.rounds]
    if not ends or not (comparison.has("target_s") or comparison.has("final_accuracy")):
        return ""
    shortest_s, label, seed = min(ends, key=lambda end: end[0])
    longest_s = max(end_s for end_s, _, _ in ends)
    if comparison.until.time_s >= MOST_CUT * longest_s:
        return ""
    return (
        f"The runs end at different times, from {format_seconds(shortest_s)} ({label}, seed {seed}) to "
        f"{format_seconds(longest_s)}, and are compared up to the first end alone. Give the scenario a "
        "time_limit_s that ends all of them, and more rounds."
    )


def horizon_of(comparison: Comparison, cost: Cost) -> float:
    """Return the horizon of `cost`, in seconds, bytes or joules, at which costs of the target are cut."""
    return next(comparison.horizons[name] for name, counted in TARGETS.items() if counted == cost)


def baseline_label(comparison: Comparison) -> str:
    """Return the label of the baseline."""
    return next((row.label for row in comparison.rows if row.variant == comparison.baseline), comparison.baseline)


def _target_title(comparison: Comparison, cost: Cost = "seconds") -> str:
    """Return the title of a cost of the target, such as "seconds to 90 %"."""
    return f"{UNITS[cost][0]} to {format_percent(comparison.target_accuracy or 0.0)}"


def _target_cell(row: ComparisonRow, comparison: Comparison, name: str) -> str:
    """Return a cost of the target of one variant as text, with the number of runs that reached it unless all did."""
    cost, interval, reached = TARGETS[name], row[name], row.reached[name]
    # Every run knows its seconds; other costs, such as joules, may be unknown to all runs.
    if cost != "seconds" and interval.count == 0:
        return MISSING
    if reached == 0:
        return f"not by {format_cost(horizon_of(comparison, cost), cost)}"
    text = format_interval(interval, scale=UNITS[cost][1])
    return text if reached == row.seeds else f"{text} ({reached} of {row.seeds})"

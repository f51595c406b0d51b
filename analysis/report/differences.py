"""The table of intervals of differences: Student-t, bootstrap and simultaneous intervals, and verdicts on equivalence."""

from __future__ import annotations

import math
from collections.abc import Mapping

from analysis.documents.blocks import Table
from analysis.documents.comparison_tables import baseline_label, difference_cell, heading
from analysis.documents.numbers import MISSING, format_number, format_percent
from analysis.metrics.comparison import Comparison, DifferenceRow
from analysis.metrics.differences import is_comparable, paired_values, simultaneous_difference
from analysis.metrics.registry import metric
from analysis.statistics.inference import Bounds, bootstrap_interval, simultaneous_confidence, verdict

MOST_ROWS = 150
"""Most rows of the table. If there would be more, only the first metrics are kept, at least one, and those with margins."""


def interval_table(comparison: Comparison, margins: Mapping[str, float] | None = None) -> Table | None:
    """Return the table of differences to the baseline: a row for each metric and variant, with intervals and a verdict.

    `margins`: metric to the difference that counts as none, in the metric's own unit. The result is None if there is nothing to
    compare, or one seed only.
    """
    margins = margins or {}
    names = [name for name in comparison.shown_metrics() if name != "simulated_s" or name in margins]
    names += [name for name in margins if name not in names and name in comparison.metrics]
    if not comparison.differences or max((row.seeds for row in comparison.rows), default=0) < 2:
        return None
    all_names = len(names)
    if all_names * len(comparison.differences) > MOST_ROWS:
        most = max(1, MOST_ROWS // len(comparison.differences))
        names = [name for index, name in enumerate(names) if index < most or name in margins]
    rows = [
        _interval_row(comparison, row, name, margins)
        for name in names
        for row in comparison.differences
        if is_comparable(row, name)
    ]
    if not rows:
        return None
    level = format_percent(comparison.confidence)
    several = len(comparison.differences)
    together = f"{level} together: intervals of all {several} variants hold together by this metric, each at "
    together += f"{format_percent(round(simultaneous_confidence(comparison.confidence, several), 6))} (Bonferroni)."
    if several == 1:
        together = f"{level} together: as Student's, since one variant is compared."
    note = (
        f"{level} t: Student's interval of the paired differences. Bootstrap: studentised (Efron and Tibshirani 1993), of five "
        f"seeds or more. {together}"
    )
    if len(names) < all_names:
        note += f" Of {all_names} metrics {len(names)} are here; the others: --metric NAME."
    if margins:
        note += " Equivalent: the t interval lies within the margin (two one-sided tests); different: outside of it; else open."
    header = ["metric", "variant", "difference", f"{level} t", f"{level} bootstrap", f"{level} together"]
    caption = f"Intervals of the differences to {baseline_label(comparison)}"
    header += ["margin", "verdict"] if margins else []
    return Table("intervals", caption, (header, rows), note=note, words=(0, 1, 7))


def _interval_row(comparison: Comparison, row: DifferenceRow, name: str, margins: Mapping[str, float]) -> list[str]:
    """Return the cells of the difference of one metric and variant; margin and verdict only if any metric has a margin."""
    scale, difference = metric(name).scale, row[name].difference
    bounds = bootstrap_interval(paired_values(comparison, row.variant, name), comparison.confidence)
    together = simultaneous_difference(comparison, row, name)
    cells = [heading(comparison, name), row.label, difference_cell(row, name)]
    intervals = (Bounds(difference.low, difference.high), bounds, Bounds(together.low, together.high))
    cells += [_bounds_text(interval, scale) for interval in intervals]
    if not margins:
        return cells
    if name not in margins:
        return [*cells, "", ""]
    return [*cells, format_number(margins[name] * scale), verdict(difference, margins[name])]


def _bounds_text(bounds: Bounds, scale: float) -> str:
    """Return an interval as text, such as "-1.2 to +3.4"; `scale`: factor from the metric's own unit to the one shown."""
    if math.isnan(bounds.low):
        return MISSING
    return f"{format_number(bounds.low * scale, signed=True)} to {format_number(bounds.high * scale, signed=True)}"

"""Figure of training without a server: accuracy of the mean model, the worst and the best peer, and the consensus distance."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import PercentFormatter

from analysis.figures.lines import curve_note, curves_of, draw_lines, round_columns
from analysis.figures.settings import PLAIN, Look
from analysis.figures.style import ShownFigure, finish_figure, new_figure
from analysis.results.groups import Groups
from analysis.results.run import Run
from analysis.statistics.arrays import Curve

if TYPE_CHECKING:
    from matplotlib.lines import Line2D

_PANELS = {
    "accuracy": "accuracy of the mean model",
    "worst_peer_accuracy": "accuracy of the worst peer",
    "best_peer_accuracy": "accuracy of the best peer",
    "consensus_distance": "consensus distance",
}
"""Columns of rounds, with the label of their panel."""


def peers_figure(groups: Groups, *, look: Look = PLAIN) -> ShownFigure | None:
    """Draw accuracies of the mean model and of peers, and the consensus distance, against seconds; None without such."""

    curves_by_column = {column: curves_of(groups, partial(_column_curve, column=column)) for column in _PANELS}
    if not any(curves_by_column["worst_peer_accuracy"].values()):
        return None
    with look.apply():
        figure, panels = new_figure((1.0, 1.0), rows=2, share_y=False, size_in=(7.2, 5.6), look=look)
        lines: list[tuple[Line2D, str]] = []
        for axes, (column, label) in zip(panels, _PANELS.items(), strict=True):
            curves = curves_by_column[column]
            if column == "consensus_distance":
                distances = draw_lines(axes, curves, limits=(np.finfo(np.float64).tiny, np.inf))
                axes.set_yscale("log", nonpositive="clip")
                # The means set the bounds: an interval of a few seeds may reach down to 0, which would flatten every line.
                means = np.concatenate([[], *(np.asarray(line.get_ydata(), np.float64) for line, _ in distances)])
                if means.size:
                    axes.set_ylim(means.min() / 3.0, means.max() * 3.0)
            else:
                lines = draw_lines(axes, curves, limits=(0.0, 1.0)) or lines
                axes.set_ylim(0.0, 1.0)
                axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
            axes.set(xlabel="simulated time (s)", ylabel=label)
        note = curve_note(curves_by_column["accuracy"], "each evaluation")
        finish_figure(figure, "Models of peers", note, lines, look=look)
    return figure


def _column_curve(run: Run, *, column: str) -> Curve:
    """Return the values of a column of rounds that are known, against the ends of their rounds in seconds."""
    ends_s, values = round_columns(run, "end_s", column)
    shown = np.isfinite(values)
    if column == "consensus_distance":
        # A distance of 0 has no place on a logarithmic axis.
        shown &= values > 0.0
    return ends_s[shown], values[shown]

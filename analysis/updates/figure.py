"""Figures of updates: deliveries over time, and outcomes of attempts."""

from __future__ import annotations

import numpy as np
from matplotlib.ticker import FuncFormatter, PercentFormatter

from analysis.figures.bars import bars_in_words, stacked_bars
from analysis.figures.lines import curve_note, curves_of, draw_lines, round_columns, thin_curve, time_axis
from analysis.figures.settings import PLAIN, Look
from analysis.figures.style import ShownFigure, finish_figure, new_figure, row_height_in
from analysis.results.groups import Groups
from analysis.results.run import OUTCOMES, Run
from analysis.statistics.arrays import Curve, FloatArray


def delivered_figure(groups: Groups, *, look: Look = PLAIN) -> ShownFigure | None:
    """Draw updates delivered against simulated time, the one clock of all servers; None without deliveries or time."""

    def curve(run: Run) -> Curve:
        """Return the updates delivered up to the end of each round, in seconds; empty without deliveries or time."""
        end_s, delivered = round_columns(run, "end_s", "delivered")
        if not delivered.any() or not end_s.size or end_s[-1] <= 0.0:
            return np.empty(0), np.empty(0)
        return thin_curve((np.concatenate([[0.0], end_s]), np.concatenate([[0.0], delivered.cumsum()])))

    curves = curves_of(groups, curve)
    if not any(curves.values()):
        return None
    with look.apply():
        figure, (axes,) = new_figure(look=look)
        last_s = max(float(x[-1]) for group in curves.values() for x, _ in group)
        lines = draw_lines(axes, curves, np.linspace(0.0, last_s, 1000))
        axes.set(xlabel="simulated time (s)", ylabel="updates delivered")
        axes.set_ylim(bottom=0.0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        time_axis(axes)
        finish_figure(figure, "Updates delivered", curve_note(curves, "counted at the close of rounds"), lines, look=look)
    return figure


def outcomes_figure(groups: Groups, *, look: Look = PLAIN) -> ShownFigure | None:
    """Draw the shares of outcomes of attempts, a bar a variant; None where every attempt that ended was delivered."""
    shares: dict[str, FloatArray] = {}
    for label, runs in groups.items():
        totals = [run.summary["totals"] for run in runs if (run.summary.get("totals") or {}).get("selected")]
        counts = np.array([[total.get(name, 0) for name in OUTCOMES] for total in totals], np.float64)
        if counts.size:
            # Every seed counts once, however many attempts it made.
            shares[label] = (counts / counts.sum(axis=1, keepdims=True)).mean(axis=0)
    if not shares or not any(share[1:-1].any() for share in shares.values()):
        return None
    names = [name.replace("_", " ") for name in OUTCOMES]
    seeds = max(len(runs) for runs in groups.values())
    note = "shares of attempts begun"
    if seeds > 1:
        note += f", mean over {seeds} seeds"
    with look.apply():
        figure, (axes,) = new_figure(size_in=(7.2, 1.6 + row_height_in(shares, 0.36) * len(shares)), look=look)
        legend = stacked_bars(axes, {label: share.tolist() for label, share in shares.items()}, names)
        axes.set(xlabel="share of attempts", xlim=(0.0, 1.0))
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        finish_figure(figure, "How attempts ended", note, legend, look=look)
        figure.description = bars_in_words({label: share.tolist() for label, share in shares.items()}, names, "{:.1%}")
    return figure

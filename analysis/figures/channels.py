"""The figures of channel scheduling: AoI regret and variance over rounds, deliveries by client, declared and true changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from analysis.figures.lines import abscissa, curve_note, curves_of, draw_lines, round_axis, round_columns, round_edges, thinned
from analysis.figures.settings import PLAIN, Look, Over
from analysis.figures.style import AXIS, FAINT, INK, LETTERS, ShownFigure, drawable, headline, line_style, new_figure, row_in
from analysis.groups import Bound, Groups
from analysis.report.detections import Cause, DetectionScore, declared_rounds, run_detections
from analysis.results import Run
from analysis.statistics import Curve, delivery_shares, moving_mean, oracle_name

MARKERS: dict[Cause, tuple[str, str]] = {
    "change": ("o", "change found"),
    "jamming": ("s", "restart by jamming"),
    "false alarm": ("X", "false alarm"),
}
"""How a declaration is drawn, by its cause, and what the legend says."""


def aoi_regret_figure(
    groups: Groups, *, bounds: Sequence[Bound] = (), over: Over | None = None, look: Look = PLAIN
) -> ShownFigure | None:
    """AoI regret (Li et al., eq. 14) against rounds or seconds; None where no run measured it.

    With `bounds`, which are of rounds, the horizontal axis is of rounds; both axes are logarithmic then, and the vertical one
    begins at 1: bounds lie orders of magnitude above.
    """
    along = abscissa(groups, "rounds" if bounds else over)

    def curve(run: Run) -> Curve:
        number, mine, oracle = round_columns(run, along.column, "sum_age", "oracle_sum_age")
        regret = mine - oracle
        measured = ~np.isnan(regret)
        return thinned((number[measured], np.cumsum(regret[measured])))

    curves = curves_of(groups, curve)
    if not any(curves.values()):
        return None
    with look.applied():
        figure, (axes,) = new_figure(look=look)
        grid = along.grid(curves)
        lines = draw_lines(axes, curves, grid)
        note = curve_note(curves, "sum over clients and rounds of age minus the oracle's age on the same channel states")
        for index, bound in enumerate(bounds):
            values = bound.values(grid)
            # A bound at one horizon is a point, which a line alone would not show.
            marker = "D" if np.count_nonzero(~np.isnan(values)) == 1 else "None"
            style = line_style(index)["linestyle"]
            (line,) = axes.plot(grid, values, color=FAINT, linewidth=1.2, linestyle=style, marker=marker, markersize=4.0)
            lines.append((line, bound.label))
            note += f"; {bound.label}: {bound.constants}"
        axes.set_ylabel("AoI regret (rounds of age)")
        along.label(axes)
        if bounds:
            axes.set_xscale("log")
            axes.set_yscale("log", nonpositive="clip")
            axes.set_xlim(left=min(10.0, float(grid[-1])))
            axes.set_ylim(bottom=1.0)
            note += "; regrets below 1 are not shown"
        else:
            axes.axhline(0.0, color=AXIS, linewidth=0.8, zorder=1)
        headline(figure, f"AoI regret against the oracle {_oracles(groups)}", note, lines, look=look)
    return figure


def _oracles(groups: Groups) -> str:
    names = dict.fromkeys(oracle_name(run) for runs in groups.values() for run in runs)
    return " or ".join(f'"{name}"' for name in names if name)


def aoi_variance_figure(
    groups: Groups, *, window: int | None = None, over: Over | None = None, look: Look = PLAIN
) -> ShownFigure | None:
    """AoI variance (Li et al., eq. 37), as a moving mean over `window` rounds, and cumulated; None without ages.

    Without a `window` over a fiftieth of the run.
    """
    along = abscissa(groups, over)
    windows: set[int] = set()

    def smooth(run: Run) -> Curve:
        number, variance = round_columns(run, along.column, "age_variance")
        measured = ~np.isnan(variance)
        width = window or max(1, int(measured.sum()) // 50)
        if measured.any():
            windows.add(width)
        return thinned((number[measured], moving_mean(variance[measured], width)))

    def total(run: Run) -> Curve:
        number, variance = round_columns(run, along.column, "age_variance")
        measured = ~np.isnan(variance)
        return thinned((number[measured], np.cumsum(variance[measured])))

    over_rounds = curves_of(groups, smooth)
    if not any(over_rounds.values()):
        return None
    cumulated = curves_of(groups, total)
    with look.applied():
        figure, (left, right) = new_figure((1.0, 1.0), share_y=False, look=look)
        lines = draw_lines(left, over_rounds, along.grid(over_rounds))
        draw_lines(right, cumulated, along.grid(cumulated))
        # A client that is out of luck for long counts with the square of its age: single rounds lie decades apart.
        lowest = min((float(y[y > 0.0].min()) for line, _ in lines for y in [line.get_ydata()] if (y > 0.0).any()), default=1.0)
        left.set_yscale("log", nonpositive="clip")
        left.set_ylim(bottom=lowest / 2.0)
        right.set_ylim(bottom=0.0)
        for axes, label in ((left, "AoI variance of a round (rounds²)"), (right, "cumulated AoI variance (rounds²)")):
            axes.set_ylabel(label)
            along.label(axes)
            axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=along.over == "rounds"))
        widths = " to ".join(str(window) for window in sorted({min(windows), max(windows)}))
        note = curve_note(over_rounds, f"sum over clients of (age - mean age)²; left: moving mean of {widths} rounds")
        headline(figure, "Variance of the age of information", note, lines, look=look)
    return figure


def deliveries_figure(groups: Groups, *, look: Look = PLAIN) -> ShownFigure | None:
    """Share of rounds in which each client's update was delivered; None without the asynchronous server's counts."""

    def curve(run: Run) -> Curve:
        share = delivery_shares(run)
        return np.arange(share.size, dtype=np.float64), share

    curves = curves_of(groups, curve)
    if not any(curves.values()):
        return None
    with look.applied():
        figure, (axes,) = new_figure(look=look)
        lines = draw_lines(axes, curves, np.arange(max(x.size for group in curves.values() for x, _ in group), dtype=np.float64))
        for line, _ in lines:
            line.set(marker="o", markersize=4.5)
        axes.set_ylim(bottom=0.0)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        axes.set(xlabel="client", ylabel="rounds with a delivery")
        round_axis(axes)
        headline(figure, "Deliveries by client", curve_note(curves, "deliveries over rounds"), lines, look=look)
    return figure


def detections_figure(groups: Groups, *, over: Over | None = None, look: Look = PLAIN) -> ShownFigure | None:
    """Declared and true changes of each variant's first run, with the counts of all its runs; None where none is declared."""
    scores = {label: [run_detections(run) for run in runs] for label, runs in groups.items()}
    shown = [label for label, scored in scores.items() if any(score.causes for score in scored)]
    if not shown:
        return None
    along = abscissa(groups, over)
    edges = {label: round_edges(groups[label][0], along) for label in shown}
    with look.applied():
        figure, (axes,) = new_figure(size_in=(7.2, 1.7 + row_in(shown, 0.42) * len(shown)), look=look)
        for place, label in enumerate(shown):
            score = scores[label][0]
            colour = line_style(list(groups).index(label))["color"]
            changed = edges[label][groups[label][0].row_of(score.changes or ()) - 1]
            axes.vlines(changed, place - 0.36, place + 0.36, color=FAINT, linewidth=1.2, zorder=1)
            told = edges[label][declared_rounds(groups[label][0])]
            for cause, (marker, _) in MARKERS.items():
                at = told[[found == cause for found in score.causes]]
                faces = "white" if cause == "jamming" else colour
                axes.plot(at, np.full(len(at), place), marker, color=colour, mfc=faces, ms=6, ls="none", zorder=3)
        names = [f"{drawable(label, LETTERS)}\n{_counts(scores[label])}" for label in shown]
        axes.set_yticks(range(len(shown)), names, fontsize="small")
        axes.set_ylim(len(shown) - 0.5, -0.5)
        along.label(axes)
        axes.set_xlim(0.0, max(float(edge[-1]) for edge in edges.values()))
        axes.grid(visible=False)
        used = {cause for label in shown for cause in scores[label][0].causes}
        lines = [(Line2D([], [], color=FAINT, lw=1.2), "change of means")] if any(scores[n][0].changes for n in shown) else []
        lines += [
            (Line2D([], [], color=INK, marker=marker, ls="none", mfc="white" if cause == "jamming" else INK), words)
            for cause, (marker, words) in MARKERS.items()
            if cause in used
        ]
        seeds = max(len(scores[label]) for label in shown)
        drawn = f"drawn: seed {groups[shown[0]][0].seed}; counts: all {seeds} seeds" if seeds > 1 else ""
        headline(figure, "Declared changes", drawn, lines, look=look)
    return figure


def _counts(scored: Sequence[DetectionScore]) -> str:
    changes = sum(len(score.changes or ()) for score in scored)
    found = sum(len(score.delays_rounds) for score in scored)
    alarms = sum(sum(score.false_alarms.values()) for score in scored)
    jamming = sum(sum(score.jamming.values()) for score in scored)
    words = [f"{found:,} of {changes:,} found"] if changes else []
    words += [f"{jamming:,} by jamming"] if jamming else []
    return ", ".join([*words, f"{alarms:,} false"])

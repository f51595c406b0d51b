"""The figure of ages: a map of the age of each client in each round."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter

from analysis.ages.measure import ages
from analysis.figures.lines import abscissa, curve_note, curves_of, draw_lines, round_axis, round_columns, round_edges, thin_curve
from analysis.figures.settings import PLAIN, Bound, Look, Over
from analysis.figures.style import ShownFigure, drawable_text, finish_figure, line_style, new_figure
from analysis.figures.theme import AXIS, FAINT
from analysis.metrics.run_metrics import delivery_shares, oracle_name
from analysis.results.groups import Groups
from analysis.results.run import Run
from analysis.statistics.arrays import Curve, FloatArray
from analysis.statistics.curves import moving_mean

MOST_PANELS = 6
"""Variants that one figure shows."""
MOST_COLUMNS, MOST_ROWS = 600, 300
"""Most rounds and clients that a map shows one by one; beyond that, neighbours share a cell."""


class _AgeMap(NamedTuple):
    """Ages by round and client, or the largest in cells of several rounds and clients."""

    age: FloatArray
    """(cells, cells)."""
    round_edges: FloatArray
    """Edges of the cells along the rounds, (cells + 1,)."""
    client_edges: FloatArray
    """Edges of the cells along the clients, (cells + 1,)."""


def _coarsen(age: FloatArray, round_edges: FloatArray) -> _AgeMap:
    """Return a map of `age` (rounds, K) with at most `MOST_COLUMNS` by `MOST_ROWS` cells; a cell shows its largest age.

    `round_edges`: edges of the rounds on the axis, (rounds + 1,).
    """
    cell_edges = [round_edges, np.arange(age.shape[1] + 1) - 0.5]
    for axis, most in ((0, MOST_COLUMNS), (1, MOST_ROWS)):
        count = age.shape[axis]
        if count > most:
            starts = np.unique(np.linspace(0, count, most, endpoint=False).astype(np.int64))
            age = np.maximum.reduceat(age, starts, axis=axis)
            cell_edges[axis] = cell_edges[axis][np.append(starts, count)]
    return _AgeMap(age, *cell_edges)


def ages_figure(groups: Groups, *, over: Over | None = None, look: Look = PLAIN) -> ShownFigure | None:
    """Draw a map of ages, clients against rounds or seconds, for the first run of each variant.

    One scale of colours holds for all panels. None if no run has records of clients and more than one round. `over`: the axis
    that the user chose, or None.
    """
    # Ages (rounds, K) of each variant drawn, and the edges of its rounds on the axis.
    maps: dict[str, tuple[FloatArray, FloatArray]] = {}
    seeds: dict[int, None] = {}  # of the runs drawn, in their order
    along = abscissa(groups, over)
    for label, runs in groups.items():
        if len(maps) == MOST_PANELS or not runs:
            continue
        first_run = runs[0]
        age = ages(first_run)
        edges = round_edges(first_run, along)
        # Over seconds, a run whose rounds take no time has no width.
        if age.shape[0] > 1 and age.shape[1] > 1 and edges[-1] > edges[0]:
            maps[label] = (age, edges)
            seeds[first_run.seed] = None
    if not maps:
        return None
    # A few extreme ages must not use up the colours of the scale.
    highest = max(float(np.quantile(age, 0.995)) for age, _ in maps.values())
    columns = min(2, len(maps))
    rows = math.ceil(len(maps) / columns)
    with look.apply():
        height_in = 1.4 + 2.3 * rows if columns > 1 else 3.6
        figure, panels = new_figure((1.0,) * columns, rows=rows, size_in=(7.2, height_in), share_y=False, look=look)
        # Characters in a row of a panel's title: panels take about 3/4 of the width, the rest is for labels beside them; a
        # character is about 0.56 times as wide as the font is high, and an inch has 72 points.
        title_length = max(12, int(0.75 * figure.get_figwidth() / columns * 72.0 / (0.56 * look.font_size)))
        for axes, (label, (age, edges)) in zip(panels, maps.items(), strict=False):
            cells, x_edges, y_edges = _coarsen(age, edges)
            # A round is as wide as its duration.
            image = axes.pcolorfast(x_edges, y_edges, cells.T, cmap="cividis", vmin=1.0, vmax=max(2.0, highest))
            axes.set_title(drawable_text(label, title_length), fontsize="medium", loc="left")
            axes.set(xlabel=along.unit, ylabel="client")
            axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
            axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=along.over == "rounds"))
            axes.grid(visible=False)
        for axes in panels[len(maps) :]:
            axes.set_visible(False)
        figure.colorbar(image, ax=panels, label="age (rounds)", pad=0.015, extend="max")
        left_out = len(groups) - len(maps)
        note = f"rounds since a client was last heard; seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
        note += f"; {left_out} further variants are not drawn" if left_out else ""
        finish_figure(figure, "Age of information", note, [], look=look)
        means = ", ".join(f"{label} {float(age.mean()):.3g}" for label, (age, _) in maps.items())
        figure.description = f"Maps of ages, clients against {along.unit}. Mean ages in rounds: {means}."
    return figure


def aoi_regret_figure(
    groups: Groups, *, bounds: Sequence[Bound] = (), over: Over | None = None, look: Look = PLAIN
) -> ShownFigure | None:
    """Draw the AoI regret (Li et al., eq. 14) against rounds or seconds; None where no run measured it.

    `bounds` are functions of rounds: with them the horizontal axis counts rounds. Both axes are then logarithmic, and the
    vertical one begins at 1, because bounds lie orders of magnitude above regrets.
    """
    along = abscissa(groups, "rounds" if bounds else over)

    def regret_curve(run: Run) -> Curve:
        """Return the running sum of the AoI regret, over the rounds that measured it."""
        x, sum_age, oracle_sum_age = round_columns(run, along.column, "sum_age", "oracle_sum_age")
        regret = sum_age - oracle_sum_age
        measured = ~np.isnan(regret)
        return thin_curve((x[measured], np.cumsum(regret[measured])))

    curves = curves_of(groups, regret_curve)
    if not any(curves.values()):
        return None
    with look.apply():
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
        finish_figure(figure, f"AoI regret against the oracle {_oracles(groups)}", note, lines, look=look)
    return figure


def _oracles(groups: Groups) -> str:
    """Return the names of the runs' oracles, quoted and joined by "or"."""
    names = dict.fromkeys(oracle_name(run) for runs in groups.values() for run in runs)
    return " or ".join(f'"{name}"' for name in names if name)


def aoi_variance_figure(
    groups: Groups, *, window: int | None = None, over: Over | None = None, look: Look = PLAIN
) -> ShownFigure | None:
    """Draw the AoI variance (Li et al., eq. 37), as a moving mean over `window` rounds, and cumulated; None without ages.

    `window`: None means a fiftieth of the run.
    """
    along = abscissa(groups, over)
    widths_used: set[int] = set()

    def smoothed_variance(run: Run) -> Curve:
        """Return the moving mean of the variances of `run`, and add its width to `widths_used`."""
        x, variance = round_columns(run, along.column, "age_variance")
        measured = ~np.isnan(variance)
        width = max(1, int(measured.sum()) // 50) if window is None else window
        if measured.any():
            widths_used.add(width)
        return thin_curve((x[measured], moving_mean(variance[measured], width)))

    def cumulated_variance(run: Run) -> Curve:
        """Return the sum of the variances up to each round."""
        x, variance = round_columns(run, along.column, "age_variance")
        measured = ~np.isnan(variance)
        return thin_curve((x[measured], np.cumsum(variance[measured])))

    smoothed = curves_of(groups, smoothed_variance)
    if not any(smoothed.values()):
        return None
    cumulated = curves_of(groups, cumulated_variance)
    with look.apply():
        figure, (left, right) = new_figure((1.0, 1.0), share_y=False, look=look)
        lines = draw_lines(left, smoothed, along.grid(smoothed))
        draw_lines(right, cumulated, along.grid(cumulated))
        # Logarithmic: ages enter with their squares, so that rounds differ by orders of magnitude.
        heights = [np.asarray(line.get_ydata()) for line, _ in lines]
        lowest = min((float(y[y > 0.0].min()) for y in heights if (y > 0.0).any()), default=1.0)
        left.set_yscale("log", nonpositive="clip")
        left.set_ylim(bottom=lowest / 2.0)
        right.set_ylim(bottom=0.0)
        for axes, label in ((left, "AoI variance of a round (rounds²)"), (right, "cumulated AoI variance (rounds²)")):
            axes.set_ylabel(label)
            along.label(axes)
            axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=along.over == "rounds"))
        widths = " to ".join(str(width) for width in sorted({min(widths_used), max(widths_used)}))
        note = curve_note(smoothed, f"sum over clients of (age - mean age)²; left: moving mean of {widths} rounds")
        finish_figure(figure, "Variance of the age of information", note, lines, look=look)
    return figure


def deliveries_figure(groups: Groups, *, look: Look = PLAIN) -> ShownFigure | None:
    """Draw the share of rounds in which each client's update was delivered; None without the asynchronous server's counts."""

    def share_by_client(run: Run) -> Curve:
        """Return the share of rounds with a delivery, by client."""
        share = delivery_shares(run)
        return np.arange(share.size, dtype=np.float64), share

    curves = curves_of(groups, share_by_client)
    if not any(curves.values()):
        return None
    with look.apply():
        figure, (axes,) = new_figure(look=look)
        most_clients = max(clients.size for clients, _ in itertools.chain(*curves.values()))
        lines = draw_lines(axes, curves, np.arange(most_clients, dtype=np.float64))
        for line, _ in lines:
            line.set(marker="o", markersize=4.5)
        axes.set_ylim(bottom=0.0)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        axes.set(xlabel="client", ylabel="rounds with a delivery")
        round_axis(axes)
        finish_figure(figure, "Deliveries by client", curve_note(curves, "deliveries over rounds"), lines, look=look)
    return figure

"""Figures of accuracy against seconds, bytes or joules, with the hits of a target; and the share of runs that reached it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, PercentFormatter

from analysis.documents.numbers import UNITS, format_cost, format_percent
from analysis.figures.lines import MOST_POINTS, abscissa, cost_axis, curve_note, curves_of, draw_lines, round_columns, time_axis
from analysis.figures.settings import PLAIN, Look, Over
from analysis.figures.style import ShownFigure, finish_figure, line_style, new_figure
from analysis.figures.theme import FAINT, NOTE
from analysis.metrics.targets import COST_COLUMNS, Cost, common_extent, first_reached, run_extent, running_cost, smooth_accuracy
from analysis.results.groups import Groups
from analysis.results.run import Run
from analysis.statistics.arrays import Curve, FloatArray
from analysis.statistics.intervals import restricted_mean
from analysis.statistics.survival import share_reached

if TYPE_CHECKING:
    from matplotlib.lines import Line2D

_AXES: dict[Cost, tuple[str, str, str]] = {
    "seconds": ("Accuracy against simulated time", "simulated time (s)", "time"),
    "bytes": ("Accuracy against bytes sent", "sent to clients and by them (MB)", "bytes"),
    "joules": ("Accuracy against energy", "drawn by all clients, idle ones included (kJ)", "energy"),
}
"""Title of the figure, label of its horizontal axis, and the quantity on it."""


@dataclass(frozen=True, slots=True)
class _Hits:
    """Costs at which the evaluated runs of one variant reach the target, and at which they end."""

    costs: list[float]
    """inf: the target is not reached within the run."""
    ends: list[float]


def run_accuracy(run: Run, smoothing_s: float, cost: Cost = "seconds") -> Curve:
    """Return the curve of accuracies of a run, averaged over the last `smoothing_s` seconds, against their cost."""
    times_s, accuracy, *columns = round_columns(run, "end_s", "accuracy", *COST_COLUMNS[cost])
    return smooth_accuracy(running_cost(cost, columns), times_s, accuracy, smoothing_s)


def accuracy_figure(
    groups: Groups,
    *,
    cost: Cost = "seconds",
    target_accuracy: float | None = None,
    smoothing_s: float = 0.0,
    horizon: float | None = None,
    look: Look = PLAIN,
) -> ShownFigure | None:
    """Draw test accuracies, averaged over the last `smoothing_s` seconds, against their cost; None where no run has both.

    The target accuracy is a horizontal line. On it, a tick marks where each run first reaches the target, and a diamond the
    restricted mean of each variant with its interval, as in tables. `horizon`: seconds, bytes or joules at which costs are cut
    for that mean; None: the cost that every run reaches. Bytes and joules are on a logarithmic axis, because variants differ in
    them by factors.
    """
    scale = UNITS[cost][1]

    def curve_in_units(run: Run) -> Curve:
        """Return the accuracies of a run against their cost, in the unit of the axis."""
        costs, accuracy = run_accuracy(run, smoothing_s, cost)
        return costs * scale, accuracy

    title, axis_label, quantity = _AXES[cost]
    curves = curves_of(groups, curve_in_units)
    if not any(curves.values()):
        return None
    note = curve_note(curves, f"mean of the last {smoothing_s:g} s" if smoothing_s else "each evaluation")
    with look.apply():
        figure, (axes,) = new_figure(look=look)
        grid = None if cost == "seconds" else _geometric_grid(curves)
        lines = draw_lines(axes, curves, grid, limits=(0.0, 1.0))
        for line, _ in lines:
            # Mark the end of each line: runs of a fixed number of rounds end at different times.
            x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
            axes.plot(x[-1:], y[-1:], "o", color=line.get_color(), ms=4.5, zorder=4)
        if target_accuracy is not None:
            if horizon is None:
                horizon = common_extent(run for runs in groups.values() for run in runs).amount(cost)
            hits = _hits(groups, target_accuracy, smoothing_s, cost)
            _mark_target(axes, hits, target=target_accuracy, horizon=horizon, scale=scale)
            restricted = f"min({quantity}, {format_cost(horizon, cost)})"
            note += f"; ticks: runs at the target, diamonds: mean of {restricted} with its interval"
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        axes.set(xlabel=axis_label, ylabel="test accuracy")
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, -0.02), min(high, 1.02))
        if cost == "seconds":
            time_axis(axes)
        else:
            cost_axis(axes)
        finish_figure(figure, title, note, lines, look=look)
    return figure


def _geometric_grid(curves: Mapping[str, Sequence[Curve]]) -> FloatArray | None:
    """Return abscissae (n,) at equal distances on a logarithmic axis, over all curves; None if every label has one curve at most.

    A single curve is drawn at its own abscissae.
    """
    if all(len(group) < 2 for group in curves.values()):
        return None
    abscissae = np.concatenate([x for group in curves.values() for x, _ in group])
    return np.geomspace(abscissae[abscissae > 0.0].min(), abscissae.max(), MOST_POINTS)


def reached_figure(groups: Groups, *, target_accuracy: float, smoothing_s: float = 0.0, look: Look = PLAIN) -> ShownFigure | None:
    """Draw the share of runs that have reached the target against simulated time (Kaplan-Meier); None without evaluations.

    Runs that ended before they reached the target count up to their end, where they have a cross.
    """
    hits = _hits(groups, target_accuracy, smoothing_s, "seconds")
    if not any(hit.costs for hit in hits.values()):
        return None
    lines = []
    with look.apply():
        figure, (axes,) = new_figure(look=look)
        for index, (label, hit) in enumerate(hits.items()):
            if not hit.costs:
                continue
            reached = share_reached(hit.costs, hit.ends)
            style = line_style(index)
            (line,) = axes.step(reached.times_s, reached.share, where="post", **style)
            # A cross stands on the step that holds at the end of its run.
            steps = np.searchsorted(reached.times_s, reached.censored_s, side="right") - 1
            axes.plot(reached.censored_s, reached.share[steps], "x", color=style["color"], ms=6.0, zorder=4)
            lines.append((line, label))
        axes.set(xlabel="simulated time (s)", ylabel="share of runs", ylim=(-0.02, 1.02))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
        time_axis(axes)
        counts = {len(hit.costs) for hit in hits.values() if hit.costs}
        least, most = min(counts), max(counts)
        count_text = f"{least}" if least == most else f"{least} to {most}"
        note = f"Kaplan-Meier, {count_text} runs a variant; crosses: runs that ended before they reached the target"
        finish_figure(figure, f"Runs that have reached {format_percent(target_accuracy)}", note, lines, look=look)
    return figure


def _hits(groups: Groups, target_accuracy: float, smoothing_s: float, cost: Cost) -> dict[str, _Hits]:
    """Return by label the costs at which its evaluated runs reach the target. Labels without such runs stay, to keep colours."""
    hits = {}
    for label, runs in groups.items():
        hit = _Hits(costs=[], ends=[])
        for run in runs:
            curve = run_accuracy(run, smoothing_s, cost)
            evaluation_costs, _ = curve
            if evaluation_costs.size:
                hit.costs.append(first_reached(curve, target_accuracy))
                hit.ends.append(run_extent(run).amount(cost))
        hits[label] = hit
    return hits


def _mark_target(axes: Axes, hits: dict[str, _Hits], target: float, horizon: float, scale: float) -> None:
    """Draw the line of the target, a tick where each run reaches it, and the restricted mean of each variant with its interval.

    A variant of which no run reaches the target, or whose mean is the horizon, shows no mean.
    Costs and `horizon` are in the unit of the cost; `scale` turns them into that of the axis.
    """
    axes.axhline(target, color=FAINT, linewidth=1.0, zorder=1)
    axes.annotate(
        f"target {format_percent(target)}",
        (1.0, target),
        xycoords=("axes fraction", "data"),
        xytext=(0, -4),  # below: curves that reach it end above
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize="small",
        color=NOTE,
    )
    for index, hit in enumerate(hits.values()):
        reached = [cost * scale for cost in hit.costs if math.isfinite(cost)]
        if not reached:
            continue
        color = line_style(index)["color"]
        axes.plot(reached, np.full(len(reached), target), "|", color=color, ms=9.0, mew=1.2, zorder=5)
        interval = restricted_mean(hit.costs, horizon)
        mean, half_width = interval.mean, float(np.nan_to_num(interval.half_width))
        if mean < horizon:
            # Costs are at least 0 and are cut at the horizon, so the bar ends there, too.
            below, above = min(half_width, mean), min(half_width, horizon - mean)
            axes.errorbar(
                mean * scale,
                target,
                xerr=[[below * scale], [above * scale]],
                fmt="D",
                color=color,
                ms=5.5,
                mec="white",
                elinewidth=1.0,  # thinner than a curve, not to be taken for one
                capsize=3.0,
                zorder=6,
            )


def _finite_losses(run: Run, *, axis: str, column: str) -> Curve:
    """Return the finite losses of a run in `column` against its column `axis`."""
    x, loss = round_columns(run, axis, column)
    measured = np.isfinite(loss)
    return x[measured], loss[measured]


def _has_diverged(run: Run, column: str) -> bool:
    """Return True if a loss of a run in `column` was evaluated and is not finite."""
    loss, accuracy = round_columns(run, column, "accuracy")
    has_diverged = np.isinf(loss)
    if column == "loss" and np.isfinite(loss).any():
        # A run with losses on the test set evaluates one with every accuracy: NaN beside an accuracy is a diverged loss.
        has_diverged |= np.isnan(loss) & np.isfinite(accuracy)
    return bool(has_diverged.any())


def loss_figure(groups: Groups, *, over: Over | None = None, look: Look = PLAIN) -> ShownFigure | None:
    """Draw the mean loss on the test set, and in training where that was recorded; None where neither was measured.

    The loss of a diverging model, infinite or NaN, fits on no axis: the note names the variants with such losses.
    """
    axis = abscissa(groups, over)
    panels: dict[str, dict[str, list[Curve]]] = {}
    diverged: list[str] = []
    for label, column in (("loss on the test set", "loss"), ("loss in training", "training_loss")):
        curves = curves_of(groups, partial(_finite_losses, axis=axis.column, column=column))
        if any(curves.values()):
            panels[label] = curves
        diverged += [run.label for run in itertools.chain(*groups.values()) if _has_diverged(run, column)]
    if not panels:
        return None
    with look.apply():
        figure, all_axes = new_figure((1.0,) * len(panels), share_y=False, look=look)
        lines: list[tuple[Line2D, str]] = []
        for axes, (label, curves) in zip(all_axes, panels.items(), strict=True):
            # The legend shows the lines of the last panel: a variant has the same colour in both.
            lines = draw_lines(axes, curves, axis.grid(curves))
            losses = np.concatenate([y for _, y in itertools.chain(*curves.values())])
            if losses.min() > 0.0 and losses.max() > 30.0 * losses.min():
                # Losses of very different size cannot be told apart on a linear axis.
                axes.set_yscale("log", nonpositive="clip")
            axes.set_ylabel(f"{label} (mean of a sample)")
            axis.label(axes)
        note = curve_note(next(iter(panels.values())), "each evaluation")
        if diverged:
            note += f"; left out, beyond any number: losses of {', '.join(dict.fromkeys(diverged))}"
        finish_figure(figure, "Loss", note, lines, look=look)
    return figure

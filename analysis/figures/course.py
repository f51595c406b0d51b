"""Figures over the course of a run: privacy leak, latency of a round, regret."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter

from analysis.figures.lines import MOST_POINTS, abscissa, curve_note, curves_of, draw_lines, round_columns, thinned
from analysis.figures.settings import PLAIN, Look, Over
from analysis.figures.style import AXIS, NOTE, ShownFigure, headline, line_style, new_figure
from analysis.groups import Bound, Groups
from analysis.results import Run
from analysis.statistics import Curve, moving_mean


def leak_figure(groups: Groups, *, over: Over | None = None, look: Look = PLAIN) -> ShownFigure | None:
    """Largest composed privacy leak over clients against rounds or seconds; None where no run leaks anything measured.

    Variants whose updates arrive without protection have no finite leak: the note names them, and no line pretends to be zero.
    """
    unprotected = []
    along = abscissa(groups, over)

    def curve(run: Run) -> Curve:
        number, leak, delivered = round_columns(run, along.column, "max_leak", "delivered")
        if not leak.size or not np.isfinite(leak).all() or leak.max() <= 0.0:
            if leak.size and delivered.sum() > 0:
                unprotected.append(run.label)
            return np.empty(0), np.empty(0)
        return number, leak

    curves = curves_of(groups, curve)
    if not any(curves.values()):
        return None
    with look.applied():
        figure, (axes,) = new_figure(look=look)
        lines = draw_lines(axes, curves, along.grid(curves))
        axes.set_ylim(bottom=0.0)
        axes.set_ylabel("largest leak over clients (ε)")
        along.label(axes)
        names = ", ".join(dict.fromkeys(unprotected))
        note = curve_note(curves, "composed over a client's participations")
        headline(figure, "Privacy leak", note + (f"; without protection, not drawn: {names}" if names else ""), lines, look=look)
    return figure


def latency_figure(
    groups: Groups, *, window: int | None = None, over: Over | None = None, look: Look = PLAIN
) -> ShownFigure | None:
    """Seconds each round took: over rounds or seconds (moving mean, single rounds faint), and their distribution.

    The mean is over `window` rounds, without it over a fiftieth of the longest run, at least 10. None without rounds, or where
    none takes any time. Of servers of several kinds rounds are not the same thing: `delivered_figure` compares these.
    """
    along = abscissa(groups, over)

    def curve(run: Run) -> Curve:
        number, start, end = round_columns(run, along.column, "start_s", "end_s")
        return number, end - start

    raw = curves_of(groups, curve)
    if not any(y.any() for curves in raw.values() for _, y in curves):
        return None
    window = window or max(10, max(y.size for curves in raw.values() for _, y in curves) // 50)
    smooth = {label: [thinned((x, moving_mean(y, window))) for x, y in curves] for label, curves in raw.items()}
    with look.applied():
        figure, (over_rounds, spread) = new_figure((2.1, 1.0), look=look)
        share = np.linspace(0.0, 1.0, MOST_POINTS + 1)
        for index, (label, curves) in enumerate(raw.items()):
            if curves:
                number, latency = curves[0]
                step = -(-number.size // MOST_POINTS)
                over_rounds.plot(
                    number[::step],
                    latency[::step],
                    ".",
                    color=line_style(index)["color"],
                    alpha=0.22,
                    ms=3.0,
                    mew=0,
                    zorder=1,
                    rasterized=True,
                )
                pooled = np.concatenate([y for _, y in curves])
                spread.plot(share, np.quantile(pooled, share, method="inverted_cdf"), label=label, **line_style(index))
        means = {label: line for line, label in draw_lines(over_rounds, smooth, along.grid(smooth))}
        # Who has no mean, since the rounds of its runs lie apart, has a distribution.
        lines = [(means.get(str(line.get_label()), line), str(line.get_label())) for line in spread.get_lines()]
        over_rounds.set_ylim(bottom=0.0)
        over_rounds.set_ylabel("latency of a round (s)")
        along.label(over_rounds)
        spread.set(xlabel="share of rounds at or below", xlim=(0.0, 1.0))
        spread.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
        spread.set_xticks([0.0, 0.5, 1.0])
        of_first = " of the first seed" if any(len(curves) > 1 for curves in raw.values()) else ""
        note = curve_note(raw, f"left: moving mean of {window} rounds, dots: single rounds{of_first}")
        headline(figure, "Latency of a round", note, lines, look=look)
    return figure


def regret_figure(
    groups: Groups, *, bounds: Sequence[Bound] = (), over: Over | None = None, look: Look = PLAIN
) -> ShownFigure | None:
    """Cumulative regret (PAUSE eq. 15) against rounds or seconds; None where no run measured it.

    `bounds` are on the expected regret (PAUSE eq. 17). They lie orders of magnitude above what happens: the vertical axis is then
    logarithmic, and linear below 1, and the horizontal one of rounds.
    """
    along = abscissa(groups, "rounds" if bounds else over)

    def curve(run: Run) -> Curve:
        number, reward, genie = round_columns(run, along.column, "reward", "genie_reward")
        measured = ~np.isnan(genie - reward)
        return number[measured], np.cumsum((genie - reward)[measured])

    curves = curves_of(groups, curve)
    if not any(curves.values()):
        return None
    with look.applied():
        figure, (axes,) = new_figure(look=look)
        lines = draw_lines(axes, curves, along.grid(curves))
        axes.axhline(0.0, color=AXIS, linewidth=0.8, zorder=1)
        note = curve_note(curves, "sum of genie reward minus reward")
        for bound in bounds:
            rounds = along.grid(curves)
            (line,) = axes.plot(rounds, bound.values(rounds), color=NOTE, linewidth=1.2)
            lines.append((line, bound.label))
            note += f"; {bound.label}: {bound.constants}"
        if bounds:
            axes.set_yscale("symlog", linthresh=1.0)
        axes.set_ylabel("cumulative regret (reward units)")
        along.label(axes)
        headline(figure, "Regret against the genie", note, lines, look=look)
    return figure


def loss_figure(groups: Groups, *, over: Over | None = None, look: Look = PLAIN) -> ShownFigure | None:
    """Mean loss on the test set, and in training where that was recorded; None where neither was measured.

    A diverging model's loss, infinite or no number, is beyond any axis: the note names the variants that have such.
    """
    along = abscissa(groups, over)
    beyond: dict[str, None] = {}

    def curve_of(column: str) -> Callable[[Run], Curve]:
        def curve(run: Run) -> Curve:
            at, loss, accuracy = round_columns(run, along.column, column, "accuracy")
            measured = np.isfinite(loss)
            # Where the accuracy was measured, so was the loss on the test set, in a run that has losses.
            evaluated = np.isfinite(accuracy) & (column == "loss") & measured.any()
            if (~measured & (evaluated | np.isinf(loss))).any():
                beyond[run.label] = None
            return at[measured], loss[measured]

        return curve

    panels = {
        label: curves
        for label, column in (("loss on the test set", "loss"), ("loss in training", "training_loss"))
        if any((curves := curves_of(groups, curve_of(column))).values())
    }
    if not panels:
        return None
    with look.applied():
        figure, all_axes = new_figure((1.0,) * len(panels), share_y=False, look=look)
        lines: list[tuple[Any, str]] = []
        for axes, (label, curves) in zip(all_axes, panels.items(), strict=True):
            lines = draw_lines(axes, curves, along.grid(curves)) or lines
            every = np.concatenate([y for group in curves.values() for _, y in group])
            if every.min() > 0.0 and every.max() > 30.0 * every.min():
                axes.set_yscale("log", nonpositive="clip")
            axes.set_ylabel(f"{label} (mean of a sample)")
            along.label(axes)
        note = curve_note(next(iter(panels.values())), "each evaluation")
        note += f"; left out, beyond any number: losses of {', '.join(beyond)}" if beyond else ""
        headline(figure, "Loss", note, lines, look=look)
    return figure

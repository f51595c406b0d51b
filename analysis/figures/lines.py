"""Parts of figures over rounds and seconds: the curves of each variant's runs, their mean with its band, and the axes.

Every figure takes `Groups`: the runs of each variant by its label. A variant keeps its colour and line style in every figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from analysis.figures.settings import Over
from analysis.figures.style import line_style
from analysis.results.groups import Groups
from analysis.results.run import Run
from analysis.statistics.arrays import Curve, FloatArray
from analysis.statistics.curves import mean_curve

if TYPE_CHECKING:
    from matplotlib.lines import Line2D

MOST_POINTS = 1000
"""Largest number of points of a line: a figure of this size cannot show more."""


def round_columns(run: Run, *names: str) -> list[FloatArray]:
    """Columns of the rounds table as floats, missing values as NaN; not to be written to."""
    columns = run.columns(names)
    return [columns[name] for name in names]


def curves_of(groups: Groups, curve: Callable[[Run], Curve]) -> dict[str, list[Curve]]:
    """Return the curves of each label's runs, without empty ones; labels without curves keep their place in the palette."""
    return {label: [points for points in map(curve, runs) if points[0].size] for label, runs in groups.items()}


def thin(curve: Curve) -> Curve:
    """Reduce a curve to at most `MOST_POINTS` evenly spaced points, the last included, so that many long runs fit in memory."""
    x, y = curve
    if x.size <= MOST_POINTS:
        return curve
    kept = np.unique(np.round(np.linspace(0, x.size - 1, MOST_POINTS)).astype(np.int64))
    return x[kept], y[kept]


@dataclass(frozen=True, slots=True)
class Abscissa:
    """The horizontal axis of figures over the course of a run: rounds, or simulated seconds."""

    over: Over

    @property
    def column(self) -> str:
        """The column of the rounds table that holds the abscissae."""
        return "round" if self.over == "rounds" else "end_s"

    @property
    def unit(self) -> str:
        """The label of the axis."""
        return "round" if self.over == "rounds" else "simulated time (s)"

    def grid(self, curves: Mapping[str, Sequence[Curve]]) -> FloatArray:
        """Return common abscissae of curves, up to the end of the longest: whole rounds, or equal steps of time."""
        if self.over == "rounds":
            return round_grid(curves)
        every = [x for group in curves.values() for x, _ in group]
        return np.linspace(min(float(x[0]) for x in every), max(float(x[-1]) for x in every), MOST_POINTS)

    def label(self, axes: Axes) -> None:
        """Set up the horizontal axis of `axes`."""
        axes.set_xlabel(self.unit)
        if self.over == "rounds":
            round_axis(axes)
        else:
            time_axis(axes)


def round_meanings(groups: Groups) -> set[tuple[tuple[str, Any], ...]]:
    """Return the different things that a round is to the variants, from their first runs."""
    return {runs[0].round_meaning for runs in groups.values() if runs}


def abscissa(groups: Groups, over: Over | None = None) -> Abscissa:
    """Choose the horizontal axis: rounds where a round means the same to all variants, else seconds. `over` overrides the choice.

    A round differs between coordinators that state different facts of themselves; where updates that began in one round count in
    a later one; and, where updates are sent again in the next round, if rounds last for different times.
    """
    if over is not None:
        return Abscissa(over)
    firsts = [runs[0] for runs in groups.values() if runs]
    meanings = round_meanings(groups)
    if len(meanings) != 1:
        return Abscissa("seconds" if meanings else "rounds")
    facts = dict(meanings.pop())
    by_rounds = not facts.get("carries_over") and (not facts.get("resends") or _same_lengths(firsts))
    return Abscissa("rounds" if by_rounds else "seconds")


def round_edges(run: Run, along: Abscissa) -> FloatArray:
    """Return the edges between the rounds of a run on the axis, (n + 1,): half way between rounds, or at their closes."""
    number, start_s, end_s = round_columns(run, "round", "start_s", "end_s")
    if along.over == "rounds" or not number.size:
        return np.arange(number.size + 1, dtype=np.float64) + 0.5
    return np.concatenate([start_s[:1], end_s])


def _same_lengths(runs: Sequence[Run]) -> bool:
    """Return True if all rounds of all `runs` take the same time, such as none."""
    lengths = [end - start for start, end in (round_columns(run, "start_s", "end_s") for run in runs) if start.size]
    if not lengths:
        return True
    low, high = min(float(each.min()) for each in lengths), max(float(each.max()) for each in lengths)
    # Differences of times late in a long run are off by their rounding.
    return high - low <= 1e-6 * max(high, 1e-12)


def draw_lines(
    axes: Axes,
    curves: Mapping[str, Sequence[Curve]],
    grid: FloatArray | None = None,
    limits: tuple[float, float] = (-math.inf, math.inf),
) -> list[tuple[Line2D, str]]:
    """Draw the mean over seeds of each label's curves with its interval as a band; return lines and labels for a legend.

    Bands end at `limits`: no interval contains an impossible value, such as an accuracy above 1.
    """
    lines: list[tuple[Line2D, str]] = []
    for index, (label, group) in enumerate(curves.items()):
        x, mean, half = mean_curve(group, grid=grid)
        if not x.size:
            continue
        style = line_style(index)
        # The first variants on top: by custom these are the ones the study is about.
        order = 3.0 - index / len(curves)
        (line,) = axes.plot(x, mean, zorder=order, **style)
        if len(group) > 1:
            low, high = np.clip(mean - half, *limits), np.clip(mean + half, *limits)
            axes.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0, zorder=order - 1)
        lines.append((line, label))
    return lines


def round_grid(curves: Mapping[str, Sequence[Curve]]) -> FloatArray:
    """Return whole rounds up to the last of any curve, evenly thinned if a figure cannot show all."""
    last = max(float(x[-1]) for group in curves.values() for x, _ in group)
    return np.unique(np.round(np.linspace(1.0, last, min(int(last), MOST_POINTS))))


def curve_note(curves: Mapping[str, Sequence[Curve]], what: str) -> str:
    """Return the note of a figure: `what` was averaged, over how many seeds, and which labels have no mean to draw."""
    counts = sorted({len(group) for group in curves.values() if group})
    if counts == [1]:
        return what
    seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    apart = [label for label, group in curves.items() if group and max(x[0] for x, _ in group) > min(x[-1] for x, _ in group)]
    further = f"; without a mean, since the values of its runs lie apart: {', '.join(apart)}" if apart else ""
    return f"{what}; mean over {seeds} seeds, shaded: 95 % interval{further}"


def time_axis(axes: Axes) -> None:
    """Set up the horizontal axis for seconds from 0."""
    axes.set_xlim(left=0.0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def cost_axis(axes: Axes) -> None:
    """Make the horizontal axis logarithmic, with marks at 1, 2 and 5 times the powers of ten."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def round_axis(axes: Axes) -> None:
    """Set up the horizontal axis for whole rounds."""
    axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True))
    axes.margins(x=0.02)

"""Parts of figures over rounds and seconds: the curves of each variant's runs, their mean with its band, and the axes.

Every figure takes `Groups`: the runs of each variant by its label. A variant keeps its colour and line style in every figure.
"""

from __future__ import annotations

import itertools
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
    """Return columns of the rounds table as floats, each (n,), missing values as NaN. Callers must not change them."""
    columns = run.columns(names)
    return [columns[name] for name in names]


def curves_of(groups: Groups, curve: Callable[[Run], Curve]) -> dict[str, list[Curve]]:
    """Return the curves of the runs of each label, without empty ones.

    A label without curves stays, with an empty list: the colour of a label is its place in the order.
    """
    return {label: [points for points in map(curve, runs) if points[0].size] for label, runs in groups.items()}


def thin_curve(curve: Curve) -> Curve:
    """Return a curve with at most `MOST_POINTS` of its points, evenly spaced, first and last included.

    Curves of many long runs would not fit in memory.
    """
    x, y = curve
    if x.size <= MOST_POINTS:
        return curve
    indexes = np.unique(np.round(np.linspace(0, x.size - 1, MOST_POINTS)).astype(np.int64))
    return x[indexes], y[indexes]


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
        abscissae = [x for x, _ in itertools.chain(*curves.values())]
        first, last = min(float(x[0]) for x in abscissae), max(float(x[-1]) for x in abscissae)
        return np.linspace(first, last, MOST_POINTS)

    def label(self, axes: Axes) -> None:
        """Set up the horizontal axis of `axes`."""
        axes.set_xlabel(self.unit)
        if self.over == "rounds":
            round_axis(axes)
        else:
            time_axis(axes)


def round_meanings(groups: Groups) -> set[tuple[tuple[str, Any], ...]]:
    """Return the distinct meanings of a round (`Run.round_meaning`) among the variants, from the first run of each."""
    return {runs[0].round_meaning for runs in groups.values() if runs}


def abscissa(groups: Groups, over: Over | None = None) -> Abscissa:
    """Return the horizontal axis of a figure: rounds if they can be compared between variants, otherwise seconds.

    `over`: the axis that the user chose, or None. Rounds cannot be compared if variants have coordinators with different facts
    (`Run.round_meaning`), or if updates that begin in one round count in a later one. If updates are sent again in the next
    round, they can be compared only if all rounds have the same length.
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
    """Return the edges of the n rounds of a run on the axis, (n + 1,): half way between numbers of rounds, or their closes."""
    number, start_s, end_s = round_columns(run, "round", "start_s", "end_s")
    if along.over == "rounds" or not number.size:
        return np.arange(number.size + 1, dtype=np.float64) + 0.5
    return np.concatenate([start_s[:1], end_s])


def _same_lengths(runs: Sequence[Run]) -> bool:
    """Return True if all rounds of all `runs` have the same length, which may be 0."""
    shortest_s, longest_s = math.inf, 0.0
    for run in runs:
        start_s, end_s = round_columns(run, "start_s", "end_s")
        if start_s.size:
            lengths_s = end_s - start_s
            shortest_s = min(shortest_s, float(lengths_s.min()))
            longest_s = max(longest_s, float(lengths_s.max()))
    # Tolerate rounding: lengths are differences of times, which are large at the end of a long run. Without rounds this is true.
    return longest_s - shortest_s <= 1e-6 * max(longest_s, 1e-12)


def draw_lines(
    axes: Axes,
    curves: Mapping[str, Sequence[Curve]],
    grid: FloatArray | None = None,
    limits: tuple[float, float] = (-math.inf, math.inf),
) -> list[tuple[Line2D, str]]:
    """Draw the mean over seeds of the curves of each label, with its interval as a band.

    `grid`: abscissae of the means; None: chosen by `mean_curve`. Bands are cut at `limits`, so that none reaches an impossible
    value, such as an accuracy above 1. Return the entries of the legend (line, label).
    """
    lines: list[tuple[Line2D, str]] = []
    for index, (label, group) in enumerate(curves.items()):
        x, mean, half_width = mean_curve(group, grid=grid)
        if not x.size:
            continue
        style = line_style(index)
        # Draw the first variants on top: studies usually list the method that they are about first.
        level = 3.0 - index / len(curves)
        (line,) = axes.plot(x, mean, zorder=level, **style)
        if len(group) > 1:
            low, high = np.clip(mean - half_width, *limits), np.clip(mean + half_width, *limits)
            axes.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0, zorder=level - 1)
        lines.append((line, label))
    return lines


def round_grid(curves: Mapping[str, Sequence[Curve]]) -> FloatArray:
    """Return the numbers of rounds (n,) from 1 to the last of any curve; at most `MOST_POINTS`, evenly spaced."""
    last = max(float(x[-1]) for x, _ in itertools.chain(*curves.values()))
    return np.unique(np.round(np.linspace(1.0, last, min(int(last), MOST_POINTS))))


def curve_note(curves: Mapping[str, Sequence[Curve]], what: str) -> str:
    """Return the note of a figure of `draw_lines`: `what` was averaged, the number of seeds, and labels without a mean.

    A label has no mean if its curves have no abscissa in common. With one curve a label the note is `what` alone.
    """
    counts = sorted({len(group) for group in curves.values() if group})
    if counts == [1]:
        return what
    seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    note = f"{what}; mean over {seeds} seeds, shaded: 95 % interval"
    apart = []
    for label, group in curves.items():
        if group and max(x[0] for x, _ in group) > min(x[-1] for x, _ in group):
            apart.append(label)
    if apart:
        note += f"; without a mean, since the values of its runs lie apart: {', '.join(apart)}"
    return note


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

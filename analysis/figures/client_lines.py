"""Lines over clients, one for each variant: in the order of the clients' numbers if there are few, otherwise sorted by value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.lines import draw_lines, round_axis, thin
from analysis.statistics.arrays import Curve, FloatArray

if TYPE_CHECKING:
    from matplotlib.lines import Line2D

MOST_NUMBERED = 60
"""Most clients that are shown by their numbers; more are sorted from the largest value to the smallest."""


def client_lines(
    axes: Axes, values: Mapping[str, Sequence[FloatArray]], what: str, most: str
) -> tuple[list[tuple[Line2D, str]], dict[str, list[Curve]]]:
    """Draw the mean over runs of `values`, (K,) of each run, with its band; return the lines for a legend, and the curves.

    `what` names the vertical axis; `most` says which clients come first where they are sorted.
    """
    count = max((one.size for several in values.values() for one in several), default=0)
    numbered = count <= MOST_NUMBERED

    def curve(one: FloatArray) -> Curve:
        shown = one if numbered else np.sort(one)[::-1]
        return thin((np.arange(shown.size, dtype=np.float64), shown))

    curves = {label: [curve(one) for one in several if one.size] for label, several in values.items()}
    lines = draw_lines(axes, curves, np.arange(count, dtype=np.float64) if count <= 1000 else None)
    if numbered:
        for line, _ in lines:
            line.set(marker="o", markersize=3.5)
    axes.set(xlabel="client" if numbered else f"clients, {most} first", ylabel=what)
    axes.set_ylim(bottom=0.0)
    round_axis(axes)
    return lines, curves

"""Lines over clients, one for each variant: in the order of the clients' numbers if there are few, otherwise sorted by value."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.lines import draw_lines, round_axis, thin_curve
from analysis.statistics.arrays import Curve, FloatArray

if TYPE_CHECKING:
    from matplotlib.lines import Line2D

MOST_NUMBERED = 60
"""Most clients that are shown by their numbers; more are sorted from the largest value to the smallest."""


def client_lines(
    axes: Axes, values: Mapping[str, Sequence[FloatArray]], quantity: str, first_clients: str
) -> tuple[list[tuple[Line2D, str]], dict[str, list[Curve]]]:
    """Draw a value of each client against the clients, as the mean over runs with its band, one line for each label.

    `values`: label to one array (K,) for each run. `quantity`: label of the vertical axis. `first_clients`: adjective for the
    clients with the largest values, which come first where clients are sorted, such as "busiest".

    Return the entries of the legend (line, label), and the drawn curves by label.
    """
    count = max((run_values.size for run_values in itertools.chain(*values.values())), default=0)
    numbered = count <= MOST_NUMBERED
    curves: dict[str, list[Curve]] = {}
    for label, values_of_runs in values.items():
        curves[label] = []
        for run_values in values_of_runs:
            if run_values.size:
                shown = run_values if numbered else np.sort(run_values)[::-1]
                curves[label].append(thin_curve((np.arange(shown.size, dtype=np.float64), shown)))
    lines = draw_lines(axes, curves, np.arange(count, dtype=np.float64) if count <= 1000 else None)
    if numbered:
        for line, _ in lines:
            line.set(marker="o", markersize=3.5)
    axes.set(xlabel="client" if numbered else f"clients, {first_clients} first", ylabel=quantity)
    axes.set_ylim(bottom=0.0)
    round_axis(axes)
    return lines, curves

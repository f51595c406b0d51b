"""Stacked horizontal bars, a bar for each variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from analysis.figures.settings import Look
from analysis.figures.style import LETTERS, ShownFigure, drawable_text, finish_figure, new_figure, row_height_in, surface_style


def stacked_bars(axes: Axes, bars: Mapping[str, Sequence[float]], names: Sequence[str]) -> list[tuple[Patch, str]]:
    """Draw a horizontal bar for each label, stacked from its values; return the entries of the legend (patch, name).

    `bars`: label to its values, one for each of `names`. Names whose values are all 0 have no entry.
    """
    left = np.zeros(len(bars))
    legend = []
    for index, name in enumerate(names):
        width = np.array([values[index] for values in bars.values()])
        style = surface_style(index)
        axes.barh(range(len(bars)), width, left=left, height=0.7, **style)
        left += width
        if width.any():
            legend.append((Patch(**style), name))
    axes.set_yticks(range(len(bars)), [drawable_text(label, LETTERS) for label in bars])
    axes.invert_yaxis()
    axes.grid(visible=False)
    return legend


def seconds_figure(
    bars: Mapping[str, Sequence[float]], names: Sequence[str], *, title: str, xlabel: str, note: str, look: Look
) -> ShownFigure:
    """Return a figure of horizontal stacked bars whose values are seconds; `note` stands at its foot.

    `bars`: label of each bar -> values of its parts. `names`: names of the parts, for the legend.
    """
    with look.apply():
        figure, (axes,) = new_figure(size_in=(7.2, 1.6 + row_height_in(bars, 0.36) * len(bars)), look=look)
        legend = stacked_bars(axes, bars, names)
        axes.set(xlabel=xlabel)
        axes.set_xlim(left=0.0)
        finish_figure(figure, title, note, legend, look=look)
        figure.description = bars_in_words(bars, names, "{:.3g} s")
    return figure


def bars_in_words(bars: Mapping[str, Sequence[float]], names: Sequence[str], number: str) -> str:
    """Return the values of the bars as a sentence, zeros left out; `number`: the format of a value, such as "{:.3g} s"."""
    parts = [
        f"{label}: {', '.join(f'{name} {number.format(value)}' for name, value in zip(names, values, strict=True) if value)}"
        for label, values in bars.items()
    ]
    return "; ".join(parts) + "."

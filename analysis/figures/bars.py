"""Stacked horizontal bars, a bar for each variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from analysis.figures.style import LETTERS, drawable, surface_style


def stacked_bars(axes: Axes, bars: Mapping[str, Sequence[float]], names: Sequence[str]) -> list[tuple[Patch, str]]:
    """Draw a horizontal bar for each label, stacked from its values; return the entries of the legend."""
    left = np.zeros(len(bars))
    legend = []
    for index, name in enumerate(names):
        width = np.array([values[index] for values in bars.values()])
        style = surface_style(index)
        axes.barh(range(len(bars)), width, left=left, height=0.7, **style)
        left += width
        if width.any():
            legend.append((Patch(**style), name))
    axes.set_yticks(range(len(bars)), [drawable(label, LETTERS) for label in bars])
    axes.invert_yaxis()
    axes.grid(visible=False)
    return legend


def bars_in_words(bars: Mapping[str, Sequence[float]], names: Sequence[str], number: str) -> str:
    """Return the values of the bars as text, those of 0 left out; `number`: a format, such as "{:.3g} s"."""
    parts = [
        f"{label}: {', '.join(f'{name} {number.format(value)}' for name, value in zip(names, values, strict=True) if value)}"
        for label, values in bars.items()
    ]
    return "; ".join(parts) + "."

"""Text about figures: lines that hide one another, and descriptions for readers who cannot see the figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.statistics.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.artist import Artist

MOSTLY = 0.6
"""Least share of the shorter line over which two lines must coincide to count as hidden."""
MOST_NAMED = 5
"""Most coinciding lines that are named; further ones are counted."""
_POINTS = 400


def hidden_lines_text(figure: Figure, lines: Sequence[tuple[Artist, str]]) -> str:
    """Return a phrase that names the lines hidden behind one another in some panel; "" if each line can be seen.

    `lines`: the entries of the legend (handle, label).
    """
    pairs: dict[tuple[str, str], None] = {}
    for axes in figure.axes:
        drawn = [(line, label) for handle, label in lines for line in _lines_like(axes, handle)]
        for index, (line, label) in enumerate(drawn):
            for earlier_line, earlier_label in drawn[:index]:
                if label != earlier_label and _share_covered(axes, line, earlier_line) >= MOSTLY:
                    pairs[earlier_label, label] = None
    if not pairs:
        return ""
    groups = [" on ".join([f'"{name}"' for name in group[:MOST_NAMED]] + _further(group)) for group in _groups(list(pairs))]
    return f"lines that lie on one another for the most part: {'; '.join(groups)}"


def _further(group: Sequence[str]) -> list[str]:
    """Return the number of names beyond `MOST_NAMED` as text, in a list; empty if there are none."""
    return [f"{len(group) - MOST_NAMED} more"] if len(group) > MOST_NAMED else []


def _groups(pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Return the connected components of the graph whose edges are `pairs`; names in order of appearance."""
    groups: list[list[str]] = []
    # Each pair merges all groups that it touches.
    for pair in pairs:
        touched = [group for group in groups if set(group) & set(pair)]
        groups = [group for group in groups if group not in touched]
        merged = [name for group in touched for name in group] + list(pair)
        groups.append(list(dict.fromkeys(merged)))
    return groups


def _lines_like(axes: Axes, handle: Artist) -> list[Line2D]:
    """Return the lines of a panel with the colour and dashes of `handle`, and so of its variant; points alone are left out."""
    if not isinstance(handle, Line2D):
        return []
    look = (handle.get_color(), handle.get_linestyle())
    return [
        line
        for line in axes.get_lines()
        if (line.get_color(), line.get_linestyle()) == look and line.get_linestyle() != "None" and _points(line).shape[0] > 1
    ]


def _share_covered(axes: Axes, line: Line2D, other: Line2D) -> float:
    """Return the share of the shorter line over which the two lines lie on one another, as drawn; 0 without a common range.

    They do where they are less than the width of a line apart. Lengths are horizontal.
    """
    (x, y), (other_x, other_y) = _pixels(axes, line), _pixels(axes, other)
    if not x.size or not other_x.size:
        return 0.0
    low, high = max(x[0], other_x[0]), min(x[-1], other_x[-1])
    shorter = min(x[-1] - x[0], other_x[-1] - other_x[0])
    if not high > low or not shorter > 0.0:
        return 0.0
    # Compare in pixels, at common abscissae: what coincides on the canvas cannot be told apart, whatever the units of the axes.
    abscissae = np.linspace(low, high, _POINTS)
    width = line.get_linewidth() * axes.figure.get_dpi() / 72.0
    distances = np.abs(_ordinates(line, abscissae, x, y) - _ordinates(other, abscissae, other_x, other_y))
    return float((distances < width).mean() * (high - low) / shorter)


def _points(line: Line2D) -> FloatArray:
    """Return the points of a line in the units of its axes, (n, 2)."""
    return np.asarray(line.get_xydata(), np.float64).reshape(-1, 2)


def _pixels(axes: Axes, line: Line2D) -> tuple[FloatArray, FloatArray]:
    """Return the abscissae and ordinates of a line in pixels, both (n,), without points that are nowhere on the canvas."""
    # On a logarithmic axis a value of 0 becomes infinite.
    with np.errstate(divide="ignore", invalid="ignore"):
        points = axes.transData.transform(_points(line))
    points = points[np.isfinite(points).all(axis=1)]
    return points[:, 0], points[:, 1]


def _ordinates(line: Line2D, abscissae: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    """Return the ordinates of a line through the points (x, y) at `abscissae`: in steps or straight, as it is drawn."""
    if line.get_drawstyle().startswith("steps"):
        return np.asarray(y[np.clip(np.searchsorted(x, abscissae, side="right") - 1, 0, y.size - 1)])
    return np.interp(abscissae, x, y)


def describe(figure: Figure, lines: Sequence[tuple[Artist, str]]) -> str:
    """Return a sentence for each panel that names its axes and the last point of each of its lines.

    `lines`: the entries of the legend, handle and label. A panel is searched for its own line of the same look as a handle.
    """
    parts = []
    for axes in figure.axes:
        if axes.get_label() == "<colorbar>" or not axes.get_visible():
            continue
        text = f"{axes.get_ylabel()} against {axes.get_xlabel()}" if axes.get_ylabel() else axes.get_xlabel()
        ends = [
            f"{label} at {_number(_points(line)[-1, 0])}: {_number(_points(line)[-1, 1])}"
            for handle, label in lines
            for line in _lines_like(axes, handle)[:1]
        ]
        parts.append(text + (f"; the lines end, {', '.join(ends)}" if ends else ""))
    return ". ".join(parts) + "." if parts else ""


def _number(value: float) -> str:
    """Return a number as text, with three significant digits, or all digits before the point."""
    return f"{value:,.3g}" if abs(value) < 1000.0 else f"{value:,.0f}"

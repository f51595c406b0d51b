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


def hidden_words(figure: Figure, lines: Sequence[tuple[Artist, str]]) -> str:
    """Name the lines of a legend that are drawn over one another in some panel; empty if each can be seen."""
    pairs: dict[tuple[str, str], None] = {}
    for axes in figure.axes:
        drawn = [(line, label) for handle, label in lines for line in _alike(axes, handle)]
        for index, (one, label) in enumerate(drawn):
            for other, name in drawn[:index]:
                if label != name and _share_covered(axes, one, other) >= MOSTLY:
                    pairs[name, label] = None
    if not pairs:
        return ""
    groups = [" on ".join([f'"{name}"' for name in group[:MOST_NAMED]] + _more(group)) for group in _groups(list(pairs))]
    return f"lines that lie on one another for the most part: {'; '.join(groups)}"


def _more(group: Sequence[str]) -> list[str]:
    return [f"{len(group) - MOST_NAMED} more"] if len(group) > MOST_NAMED else []


def _groups(pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Return the connected components of the graph whose edges are `pairs`; names in order of appearance."""
    groups: list[list[str]] = []
    for pair in pairs:
        touched = [group for group in groups if set(group) & set(pair)]
        groups = [group for group in groups if group not in touched]
        merged = [name for group in touched for name in group] + list(pair)
        groups.append(list(dict.fromkeys(merged)))
    return groups


def _alike(axes: Axes, handle: Artist) -> list[Line2D]:
    """Return the lines of a panel that look like `handle`, and so belong to the same variant."""
    if not isinstance(handle, Line2D):
        return []
    look = (handle.get_color(), handle.get_linestyle())
    return [
        line
        for line in axes.get_lines()
        if (line.get_color(), line.get_linestyle()) == look and line.get_linestyle() != "None" and _points(line).shape[0] > 1
    ]


def _share_covered(axes: Axes, one: Line2D, other: Line2D) -> float:
    """Return the share of the narrower line over which the two lie within one line's width of each other, on the canvas."""
    (x, y), (u, v) = (_pixels(axes, line) for line in (one, other))
    if not x.size or not u.size:
        return 0.0
    low, high = max(x[0], u[0]), min(x[-1], u[-1])
    narrow = min(x[-1] - x[0], u[-1] - u[0])
    if not high > low or not narrow > 0.0:
        return 0.0
    at = np.linspace(low, high, _POINTS)
    width = one.get_linewidth() * axes.figure.get_dpi() / 72.0
    # Both lines are sampled at common abscissae in pixels: points that coincide on the canvas cannot be told apart, in any units.
    apart = np.abs(_values(one, at, x, y) - _values(other, at, u, v))
    return float((apart < width).mean() * (high - low) / narrow)


def _points(line: Line2D) -> FloatArray:
    """Return the points of a line, (n, 2)."""
    return np.asarray(line.get_xydata(), np.float64).reshape(-1, 2)


def _pixels(axes: Axes, line: Line2D) -> tuple[FloatArray, FloatArray]:
    with np.errstate(divide="ignore", invalid="ignore"):
        points = axes.transData.transform(_points(line))
    points = points[np.isfinite(points).all(axis=1)]
    return points[:, 0], points[:, 1]


def _values(line: Line2D, at: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    if line.get_drawstyle().startswith("steps"):
        return np.asarray(y[np.clip(np.searchsorted(x, at, side="right") - 1, 0, y.size - 1)])
    return np.interp(at, x, y)


def describe(figure: Figure, lines: Sequence[tuple[Artist, str]]) -> str:
    """Return one sentence that names the axes of each panel and the last point of each of its lines.

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
            for line in _alike(axes, handle)[:1]
        ]
        parts.append(text + (f"; the lines end, {', '.join(ends)}" if ends else ""))
    return ". ".join(parts) + "." if parts else ""


def _number(value: float) -> str:
    return f"{value:,.3g}" if abs(value) < 1000.0 else f"{value:,.0f}"

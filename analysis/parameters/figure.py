"""A metric against a parameter: lines with intervals over one key, a heat map over two."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from analysis.figures.settings import PLAIN, Look
from analysis.figures.style import ShownFigure, finish_figure, line_style, new_figure
from analysis.metrics.registry import metric
from analysis.parameters.measure import AgainstOne, AgainstTwo, key_with_unit
from analysis.statistics.arrays import FloatArray

_LABEL = 0.08
"""Share of the axis that the number at a mark takes; marks that lie closer have none."""
LOGARITHMIC = 10.0
"""An axis is logarithmic where its values are positive and span this ratio."""


def parameter_figure(
    study: AgainstOne, *, confidence: float = 0.95, restricted: str = "", look: Look = PLAIN
) -> ShownFigure | None:
    """Draw the means of a metric over seeds, with intervals, against a key: a line for each of `study.lines`.

    Markers of values that may be the best are filled; infinite means are left out and named in the note.

    `restricted`: what is averaged if not the metric itself, such as "min(time, 20 s)". None if there are no values.
    """
    definition = metric(study.metric)
    if not any(np.isfinite(interval.mean) for line in study.lines for interval in line.intervals):
        return None
    seeds = sorted({interval.count for line in study.lines for interval in line.intervals if interval.count})
    with look.apply():
        figure, (axes,) = new_figure(look=look)
        legend = []
        infinite: list[str] = []
        for index, line in enumerate(study.lines):
            style = line_style(index)
            mean = np.array([interval.mean for interval in line.intervals]) * definition.scale
            if np.isinf(mean).any():
                # Infinite values, such as the leak without protection, are named in the note.
                mean[np.isinf(mean)] = np.nan
                infinite.append(line.label or "some values")
            if np.isnan(mean).all():
                continue
            half = np.nan_to_num([interval.half_width for interval in line.intervals]) * definition.scale
            # Bars end at possible values: no share is below 0 or above 100 %.
            low, high = (np.clip(mean + side * half, *definition.limits) for side in (-1.0, 1.0))
            (drawn,) = axes.plot(line.at, mean, **style)
            bars = (mean - low, high - mean)
            axes.errorbar(line.at, mean, yerr=bars, fmt="none", color=style["color"], capsize=3.0, elinewidth=1.2)
            members = np.ones(mean.size, bool) if line.best is None else line.best.members
            axes.plot(line.at[members], mean[members], "o", color=style["color"], ms=5.5, zorder=4)
            axes.plot(line.at[~members], mean[~members], "o", color=style["color"], mfc="white", ms=5.5, zorder=4)
            legend.append((drawn, line.label))
        _value_axis(axes, np.concatenate([line.at for line in study.lines]))
        axes.set(xlabel=study.axis, ylabel=definition.axis)
        counted = " to ".join(str(count) for count in dict.fromkeys((seeds[0], seeds[-1])))
        what = f"mean of {restricted}" if restricted else "mean"
        note = f"{what} over {counted} seeds, bars: {confidence * 100:g} % intervals, each by itself"
        if any(line.best is not None for line in study.lines):
            note += f"; filled: may be the best value ({confidence * 100:g} % set of best, all values of a line together)"
        note += f"; left out, beyond any number: {', '.join(infinite)}" if infinite else ""
        title = f"{definition.title[:1].upper()}{definition.title[1:]} against {study.key}"
        # A single line has no label, and no entry in the legend.
        finish_figure(figure, title, note, [(drawn, label) for drawn, label in legend if label], look=look)
    return figure


def heat_figure(study: AgainstTwo, *, confidence: float = 0.95, restricted: str = "", look: Look = PLAIN) -> ShownFigure | None:
    """Draw means over seeds against two keys, as colour and number; those that may be the best are framed. None: no values.

    `restricted`: what is averaged if not the metric itself, such as "min(time, 20 s)".
    """
    definition = metric(study.metric)
    means = study.means * definition.scale
    finite = means[np.isfinite(means)]
    if not finite.size:
        return None
    with look.apply():
        figure, (axes,) = new_figure(look=look)
        axes.grid(visible=False)
        # Dark is better, whether that is high or low; for a metric without a better direction, dark is high.
        colours = "cividis" if definition.better == "lower" else "cividis_r"
        image = axes.imshow(means, cmap=colours, aspect="auto", origin="lower")
        middle = (finite.min() + finite.max()) / 2.0
        for (row, column), value in np.ndenumerate(means):
            dark = value < middle if definition.better == "lower" else value > middle
            frame = {"boxstyle": "square,pad=0.25", "fill": False, "ec": "white" if dark else "black", "lw": 1.6}
            text = f"{value:.4g}" if np.isfinite(value) else "—"
            colour = "white" if dark else "black"
            # The text has an id of its own: checks of contrast must know that it stands on its cell, not on paper.
            cell = f"cell-{row}-{column}"
            shown = axes.text(column, row, text, ha="center", va="center", color=colour, fontsize="small", gid=cell)
            if study.members[row, column]:
                shown.set_bbox(frame)
        axes.set_xticks(range(study.at_columns.size), [f"{value:g}" for value in study.at_columns])
        axes.set_yticks(range(study.at_rows.size), [f"{value:g}" for value in study.at_rows])
        axes.set(xlabel=key_with_unit(study.columns), ylabel=key_with_unit(study.rows))
        figure.colorbar(image, ax=axes, label=definition.axis)
        note = f"mean of {restricted} over seeds" if restricted else "mean over seeds"
        if study.best is not None:
            note += f"; framed: may be the best combination ({confidence * 100:g} % set of best)"
        finish_figure(figure, f"{definition.title[:1].upper()}{definition.title[1:]}", note, [], look=look)
    return figure


def _value_axis(axes: Axes, values: FloatArray) -> None:
    """Put marks at the values that were run. The axis is logarithmic if the greatest is `LOGARITHMIC` times the least."""
    distinct = np.unique(values)
    if distinct[0] > 0.0 and distinct[-1] >= LOGARITHMIC * distinct[0]:
        axes.set_xscale("log")
        axes.minorticks_off()
    if distinct.size > 12:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        return
    positions = np.log(distinct) if axes.get_xscale() == "log" else distinct
    # Label a value only if there is room beside the label before it.
    room = _LABEL * float(np.ptp(positions))
    labelled = [0]
    for index in range(1, distinct.size):
        if positions[index] - positions[labelled[-1]] >= room:
            labelled.append(index)
    axes.set_xticks(distinct.tolist(), [f"{value:g}" if i in labelled else "" for i, value in enumerate(distinct)])

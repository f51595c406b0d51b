"""The figure of cumulative regret against the genie."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.figures.lines import abscissa, curve_note, curves_of, draw_lines, round_columns
from analysis.figures.settings import PLAIN, Bound, Look, Over
from analysis.figures.style import ShownFigure, finish_figure, new_figure
from analysis.figures.theme import AXIS, NOTE
from analysis.results.groups import Groups
from analysis.results.run import Run
from analysis.statistics.arrays import Curve


def regret_figure(
    groups: Groups, *, bounds: Sequence[Bound] = (), over: Over | None = None, look: Look = PLAIN
) -> ShownFigure | None:
    """Draw the cumulative regret (PAUSE eq. 15) against rounds or seconds; None where no run measured it.

    `bounds` are on the expected regret (PAUSE eq. 17). They lie orders of magnitude above regrets: with them the vertical axis is
    logarithmic, linear below 1, and the horizontal axis counts rounds.
    """
    along = abscissa(groups, "rounds" if bounds else over)

    def curve(run: Run) -> Curve:
        """Return the cumulative regret of the rounds that measured it."""
        number, reward, genie = round_columns(run, along.column, "reward", "genie_reward")
        measured = ~np.isnan(genie - reward)
        return number[measured], np.cumsum((genie - reward)[measured])

    curves = curves_of(groups, curve)
    if not any(curves.values()):
        return None
    with look.apply():
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
        finish_figure(figure, "Regret against the genie", note, lines, look=look)
    return figure

"""Figures of changes: the regret rate around them, times to declaration and recovery, and the course of a run."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from analysis.breakpoints.changes import WINDOW, Unit, detects, regret_of_rounds, true_changes
from analysis.breakpoints.disturbances import disturbances
from analysis.breakpoints.summary import change_tables, share_over_time
from analysis.detections.measure import declared_rounds, run_detections
from analysis.figures.lines import abscissa, curve_note, curves_of, draw_lines
from analysis.figures.settings import PLAIN, Look, Over
from analysis.figures.style import ShownFigure, finish_figure, line_style, new_figure
from analysis.figures.theme import FAINT, INK
from analysis.results.groups import Groups
from analysis.results.run import Run
from analysis.statistics.arrays import Curve
from analysis.statistics.curves import moving_mean
from analysis.statistics.survival import ReachedShare

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist

    from analysis.statistics.arrays import FloatArray

_SHARES = {"delay": "changes declared", "recovery": "changes recovered from"}
SHADES = {"jamming": "#E69F00", "outage": "#56B4E9"}


def regret_around_changes(run: Run, *, window: int = WINDOW, unit: Unit = "rounds") -> Curve:
    """Return the moving regret rate around the changes of a run, averaged over them: abscissae (241,) and rates (241,).

    Abscissae are rounds or seconds since a change, from -reach to +reach. The reach is half the shortest distance between two
    changes, or between a change and the start or end of the run, so that no window holds rounds of two changes. In seconds the
    rate is regret per second. A change in the last round has no time after it, and is left out. Both arrays are empty without
    changes or regret.
    """
    regret = regret_of_rounds(run)
    firsts = [first for first in true_changes(run) if first < len(regret)]
    takes_no_time = not run.rounds["end_s"].any()
    if not firsts or np.isnan(regret).any() or (unit == "seconds" and takes_no_time):
        return np.zeros(0), np.zeros(0)
    starts_s, ends_s = (run.rounds[name].to_numpy(np.float64) for name in ("start_s", "end_s"))
    rate = moving_mean(regret, window)
    # Positions on the axis at which each round begins, and at which its rate is drawn.
    starts: FloatArray = np.arange(1.0, len(regret) + 1.0)
    positions = starts
    if unit == "seconds":
        # A rate is known when its round closes; a change acts when its first round begins.
        starts, positions, rate = starts_s, ends_s, rate / moving_mean(ends_s - starts_s, window)
    changes = starts[np.array(firsts) - 1]
    edges = np.concatenate([[starts[0]], changes, [positions[-1]]])
    reach = float(np.diff(edges).min()) / 2.0
    grid = np.linspace(-reach, reach, 241)
    rates = [np.interp(change + grid, positions, rate) for change in changes]
    return grid, np.mean(rates, axis=0)


def regret_around_changes_figure(
    groups: Groups, *, window: int | None = None, over: Over | None = None, look: Look = PLAIN
) -> ShownFigure | None:
    """Draw the regret rate of each variant around its changes, mean over changes and seeds; None without changes.

    `window`: rounds of the moving mean (None: `WINDOW`); `over`: as for `abscissa`.
    """
    window, unit = window or WINDOW, abscissa(groups, over).over
    curves = curves_of(groups, lambda run: regret_around_changes(run, window=window, unit=unit))
    if not any(curves.values()):
        return None
    # Variants may reach less far than others: the axis shows what all have.
    reach = min(float(x[-1]) for x, _ in itertools.chain(*curves.values()))
    with look.apply():
        figure, (axes,) = new_figure(look=look)
        lines = draw_lines(axes, curves, np.linspace(-reach, reach, 241))
        axes.axvline(0.0, color=FAINT, linewidth=1.2, zorder=1)
        per = "round" if unit == "rounds" else "s"
        axes.set(xlabel=f"{unit} since the change", ylabel=f"regret per {per}")
        note = curve_note(curves, f"moving mean of {window} rounds, over the changes of a run")
        legend = [*lines, (Line2D([], [], color=FAINT, lw=1.2), "change")]
        finish_figure(figure, "Regret around changes", note, legend, look=look)
    return figure


def shares_figure(
    groups: Groups, *, window: int | None = None, over: Over | None = None, look: Look = PLAIN
) -> ShownFigure | None:
    """Draw the share of changes declared, and recovered from, by the time since the change (Kaplan-Meier).

    A panel for declarations, without variants whose schedulers watch for no changes, and one for recoveries; an empty panel is
    left out. None without changes.
    """
    window, unit = window or WINDOW, abscissa(groups, over).over
    if not any(map(true_changes, itertools.chain(*groups.values()))):
        return None
    frames: Mapping[str, pd.DataFrame] = {label: change_tables(runs, window=window) for label, runs in groups.items()}
    watching = {label for label, runs in groups.items() if any(map(detects, runs))}
    shown: dict[str, dict[str, ReachedShare]] = {"delay": {}, "recovery": {}}
    for what, curves in shown.items():
        for label, frame in frames.items():
            curve = share_over_time(frame, what, unit)
            if curve is not None and (what == "recovery" or label in watching):
                curves[label] = curve
    panels = [what for what in shown if shown[what]]
    if not panels:
        return None
    with look.apply():
        figure, all_axes = new_figure((1.0,) * len(panels), look=look)
        lines = {}
        for axes, what in zip(all_axes, panels, strict=True):
            for label, curve in shown[what].items():
                style = line_style(list(groups).index(label))
                (lines[label],) = axes.step(curve.times_s, curve.share, where="post", **style)
                # A stroke on the curve for each censored change.
                steps = np.searchsorted(curve.times_s, curve.censored_s, side="right") - 1
                axes.plot(curve.censored_s, curve.share[steps], "|", color=style["color"], markersize=8)
            axes.set(xlabel=f"{unit} since the change", ylabel=_SHARES[what])
            axes.set_ylim(0.0, 1.03)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        note = "Kaplan-Meier estimates over all changes and seeds; strokes: censored by the next change or the end of the run"
        finish_figure(figure, "How soon changes were answered", note, [(line, label) for label, line in lines.items()], look=look)
    return figure


def course_figure(
    groups: Groups, *, window: int | None = None, over: Over | None = None, look: Look = PLAIN
) -> ShownFigure | None:
    """Draw the regret rate of the first run with its changes and declarations; jamming and outages are shaded.

    None where the run has no regret, or neither a change nor a disturbance.
    """
    run = next((runs[0] for runs in groups.values() if runs), None)
    regret = np.zeros(0) if run is None else regret_of_rounds(run)
    if run is None or not len(regret) or np.isnan(regret).any():
        return None
    changes, shaded = true_changes(run), disturbances(run)
    if not changes and not len(shaded):
        return None
    window, along = window or WINDOW, abscissa({run.label: [run]}, over)
    columns = run.columns(["round", "start_s", "end_s"])
    # A rate stands at the end of its round, as in `regret_around_changes`; a change acts at the start of its first round.
    position = columns[along.column]
    starts = columns["round"] if along.over == "rounds" else columns["start_s"]
    with look.apply():
        figure, (axes,) = new_figure(look=look)
        (line,) = axes.plot(position, moving_mean(regret, window), **line_style(0))
        lines: list[tuple[Artist, str]] = [(line, f"regret, moving mean of {window} rounds")]
        for first in changes:
            axes.axvline(starts[first - 1], color=FAINT, linewidth=1.2, zorder=1)
        if changes:
            lines.append((Line2D([], [], color=FAINT, lw=1.2), "change"))
        lines += _mark_declarations(axes, run, changes, position)
        # On an axis of rounds, a round reaches half way to its neighbours.
        low, high, margin = ("start_s", "end_s", 0.0) if along.over == "seconds" else ("first_round", "last_round", 0.5)
        for kind, rows in shaded.groupby("kind"):
            for left, right in rows[[low, high]].to_numpy().tolist():
                axes.axvspan(left - margin, right + margin, color=SHADES[str(kind)], alpha=0.25, linewidth=0, zorder=0)
            lines.append((Patch(color=SHADES[str(kind)], alpha=0.25), str(kind)))
        axes.set_ylabel("regret per round")
        along.label(axes)
        finish_figure(figure, "The course of a run", f"seed {run.seed}, {run.label}", lines, look=look)
    return figure


def _mark_declarations(axes: Axes, run: Run, changes: Sequence[int], position: FloatArray) -> list[tuple[Artist, str]]:
    """Draw a marker on the axis for each round in which `run` declared a change, by cause; return the entries of the legend.

    `changes`: first rounds of the true changes. `position`: place of each round on the axis. Empty without declarations.
    """
    if not run.has_detections or not len(run.detections):
        return []
    rounds = declared_rounds(run)
    causes = run_detections(run, changes).causes
    lines: list[tuple[Artist, str]] = []
    for cause, marker in (("change", "o"), ("jamming", "s"), ("false alarm", "X")):
        has_cause = [declared_cause == cause for declared_cause in causes]
        x = position[rounds[has_cause] - 1]
        if len(x):
            axes.plot(x, np.zeros(len(x)), marker, color=INK, ms=6, ls="none", clip_on=False, zorder=4)
            lines.append((Line2D([], [], color=INK, marker=marker, ls="none"), f"declared: {cause}"))
    return lines

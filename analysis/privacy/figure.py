"""Figures of privacy: the largest leak over the course of a run, and the leak of each client at its end."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from analysis.figures.client_lines import client_lines
from analysis.figures.lines import abscissa, curve_note, curves_of, draw_lines, round_columns
from analysis.figures.settings import PLAIN, Look, Over
from analysis.figures.style import ShownFigure, finish_figure, new_figure
from analysis.figures.theme import FAINT
from analysis.results.groups import Groups
from analysis.results.run import Run
from analysis.statistics.arrays import Curve, FloatArray


def leak_figure(groups: Groups, *, over: Over | None = None, look: Look = PLAIN) -> ShownFigure | None:
    """Draw the largest composed privacy leak over clients against rounds or seconds; None where no run measures a leak.

    Variants without protection have no finite leak: the note names them, and no line shows them as zero.
    """
    unprotected = []
    along = abscissa(groups, over)

    def leak_curve(run: Run) -> Curve:
        """Return the largest leak of each round. Without a finite leak: empty, and the label is added to `unprotected`.

        The label is not added if the run delivered nothing: then it gave nothing away.
        """
        x, leak, delivered = round_columns(run, along.column, "max_leak", "delivered")
        if leak.size and np.isfinite(leak).all() and leak.max() > 0.0:
            return x, leak
        if leak.size and delivered.sum() > 0:
            unprotected.append(run.label)
        return np.empty(0), np.empty(0)

    curves = curves_of(groups, leak_curve)
    if not any(curves.values()):
        return None
    with look.apply():
        figure, (axes,) = new_figure(look=look)
        lines = draw_lines(axes, curves, along.grid(curves))
        axes.set_ylim(bottom=0.0)
        axes.set_ylabel("largest leak over clients (ε)")
        along.label(axes)
        note = curve_note(curves, "composed over a client's participations")
        if unprotected:
            note += f"; without protection, not drawn: {', '.join(dict.fromkeys(unprotected))}"
        finish_figure(figure, "Privacy leak", note, lines, look=look)
    return figure


def client_leaks(run: Run) -> FloatArray:
    """Return the composed privacy leak of each client at the end of the run, (K,), in units of ε; 0: it released nothing.

    Empty without records of clients or without releases; inf where a release was not protected.
    """
    if not run.has_clients or not run.has_privacy:
        return np.empty(0)
    leaks: FloatArray = np.zeros(int((run.scenario.get("clients") or {}).get("count", 0)))
    for piece in run.pieces("clients", ("client", "leak")):
        client = np.asarray(piece.column("client").to_numpy(), np.int64)
        leak = np.asarray(piece.column("leak").to_numpy(), np.float64)
        released = ~np.isnan(leak)
        # More clients may take part than the scenario counts.
        leaks = np.pad(leaks, (0, max(0, int(client.max(initial=-1)) + 1 - leaks.size)))
        np.maximum.at(leaks, client[released], leak[released])
    return leaks if leaks.any() else np.empty(0)


def client_leaks_figure(groups: Groups, *, look: Look = PLAIN) -> ShownFigure | None:
    """Draw the composed leak of each client at the end, a line for each variant; None where no run measures a leak.

    A line shows the budget where all variants have the same. The note names variants that sent updates without protection.
    """
    unprotected = []
    # Leaks (K,) of each run of a variant; none of a variant without protection.
    drawable: dict[str, list[FloatArray]] = {}
    for label, runs in groups.items():
        leaks_of_runs = [client_leaks(run) for run in runs]
        if any(np.isinf(leaks).any() for leaks in leaks_of_runs):
            unprotected.append(label)
            leaks_of_runs = []
        drawable[label] = leaks_of_runs
    if not any(leaks.size for leaks in itertools.chain(*drawable.values())):
        return None
    with look.apply():
        figure, (axes,) = new_figure(look=look)
        lines, curves = client_lines(axes, drawable, "composed leak of a client (ε)", "largest leak")
        budgets = {_budget(run) for label, runs in groups.items() if curves[label] for run in runs}
        if len(budgets) == 1 and None not in budgets:
            (budget,) = budgets
            lines.append((axes.axhline(budget, color=FAINT, linewidth=1.2, zorder=1), f"budget: {budget:g}"))
            axes.set_ylim(top=max(axes.get_ylim()[1], 1.05 * budget))
        note = curve_note(curves, "composed over a client's participations, after the last close, too")
        if unprotected:
            note += f"; without protection, not drawn: {', '.join(unprotected)}"
        finish_figure(figure, "Privacy leak of each client", note, lines, look=look)
    return figure


def _budget(run: Run) -> Any:
    """Return the total ε that a client may give away; None where the scenario's schedule has no such number."""
    return ((run.scenario.get("privacy") or {}).get("schedule") or {}).get("epsilon_total")

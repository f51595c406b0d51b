"""The figure of what each client has given away by the end of a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.figures.by_client import client_lines
from analysis.figures.lines import curve_note
from analysis.figures.settings import PLAIN, Look
from analysis.figures.style import FAINT, ShownFigure, headline, new_figure
from analysis.groups import Groups
from analysis.results import Run
from analysis.statistics import FloatArray


def client_leaks(run: Run) -> FloatArray:
    """(K,) the composed privacy leak of each client at the end of the run, in units of ε; 0: it released nothing.

    Empty without records of clients or without releases; inf where a release was not protected.
    """
    if not run.has_clients or not run.has_privacy:
        return np.empty(0)
    leaks: FloatArray = np.zeros(int((run.scenario.get("clients") or {}).get("count", 0)))
    for piece in run.pieces("clients", ("client", "leak")):
        client = np.asarray(piece.column("client").to_numpy(), np.int64)
        leak = np.asarray(piece.column("leak").to_numpy(), np.float64)
        released = ~np.isnan(leak)
        # Whoever takes part may be more than the scenario says in numbers.
        leaks = np.pad(leaks, (0, max(0, int(client.max(initial=-1)) + 1 - leaks.size)))
        np.maximum.at(leaks, client[released], leak[released])
    return leaks if leaks.any() else np.empty(0)


def client_leaks_figure(groups: Groups, *, look: Look = PLAIN) -> ShownFigure | None:
    """The composed leak of each client at the end, a line for each variant; None where no run leaks anything measured.

    Beside it the budget, where all variants have the same one. Variants that sent updates without protection are named.
    """
    found = {label: [client_leaks(run) for run in runs] for label, runs in groups.items()}
    bare = [label for label, several in found.items() if any(np.isinf(one).any() for one in several)]
    values = {label: [] if label in bare else several for label, several in found.items()}
    if not any(one.size for several in values.values() for one in several):
        return None
    with look.applied():
        figure, (axes,) = new_figure(look=look)
        lines, curves = client_lines(axes, values, "composed leak of a client (ε)", "largest leak")
        budgets = {_budget(run) for label, runs in groups.items() if curves[label] for run in runs}
        if len(budgets) == 1 and None not in budgets:
            (budget,) = budgets
            lines.append((axes.axhline(budget, color=FAINT, linewidth=1.2, zorder=1), f"budget: {budget:g}"))
            axes.set_ylim(top=max(axes.get_ylim()[1], 1.05 * budget))
        note = curve_note(curves, "composed over a client's participations, after the last close, too")
        note += f"; without protection, not drawn: {', '.join(bare)}" if bare else ""
        headline(figure, "Privacy leak of each client", note, lines, look=look)
    return figure


def _budget(run: Run) -> Any:
    """ε that a client may give away in all; None where the scenario's schedule has no such number."""
    return ((run.scenario.get("privacy") or {}).get("schedule") or {}).get("epsilon_total")

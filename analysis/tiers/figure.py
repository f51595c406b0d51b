"""Figure of edge tiers: where the time of a round of the server goes."""

from __future__ import annotations

import numpy as np

from analysis.figures.bars import bars_in_words, stacked_bars
from analysis.figures.settings import PLAIN, Look
from analysis.figures.style import ShownFigure, headline, new_figure, row_in
from analysis.results.groups import Groups
from analysis.tiers.measure import PARTS, has_tiers, tier_times


def tiers_figure(groups: Groups, *, look: Look = PLAIN) -> ShownFigure | None:
    """Draw the mean seconds of each part of a round of the server, a bar a variant; None where no run has edges.

    Variants without edges have bars beside them, if their clients are on record.
    """
    if not any(has_tiers(run) for runs in groups.values() for run in runs):
        return None
    found: dict[str, list[float]] = {}
    for label, runs in groups.items():
        kept = [list(tier_times(run).values()) for run in runs if run.has_clients and run.states_causes and len(run.rounds)]
        if kept:
            found[label] = np.mean(kept, axis=0).tolist()
    names = list(PARTS.values())
    with look.apply():
        figure, (axes,) = new_figure(size_in=(7.2, 1.7 + row_in(found, 0.36) * len(found)), look=look)
        legend = stacked_bars(axes, found, names)
        axes.set(xlabel="mean round of the server (s)")
        axes.set_xlim(left=0.0)
        note = "mean over edges and rounds; without edges the server stands in the place of the edge"
        headline(figure, "Time of a round, by tier", note, legend, look=look)
        figure.description = bars_in_words(found, names, "{:.3g} s")
    return figure

"""Figure of edge tiers: where the time of a round of the server goes."""

from __future__ import annotations

import numpy as np

from analysis.figures.bars import seconds_figure
from analysis.figures.settings import PLAIN, Look
from analysis.figures.style import ShownFigure
from analysis.results.groups import Groups
from analysis.tiers.measure import PARTS, has_tiers, tier_times


def tiers_figure(groups: Groups, *, look: Look = PLAIN) -> ShownFigure | None:
    """Draw the parts of a mean round of the server in seconds, one bar for each variant; None where no run has edges.

    Variants without edges have bars, too, if their runs have records of clients.
    """
    if not any(has_tiers(run) for runs in groups.values() for run in runs):
        return None
    seconds: dict[str, list[float]] = {}
    for label, runs in groups.items():
        by_run = [list(tier_times(run).values()) for run in runs if run.has_clients and run.states_causes and len(run.rounds)]
        if by_run:
            seconds[label] = np.mean(by_run, axis=0).tolist()
    return seconds_figure(
        seconds,
        list(PARTS.values()),
        title="Time of a round, by tier",
        xlabel="mean round of the server (s)",
        note="mean over edges and rounds; without edges the server stands in the place of the edge",
        look=look,
    )

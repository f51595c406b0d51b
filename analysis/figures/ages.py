"""The figure of ages: how long ago each client was last heard, round by round, as a map."""

from __future__ import annotations

import numpy as np
from matplotlib.ticker import MaxNLocator

from analysis.figures.lines import abscissa, round_columns, round_edges
from analysis.figures.settings import PLAIN, Look, Over
from analysis.figures.style import ShownFigure, drawable, headline, new_figure
from analysis.groups import Groups
from analysis.results import Run
from analysis.statistics import FloatArray

MOST_PANELS = 6
"""Variants that one figure shows."""
MOST_COLUMNS, MOST_ROWS = 600, 300
"""Rounds and clients that a map shows one by one; of more, neighbours share a cell."""


def ages(run: Run) -> FloatArray:
    """Age of information of each client after each round in rounds, (rounds, K): 1 where it delivered in the round.

    Of servers with ages as they recorded it. Of others it counts from a delivery to the close of the round in which it came;
    before its first delivery, from the start of the run. Empty without records of clients.
    """
    if not run.has_clients or run.summary.get("slots"):
        return np.empty((0, 0))
    (end_s,) = round_columns(run, "end_s")
    table = run.arrow("clients", ["round", "client", "outcome", "outcome_s", "age_after_rounds"])
    client = np.asarray(table.column("client").to_numpy(), np.int64)
    number = np.asarray(table.column("round").to_numpy(), np.int64) - 1
    count = max(int((run.scenario.get("clients") or {}).get("count", 0)), int(client.max(initial=-1)) + 1)
    if not end_s.size or not count:
        return np.empty((0, 0))
    recorded = np.asarray(table.column("age_after_rounds").to_numpy(), np.float64)
    delivered = np.array([outcome == "delivered" for outcome in table.column("outcome").to_pylist()], bool)
    heard = np.zeros((end_s.size, count), bool)
    if np.isnan(recorded).all() and end_s[-1] > 0.0:
        # An update may be delivered rounds after the one that it was begun for.
        number = np.searchsorted(end_s, np.asarray(table.column("outcome_s").to_numpy(), np.float64))
    within = delivered & (number < end_s.size)
    heard[number[within], client[within]] = True
    last = np.maximum.accumulate(np.where(heard, np.arange(1, end_s.size + 1)[:, np.newaxis], 0), axis=0)
    return np.asarray(np.arange(1, end_s.size + 1)[:, np.newaxis] - last + (last > 0), np.float64)


def _coarse(age: FloatArray, edges: tuple[FloatArray, FloatArray]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The largest age within each cell of a map of at most `MOST_COLUMNS` by `MOST_ROWS`, and the edges of its cells.

    `edges`: those of the rounds, (rounds + 1,), and of the clients, (K + 1,).
    """
    kept = list(edges)
    for axis, most in ((0, MOST_COLUMNS), (1, MOST_ROWS)):
        count = age.shape[axis]
        if count > most:
            starts = np.unique(np.linspace(0, count, most, endpoint=False).astype(np.int64))
            age = np.maximum.reduceat(age, starts, axis=axis)
            kept[axis] = kept[axis][np.append(starts, count)]
    return age, kept[0], kept[1]


def ages_figure(groups: Groups, *, over: Over | None = None, look: Look = PLAIN) -> ShownFigure | None:
    """Ages of all clients over the run, a map for each variant's first run; None without records of clients, or one round."""
    maps: dict[str, tuple[FloatArray, FloatArray]] = {}
    along = abscissa(groups, over)
    for label, runs in groups.items():
        if len(maps) == MOST_PANELS or not runs:
            continue
        found = ages(runs[0])
        edges = round_edges(runs[0], along)
        # Rounds in which no time passes are nowhere over seconds.
        if found.shape[0] > 1 and found.shape[1] > 1 and edges[-1] > edges[0]:
            maps[label] = (found, edges)
    if not maps:
        return None
    highest = max(float(np.quantile(age, 0.995)) for age, _ in maps.values())
    columns = min(2, len(maps))
    rows = -(-len(maps) // columns)
    with look.applied():
        size = (7.2, 1.4 + 2.3 * rows if columns > 1 else 3.6)
        figure, panels = new_figure((1.0,) * columns, rows=rows, size_in=size, share_y=False, look=look)
        # Of the width, a panel has its share less what stands beside the panels.
        letters = max(12, int(0.75 * figure.get_figwidth() / columns * 72.0 / (0.56 * look.font_size)))
        for axes, (label, (age, edges)) in zip(panels, maps.items(), strict=False):
            shown, across, up = _coarse(age, (edges, np.arange(age.shape[1] + 1) - 0.5))
            # Rounds may last for different times: each is as wide as it lasted.
            image = axes.pcolorfast(across, up, shown.T, cmap="cividis", vmin=1.0, vmax=max(2.0, highest))
            axes.set_title(drawable(label, letters), fontsize="medium", loc="left")
            axes.set(xlabel=along.unit, ylabel="client")
            axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
            axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=along.over == "rounds"))
            axes.grid(visible=False)
        for axes in panels[len(maps) :]:
            axes.set_visible(False)
        figure.colorbar(image, ax=panels, label="age (rounds)", pad=0.015, extend="max")
        left_out = len(groups) - len(maps)
        note = f"rounds since a client was last heard; seed {next(iter(groups.values()))[0].seed}"
        note += f"; {left_out} further variants are not drawn" if left_out else ""
        headline(figure, "Age of information", note, [], look=look)
        means = ", ".join(f"{label} {float(age.mean()):.3g}" for label, (age, _) in maps.items())
        figure.described = f"Maps of ages, clients against {along.unit}. Mean ages in rounds: {means}."
    return figure

"""The figure of the graph between clients: the belief of each client in some slots, and the members of these slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from analysis.figures.settings import PLAIN, Look
from analysis.figures.style import ShownFigure, finish_figure, new_figure
from analysis.figures.theme import AXIS, GRID, INK
from analysis.results.groups import Groups
from analysis.results.run import Run
from analysis.statistics.arrays import FloatArray

MOST_SLOTS = 4
"""Largest number of slots shown side by side: the first, the last, and some between at equal ratios."""
MOST_NAMED = 30
"""Clients that are shown with their numbers."""
MOST_LINKS = 20_000
"""Links that are drawn: more take long and cover all else."""
_COLUMNS = ("source", "target", "source_x_km", "source_y_km", "target_x_km", "target_y_km")


def belief_map(run: Run, column: str = "belief") -> FloatArray:
    """Return a column of the table `beliefs` as a matrix (slots, K); NaN without a row. ValueError: there is no such table."""
    table = run.arrow("beliefs", ["round", "client", column])
    number, client = (np.asarray(table.column(name).to_numpy(), np.int64) for name in ("round", "client"))
    beliefs = np.full((int(number.max(initial=0)), int(client.max(initial=-1)) + 1), np.nan)
    beliefs[number - 1, client] = np.asarray(table.column(column).to_numpy(zero_copy_only=False), np.float64)
    return beliefs


def topology_figure(groups: Groups, *, round: int | None = None, look: Look = PLAIN) -> ShownFigure | None:
    """Draw the graph of the first run with records of beliefs, clients coloured by belief, a panel a slot; None without one.

    `round`: the one slot to show; None: up to `MOST_SLOTS` from the first to the last. Clients lie at their places in km, or,
    where the scenario gives none, on a circle in the order of their numbers. Members of a slot have a dark ring.

    Raises:
        ValueError: the run has no such slot.
    """
    run = next((run for runs in groups.values() for run in runs if run.source.has("beliefs") and run.source.has("links")), None)
    beliefs = np.empty((0, 0)) if run is None else belief_map(run)
    if run is None or not beliefs.size:
        return None
    slots = _choose_slots(beliefs.shape[0], round)
    members = belief_map(run, "member") > 0.5
    places, in_km = _read_places(run, beliefs.shape[1])
    links = np.stack([_column(run, "source"), _column(run, "target")], axis=1).astype(np.int64)
    with look.apply():
        wide = min(2, len(slots))
        rows = -(-len(slots) // wide)
        size = (7.2, 1.6 + 3.0 * rows) if wide > 1 else (5.4, 4.8)
        figure, panels = new_figure((1.0,) * wide, rows=rows, size_in=size, share_y=False, look=look)
        for axes, slot in zip(panels, slots, strict=False):
            drawn = _draw_graph(axes, places, links, beliefs[slot - 1], members[slot - 1])
            axes.set_title(f"slot {slot}", fontsize="medium", loc="left")
            axes.set_xlabel("east (km)" if in_km else "no places: clients on a circle")
            if in_km:
                axes.set_ylabel("north (km)")
            else:
                axes.set(xticks=[], yticks=[], ylabel="by their numbers")
        for axes in panels[len(slots) :]:
            axes.set_visible(False)
        figure.colorbar(drawn, ax=panels, label="belief that the client should be selected", pad=0.015)
        ring = Line2D([], [], marker="o", ls="none", mfc="white", mec=INK, mew=2.0, ms=8.0)
        lines = [(ring, "takes part"), (Line2D([], [], color=AXIS, lw=0.8), "neighbours")]
        left_out = len(links) - MOST_LINKS
        note = f"seed {run.seed}, {run.label}; {beliefs.shape[1]:,} clients, {len(links):,} links"
        note += f"; the first {MOST_LINKS:,} links are drawn" if left_out > 0 else ""
        finish_figure(figure, "Beliefs on the graph of the clients", note, lines, look=look)
        parts = [
            f"slot {slot}: mean belief {np.nanmean(beliefs[slot - 1]):.3g}, members {_names(np.flatnonzero(members[slot - 1]))}"
            for slot in slots
        ]
        figure.description = f"A graph of {beliefs.shape[1]:,} clients and {len(links):,} links. {'; '.join(parts)}."
    return figure


def _choose_slots(count: int, round: int | None) -> list[int]:
    """Return the slots to show out of `count`: slot `round`, or some (None). ValueError: there is no such slot."""
    if round is None:
        # At equal ratios: beliefs change most in the first slots.
        return [int(slot) for slot in np.unique(np.geomspace(1.0, count, MOST_SLOTS).round())]
    if round > count:
        raise ValueError(f"round = {round!r}: the run has {count:,} slots")
    return [round]


def _column(run: Run, name: str) -> FloatArray:
    """Return a column (L,) of the table `links` of a run."""
    return np.asarray(run.arrow("links", [name]).column(name).to_numpy(), np.float64)


def _read_places(run: Run, count: int) -> tuple[FloatArray, bool]:
    """Return the places of clients (K, 2), and True if they are in km; on a circle if the run has no places.

    The table of links states the places of both ends of each link; a client without a neighbour has none: NaN.
    """
    source, target, *places = (_column(run, name) for name in _COLUMNS)
    stated = np.full((count, 2), np.nan)
    for client, x, y in ((source, *places[:2]), (target, *places[2:])):
        stated[client.astype(np.int64)] = np.stack([x, y], axis=1)
    if np.isfinite(stated).any():
        return stated, True
    angle = 2.0 * np.pi * np.arange(count) / count
    return np.stack([np.sin(angle), np.cos(angle)], axis=1), False


def _draw_graph(axes: Axes, places: FloatArray, links: NDArray[np.int64], belief: FloatArray, member: NDArray[np.bool_]) -> Any:
    """Draw the graph in one slot, clients coloured by their `belief` (K,); return the markers that a colour bar explains.

    `member` (K,): True for clients in the set that the slot uses; they have a ring.
    """
    axes.add_collection(LineCollection([*places[links[:MOST_LINKS]]], colors=AXIS, linewidths=0.6, alpha=0.5, zorder=1))
    few = len(places) <= MOST_NAMED
    size = 150.0 if few else max(8.0, 4000.0 / len(places))
    colours: dict[str, Any] = {"cmap": "cividis", "vmin": 0.0, "vmax": 1.0}
    (x, y), (member_x, member_y) = places[~member].T, places[member].T
    markers = axes.scatter(x, y, s=size, c=belief[~member], ec=GRID, lw=0.5, zorder=3, **colours)
    # Above other nodes, and large enough that the colour within the ring is visible.
    axes.scatter(member_x, member_y, s=max(size, 40.0), c=belief[member], ec=INK, lw=2.0, zorder=4, **colours)
    for client, (x, y) in enumerate(places if few else ()):
        colour = "white" if belief[client] < 0.5 else "black"
        # With its own id in the picture: checks of contrast must know that it stands on the colour of its node, not on paper.
        axes.annotate(f"{client}", (x, y), ha="center", va="center", fontsize=6.5, color=colour, zorder=5, gid=f"client-{client}")
    axes.set_aspect("equal", adjustable="box")
    axes.grid(visible=False)
    low, high = np.nanmin(places, axis=0), np.nanmax(places, axis=0)
    room = 0.08 * max(float((high - low).max()), 1e-9)
    axes.set(xlim=(low[0] - room, high[0] + room), ylim=(low[1] - room, high[1] + room))
    return markers


def _names(clients: Sequence[int] | NDArray[np.int64]) -> str:
    """Return the numbers of clients as text, the first eight of them."""
    further = len(clients) - 8
    return ", ".join(map(str, clients[:8])) + (f" and {further} more" if further > 0 else "")

"""Figures of a network of links: a map with loads, and the utilisation of links over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.figures.settings import PLAIN, Look
from analysis.network.measure import has_loads, link_table, utilisation_over_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from analysis.figures.style import ShownFigure
    from analysis.results.groups import Groups
    from analysis.results.run import Run
    from analysis.statistics.arrays import FloatArray

_MANY_NODES = 100
"""Number of nodes above which they are drawn smaller."""
MOST_LINKS = 24
"""Largest number of links in the figure over time: the busiest ones."""
MOST_STEPS = 300
"""Largest number of intervals of time in that figure."""
_ITERATIONS = 60
"""Iterations of the placing by springs."""
_MOST_EXACT = 120
"""Largest number of nodes placed by all distances. More nodes are placed by springs, which is faster."""
_COLOURS = "viridis_r"


def network_figure(groups: Groups, *, look: Look = PLAIN) -> ShownFigure | None:
    """Draw the network of the first run that recorded its links, cables coloured by utilisation; None without one.

    A cable has the colour of its busier direction. Distances on paper follow the delays as far as possible. The node of the
    server is a square; nodes with clients are filled.
    """
    run = _recorded_run(groups)
    if run is None:
        return None
    from matplotlib.lines import Line2D

    from analysis.figures.style import finish_figure, new_figure
    from analysis.figures.theme import AXIS, INK, PALETTE, PAPER

    cables, loads = run.arrow("cables").to_pandas(), link_table(run)
    busier = loads.groupby("cable")["utilisation"].max()
    positions = _node_positions(cables)
    with look.apply():
        figure, (axes,) = new_figure(size_in=(8.6, 6.6), look=look)
        drawn = _draw_cables(axes, cables, positions, busier)
        clients = _clients_by_node(cables)
        server = run.scenario["network"]["server"]
        node_size = 5.5 if len(positions) <= _MANY_NODES else 2.5
        for node, (x, y) in positions.items():
            fill = PALETTE[0] if clients.get(node) else PAPER
            mark, size = ("s", 9.0) if node == server else ("o", node_size)
            axes.plot([x], [y], marker=mark, ms=size, mfc=fill, mec=INK, mew=0.9, ls="none", zorder=3)
        unnamed = _name_nodes(axes, cables, positions, [server, *_nodes_by_load(cables, busier)], look)
        figure.colorbar(drawn, ax=axes, label="utilisation, mean over the run (%)", pad=0.015, shrink=0.8)
        shape: dict[str, Any] = {"ls": "none", "mec": INK, "mew": 0.9}
        server_fill = PALETTE[0] if clients.get(server) else PAPER
        legend: list[tuple[Artist, str]] = [
            (Line2D([], [], marker="s", ms=9.0, mfc=server_fill, **shape), "server"),
            (Line2D([], [], marker="o", ms=5.5, mfc=PALETTE[0], **shape), "clients"),
        ]
        if not all(clients.get(node) or node == server for node in positions):
            legend.append((Line2D([], [], marker="o", ms=5.5, mfc=PAPER, **shape), "neither"))
        if len(busier) < len(cables):
            legend.append((Line2D([], [], color=AXIS, lw=0.7, ls=(0, (2, 2))), "no bytes"))
        note = f"seed {run.seed}, {run.label}; {len(positions):,} nodes, {len(cables):,} cables"
        note += "; colour: the busier direction of a cable"
        if unnamed:
            note += f"; no room for the names of {unnamed:,} nodes"
        finish_figure(figure, "Loads on the network", note, legend, look=look)
        first = [f"{link} {100 * share:.3g} %" for link, share in loads["utilisation"].head(5).items()]
        figure.description = (
            f"A map of {len(positions):,} nodes and {len(cables):,} cables, of which {len(busier):,} carried bytes. "
            f"Busiest links: {', '.join(first)}."
        )
    return figure


def link_loads_figure(groups: Groups, *, look: Look = PLAIN) -> ShownFigure | None:
    """Draw the utilisation of the busiest links over time, one row for each; None unless a run recorded its links."""
    run = _recorded_run(groups)
    if run is None:
        return None
    from analysis.figures.style import drawable_text, finish_figure, new_figure, row_height_in

    loads = link_table(run)
    links = [str(link) for link in loads.index[:MOST_LINKS]]
    edges, shares = utilisation_over_time(run, links, MOST_STEPS)
    with look.apply():
        figure, (axes,) = new_figure(size_in=(8.6, 1.9 + row_height_in(links, 0.2) * len(links)), look=look)
        colours: dict[str, Any] = {"cmap": _COLOURS, "vmin": 0.0, "vmax": 100.0, "rasterized": True}
        drawn = axes.pcolormesh(edges, np.arange(len(links) + 1), 100.0 * shares, **colours)
        axes.set_yticks(np.arange(len(links)) + 0.5, [drawable_text(link) for link in links])
        axes.set(xlabel="simulated time (s)", ylim=(len(links), 0))
        axes.grid(visible=False)
        figure.colorbar(drawn, ax=axes, label="utilisation (%)", pad=0.015)
        note = f"seed {run.seed}, {run.label}; mean of each round, or of steps where rounds are many; a link is named CABLE>NODE"
        if len(loads) > len(links):
            note += f"; the {len(links)} busiest of {len(loads):,} links that bytes crossed"
        finish_figure(figure, "Utilisation of links over time", note, [], look=look)
        means = [f"{link} {100 * share:.3g} %" for link, share in loads["utilisation"].head(5).items()]
        figure.description = f"Utilisation of {len(links)} links over {edges[-1]:.6g} s. Means: {', '.join(means)}."
    return figure


def _recorded_run(groups: Groups) -> Run | None:
    """Return the first run that recorded its transfers, or None."""
    return next((run for runs in groups.values() for run in runs if has_loads(run)), None)


def _clients_by_node(cables: pd.DataFrame) -> dict[str, int]:
    """Return the number of clients on each node."""
    counts = dict(zip(cables["a"], cables["clients_at_a"], strict=True))
    counts |= zip(cables["b"], cables["clients_at_b"], strict=True)
    return counts


def _nodes_by_load(cables: pd.DataFrame, busier: pd.Series[float]) -> list[str]:
    """Return the nodes at the ends of cables that carried bytes, those of the busiest cable first."""
    ends = cables.set_index("cable").loc[busier.sort_values(ascending=False, kind="stable").index]
    return list(ends[["a", "b"]].to_numpy().ravel())


def _node_positions(cables: pd.DataFrame) -> dict[str, FloatArray]:
    """Return the position (2,) of each node on the map. Distances follow the delays of cables as far as possible.

    The same cables give the same map: the layout draws from a fixed seed, or nothing at all.
    """
    import networkx as nx

    graph = nx.Graph()
    # The root and the constant keep the ends of short cables apart.
    usual_s = float(cables["delay_s"].mean()) or 1.0
    for a, b, delay_s in zip(cables["a"], cables["b"], cables["delay_s"].to_list(), strict=True):
        graph.add_edge(a, b, length=0.6 + float(delay_s / usual_s) ** 0.5)
    if len(graph) > _MOST_EXACT:
        return dict(nx.spring_layout(graph, seed=0, iterations=_ITERATIONS))
    return dict(nx.kamada_kawai_layout(graph, weight="length"))


def _draw_cables(axes: Axes, cables: pd.DataFrame, positions: dict[str, FloatArray], busier: pd.Series[float]) -> Any:
    """Draw cables, coloured by use, the busiest above the others; return the lines that a colour bar explains.

    `busier`: share of the bandwidth in use, in the busier direction, by cable; idle cables are missing.
    """
    from matplotlib.collections import LineCollection

    from analysis.figures.theme import AXIS

    def segments(part: pd.DataFrame) -> list[list[FloatArray]]:
        """Return the two ends of each cable on the map."""
        return [[positions[a], positions[b]] for a, b in zip(part["a"], part["b"], strict=True)]

    is_used = cables["cable"].isin(busier.index)
    idle, used = cables[~is_used], cables[is_used]
    # The last line drawn is on top: that of the busiest cable.
    used = used.assign(share=busier.loc[used["cable"]].to_numpy()).sort_values("share", kind="stable")
    # Many idle cables must not hide the others.
    alpha = 0.8 if len(cables) <= 2 * len(positions) else 0.35
    dashed = LineCollection(segments(idle), colors=AXIS, linewidths=0.7, linestyles=[(0, (2, 2))], alpha=alpha, zorder=1)
    axes.add_collection(dashed)
    percent = 100.0 * used["share"].to_numpy()
    drawn = LineCollection(segments(used), cmap=_COLOURS, linewidths=1.2 + 2.8 * percent / 100.0, zorder=2)
    drawn.set_array(percent)
    drawn.set_clim(0.0, 100.0)
    axes.add_collection(drawn)
    axes.set_aspect("equal", adjustable="datalim")
    axes.grid(visible=False)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.margins(0.06)
    axes.autoscale_view()
    return drawn


def _name_nodes(axes: Axes, cables: pd.DataFrame, positions: dict[str, FloatArray], first: Sequence[str], look: Look) -> int:
    """Write the names of nodes beside them, those of `first` first, where there is room; return the number left out.

    A name takes the side of its node that is farthest from the directions of its cables, and hides no other name and no other
    node. All lengths below are in points of paper.
    """
    from analysis.figures.style import drawable_text, halo
    from analysis.figures.theme import INK

    figure = axes.get_figure(root=True)
    assert figure is not None
    points = np.array(list(positions.values()))
    # Points of paper for a unit of the map: three quarters of the figure's width and height are the map's.
    width, height = np.ptp(points, axis=0)
    scale = 54.0 * min(figure.get_figwidth() / (width or 1.0), figure.get_figheight() / (height or 1.0))
    spots = dict(zip(positions, scale * points, strict=True))  # the positions, in points of paper
    font_size = look.points(0.71 if len(positions) <= 50 else 0.57)
    angles = np.linspace(0.0, 2.0 * np.pi, 16, endpoint=False)
    sides = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    directions: dict[str, list[FloatArray]] = {node: [] for node in positions}
    for a, b in zip(cables["a"], cables["b"], strict=True):
        directions[a].append(_unit_vector(spots[b] - spots[a]))
        directions[b].append(_unit_vector(spots[a] - spots[b]))
    # Middle and half the width and height of each rectangle in which no name may stand: the nodes, then the names written.
    occupied = [(spot, np.array([3.5, 3.5])) for spot in spots.values()]
    left_out = 0
    for node in dict.fromkeys([*first, *positions]):
        name = drawable_text(str(node))
        half = np.array([0.32 * font_size * len(name), 0.62 * font_size])  # half the width and height of the name
        cable_directions = np.array(directions[node])
        # The side farthest from all cables comes first: its largest cosine with a cable is the least.
        for side in sorted(sides.tolist(), key=lambda side: float((cable_directions @ side).max())):
            # Shift the name so that its edge, not its middle, is next to the node.
            middle = spots[node] + 8.0 * np.array(side) + half * np.sign(np.round(side, 1)) * (np.abs(side) > 0.4)
            if all((np.abs(middle - other) >= half + other_half).any() for other, other_half in occupied):
                axes.annotate(
                    name,
                    tuple(positions[node].tolist()),
                    xytext=tuple((middle - spots[node]).tolist()),
                    textcoords="offset points",
                    ha="center",
                    va="center",
                    fontsize=font_size,
                    color=INK,
                    zorder=4,
                    path_effects=halo(),
                )
                occupied.append((middle, half))
                break
        else:
            left_out += 1
    return left_out


def _unit_vector(vector: FloatArray) -> FloatArray:
    """Return a vector of length 1 in the same direction."""
    return np.asarray(vector / max(float(np.hypot(*vector)), 1e-9))

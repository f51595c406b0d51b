"""The catalogue of figures: their names and captions, and functions that draw one of them or all that a run has data for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from analysis.ages.figure import ages_figure, aoi_regret_figure, aoi_variance_figure, deliveries_figure
from analysis.breakpoints.figure import course_figure, regret_around_changes_figure, shares_figure
from analysis.consensus.topology_figure import topology_figure
from analysis.detections.figure import detections_figure, states_figure
from analysis.figures.lines import round_meanings
from analysis.figures.settings import MOST_VARIANTS, FigureSettings, ImageFormat, warn_of_missing_letters
from analysis.figures.style import ShownFigure, add_note, save_figure
from analysis.learning.figure import accuracy_figure, loss_figure, reached_figure
from analysis.network.figure import link_loads_figure, network_figure
from analysis.participation.figure import partition_figure, selections_figure
from analysis.peers.figure import peers_figure
from analysis.privacy.figure import client_leaks_figure, leak_figure
from analysis.regret.figure import regret_figure
from analysis.results.groups import Groups, group_runs
from analysis.results.run import Run
from analysis.results.sweep import Sweep
from analysis.stragglers.figure import latency_figure, phases_figure
from analysis.stragglers.gantt_figure import gantt_figure
from analysis.suggestions import did_you_mean
from analysis.tiers.figure import tiers_figure
from analysis.updates.figure import delivered_figure, outcomes_figure

__all__ = [
    "CAPTIONS",
    "FigureSettings",
    "accuracy_figure",
    "draw",
    "draw_all",
    "figure_of",
    "figures_of",
    "group_runs",
    "latency_figure",
    "leak_figure",
    "regret_figure",
]

_FOR_SEVERAL_VARIANTS = frozenset({"accuracy_bytes"})
"""Figures that are useful only for several variants."""
_IN_ROUNDS = frozenset({"latency", "phases", "ages"})
"""Figures that measure rounds, or in rounds: a round has a different meaning for each kind of server."""


_REMEDIES: Mapping[str, str] = {
    "topology": "run with server.kind = 'fl-da' and output.beliefs_table = true",
    "network": "run with [network] and output.transfers_table = true",
    "link_loads": "run with [network] and output.transfers_table = true",
}
"""Keys that a scenario must set for a figure that needs a table written on request."""

Maker = Callable[[Groups, FigureSettings], ShownFigure | None]


def _accuracy_maker(cost: Literal["seconds", "bytes", "joules"]) -> Maker:
    """Return the function that draws accuracy against a kind of cost. Only time has a horizon that users may set."""

    def draw_accuracy(groups: Groups, options: FigureSettings) -> ShownFigure | None:
        return accuracy_figure(
            groups,
            cost=cost,
            target_accuracy=options.target_accuracy,
            smoothing_s=options.smoothing_s or 0.0,
            horizon=options.horizon_s if cost == "seconds" else None,
            look=options.look,
        )

    return draw_accuracy


def _draw_target(groups: Groups, options: FigureSettings) -> ShownFigure | None:
    """Draw the share of runs that have reached the target; None without a target."""
    if options.target_accuracy is None:
        return None
    target, smoothing_s = options.target_accuracy, options.smoothing_s or 0.0
    return reached_figure(groups, target_accuracy=target, smoothing_s=smoothing_s, look=options.look)


_MAKERS: dict[str, tuple[str, Maker]] = {
    "accuracy": ("Test accuracy against simulated time", _accuracy_maker("seconds")),
    "accuracy_bytes": ("Test accuracy against the bytes sent, both ways", _accuracy_maker("bytes")),
    "accuracy_joules": ("Test accuracy against the energy drawn by all clients", _accuracy_maker("joules")),
    "target": ("Share of runs that have reached the target accuracy against simulated time", _draw_target),
    "loss": (
        "Loss on the test set and in training",
        lambda groups, options: loss_figure(groups, over=options.over, look=options.look),
    ),
    "peers": (
        "Accuracy of the mean model, the worst and the best peer, and the consensus distance",
        lambda groups, options: peers_figure(groups, look=options.look),
    ),
    "leak": (
        "Largest privacy leak over clients",
        lambda groups, options: leak_figure(groups, over=options.over, look=options.look),
    ),
    "client_leaks": (
        "Privacy leak of each client at the end",
        lambda groups, options: client_leaks_figure(groups, look=options.look),
    ),
    "delivered": (
        "Updates delivered against simulated time",
        lambda groups, options: delivered_figure(groups, look=options.look),
    ),
    "latency": (
        "Latency of a round over the run, and its distribution",
        lambda groups, options: latency_figure(groups, window=options.window, over=options.over, look=options.look),
    ),
    "outcomes": ("How attempts ended", lambda groups, options: outcomes_figure(groups, look=options.look)),
    "phases": ("Where the time of clients in rounds goes", lambda groups, options: phases_figure(groups, look=options.look)),
    "tiers": (
        "Time of a round of the server, by tier: training, links, backhaul, waiting",
        lambda groups, options: tiers_figure(groups, look=options.look),
    ),
    "gantt": (
        "One round, client by client",
        lambda groups, options: gantt_figure(groups, round=options.round, look=options.look),
    ),
    "selections": ("Who was selected how often", lambda groups, options: selections_figure(groups, look=options.look)),
    "regret": (
        "Cumulative regret",
        lambda groups, options: regret_figure(groups, bounds=options.regret_bounds, over=options.over, look=options.look),
    ),
    "aoi_regret": (
        "AoI regret",
        lambda groups, options: aoi_regret_figure(groups, bounds=options.aoi_bounds, over=options.over, look=options.look),
    ),
    "aoi_variance": (
        "AoI variance over the run, and cumulated",
        lambda groups, options: aoi_variance_figure(groups, window=options.window, over=options.over, look=options.look),
    ),
    "ages": (
        "Age of information of each client",
        lambda groups, options: ages_figure(groups, over=options.over, look=options.look),
    ),
    "deliveries": (
        "Share of rounds in which each client's update was delivered",
        lambda groups, options: deliveries_figure(groups, look=options.look),
    ),
    "states": (
        "States of the sub-channels, jams and declared changes",
        lambda groups, options: states_figure(groups, over=options.over, look=options.look),
    ),
    "detections": (
        "Declared and true changes of the sub-channels",
        lambda groups, options: detections_figure(groups, over=options.over, look=options.look),
    ),
    "breakpoints": (
        "Regret around changes",
        lambda groups, options: regret_around_changes_figure(groups, window=options.window, over=options.over, look=options.look),
    ),
    "answered": (
        "Share of changes declared, and recovered from, by the time since the change",
        lambda groups, options: shares_figure(groups, window=options.window, over=options.over, look=options.look),
    ),
    "course": (
        "The regret rate of one run, with its changes, jamming and outages",
        lambda groups, options: course_figure(groups, window=options.window, over=options.over, look=options.look),
    ),
    "topology": (
        "The graph between clients, with what each of them believes",
        lambda groups, options: topology_figure(groups, round=options.round, look=options.look),
    ),
    "network": (
        "The network of links, with the utilisation of its cables",
        lambda groups, options: network_figure(groups, look=options.look),
    ),
    "link_loads": ("Utilisation of links over time", lambda groups, options: link_loads_figure(groups, look=options.look)),
    "partition": ("Training samples by client and label", lambda groups, options: partition_figure(groups, look=options.look)),
}

CAPTIONS: Mapping[str, str] = {name: caption for name, (caption, _) in _MAKERS.items()}
"""Caption of each figure, by its name, in the order of reports."""


def draw(source: Sweep | Run | Sequence[Run], figure: str | None = None, **settings: Any) -> ShownFigure:
    """Draw one figure of runs, by its name in `CAPTIONS`; None: the first that there is data for.

    `settings`: the fields of `FigureSettings`.

    Raises:
        ValueError: no figure of that name, a setting out of bounds, or the runs have no data for it.
    """
    return figure_of(source, figure, FigureSettings(**settings))


def figure_of(source: Sweep | Run | Sequence[Run], figure: str | None, options: FigureSettings) -> ShownFigure:
    """Draw one figure of runs, by its name; None: the first that there is data for. ValueError: as for `draw`."""
    if figure is not None and figure not in _MAKERS:
        raise ValueError(f"figure = {figure!r}: there is no such figure; {did_you_mean(figure, _MAKERS)}")
    options = _fill_from_sweep(source, options)
    groups = group_runs(source)
    warn_of_missing_letters((*groups, options.look.title or ""), options.look.font)
    candidates = _MAKERS if figure is None else [figure]
    for name in candidates:
        drawing = _draw(name, groups, options)
        if drawing is not None:
            return drawing
    if figure is None:
        raise ValueError("these runs have data for no figure: no round of theirs took time or was measured")
    others = [name for name in _MAKERS if _draw(name, groups, options) is not None]
    message = f"figure = {figure!r}: these runs have no data for it; they have for {', '.join(others) or 'none'}"
    if figure in _REMEDIES:
        message += f"; {_REMEDIES[figure]}"
    raise ValueError(message)


def draw_all(
    source: Sweep | Run | Sequence[Run], out_dir: str | Path, *, formats: Sequence[ImageFormat] = ("png",), **settings: Any
) -> list[Path]:
    """Draw every figure the runs have data for into `out_dir`, in each of `formats`; return the files, in a fixed order.

    Accuracy against bytes is left out for a single variant, whose curve looks the same as against time. `settings`: the fields of
    `FigureSettings`.
    """
    return save_all(source, out_dir, FigureSettings(**settings), formats)


def save_all(
    source: Sweep | Run | Sequence[Run], out_dir: str | Path, options: FigureSettings, formats: Sequence[ImageFormat] = ("png",)
) -> list[Path]:
    """Draw every figure the runs have data for, save them in each of `formats`, and return the files in a fixed order."""
    files = []
    for name, figure in figures_of(source, options).items():
        files += [save_figure(figure, Path(out_dir) / f"{name}.{format}") for format in formats]
    return files


def figures_of(source: Sweep | Run | Sequence[Run], options: FigureSettings) -> dict[str, ShownFigure]:
    """Draw every figure that the runs have data for; return the figures by name, in a fixed order."""
    options = _fill_from_sweep(source, options)
    groups = group_runs(source)
    warn_of_missing_letters((*groups, options.look.title or ""), options.look.font)
    names = [name for name in _MAKERS if len(groups) > 1 or name not in _FOR_SEVERAL_VARIANTS]
    drawn = {name: _draw(name, groups, options) for name in names}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _draw(name: str, groups: Groups, options: FigureSettings) -> ShownFigure | None:
    """Draw a figure of at most `MOST_VARIANTS` variants, taken at equal steps through their list; None without data.

    Notes on it say if variants are left out, and if rounds of different meaning share its axis.
    """
    shown = groups
    if len(groups) > MOST_VARIANTS:
        indexes = set(np.linspace(0, len(groups) - 1, MOST_VARIANTS).round().astype(int).tolist())
        shown = {label: runs for index, (label, runs) in enumerate(groups.items()) if index in indexes}
    _, draw_shown = _MAKERS[name]
    figure = draw_shown(shown, options)
    if figure is None:
        return None
    if len(shown) < len(groups):
        add_note(figure, f"{len(shown)} of {len(groups)} variants, at equal steps through their list", look=options.look)
    if name in _IN_ROUNDS and len(round_meanings(shown)) > 1:
        add_note(figure, "servers with different rules of rounds: a round of one is not a round of another", look=options.look)
    return figure


def _fill_from_sweep(source: Sweep | Run | Sequence[Run], options: FigureSettings) -> FigureSettings:
    """Return the options, with target and smoothing of the sweep if they are not set."""
    if not isinstance(source, Sweep):
        return options
    if options.target_accuracy is None:
        options = replace(options, target_accuracy=source.target_accuracy)
    if options.smoothing_s is None:
        options = replace(options, smoothing_s=source.smoothing_s)
    return options

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
from analysis.figures.settings import MOST_VARIANTS, FigureSettings, ImageFormat, warn_of_letters
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

_OF_VARIANTS = frozenset({"accuracy_bytes"})
"""Figures that are useful only for several variants."""
_OF_ROUNDS = frozenset({"latency", "phases", "ages"})
"""Figures that measure rounds, or in rounds: a round has a different meaning for each kind of server."""


_REMEDIES: Mapping[str, str] = {
    "topology": "run with server.kind = 'fl-da' and output.beliefs_table = true",
    "network": "run with [network] and output.transfers_table = true",
    "link_loads": "run with [network] and output.transfers_table = true",
}
"""Keys that a scenario must set for a figure that needs a table written on request."""

Maker = Callable[[Groups, FigureSettings], ShownFigure | None]


def _accuracy(cost: Literal["seconds", "bytes", "joules"]) -> Maker:
    return lambda groups, options: accuracy_figure(
        groups,
        cost=cost,
        target_accuracy=options.target_accuracy,
        smoothing_s=options.smoothing_s or 0.0,
        horizon=options.horizon_s if cost == "seconds" else None,
        look=options.look,
    )


def _target(groups: Groups, options: FigureSettings) -> ShownFigure | None:
    if options.target_accuracy is None:
        return None
    target, smoothing_s = options.target_accuracy, options.smoothing_s or 0.0
    return reached_figure(groups, target_accuracy=target, smoothing_s=smoothing_s, look=options.look)


_MAKERS: dict[str, tuple[str, Maker]] = {
    "accuracy": ("Test accuracy against simulated time", _accuracy("seconds")),
    "accuracy_bytes": ("Test accuracy against the bytes sent, both ways", _accuracy("bytes")),
    "accuracy_joules": ("Test accuracy against the energy drawn by all clients", _accuracy("joules")),
    "target": ("Share of runs that have reached the target accuracy against simulated time", _target),
    "loss": ("Loss on the test set and in training", lambda groups, its: loss_figure(groups, over=its.over, look=its.look)),
    "peers": (
        "Accuracy of the mean model, the worst and the best peer, and the consensus distance",
        lambda groups, its: peers_figure(groups, look=its.look),
    ),
    "leak": ("Largest privacy leak over clients", lambda groups, its: leak_figure(groups, over=its.over, look=its.look)),
    "client_leaks": ("Privacy leak of each client at the end", lambda groups, its: client_leaks_figure(groups, look=its.look)),
    "delivered": ("Updates delivered against simulated time", lambda groups, its: delivered_figure(groups, look=its.look)),
    "latency": (
        "Latency of a round over the run, and its distribution",
        lambda groups, its: latency_figure(groups, window=its.window, over=its.over, look=its.look),
    ),
    "outcomes": ("How attempts ended", lambda groups, its: outcomes_figure(groups, look=its.look)),
    "phases": ("Where the time of clients in rounds goes", lambda groups, its: phases_figure(groups, look=its.look)),
    "tiers": (
        "Time of a round of the server, by tier: training, links, backhaul, waiting",
        lambda groups, its: tiers_figure(groups, look=its.look),
    ),
    "gantt": (
        "One round, client by client",
        lambda groups, its: gantt_figure(groups, round=its.round, look=its.look),
    ),
    "selections": ("Who was selected how often", lambda groups, its: selections_figure(groups, look=its.look)),
    "regret": (
        "Cumulative regret",
        lambda groups, its: regret_figure(groups, bounds=its.regret_bounds, over=its.over, look=its.look),
    ),
    "aoi_regret": (
        "AoI regret",
        lambda groups, its: aoi_regret_figure(groups, bounds=its.aoi_bounds, over=its.over, look=its.look),
    ),
    "aoi_variance": (
        "AoI variance over the run, and cumulated",
        lambda groups, its: aoi_variance_figure(groups, window=its.window, over=its.over, look=its.look),
    ),
    "ages": ("Age of information of each client", lambda groups, its: ages_figure(groups, over=its.over, look=its.look)),
    "deliveries": (
        "Share of rounds in which each client's update was delivered",
        lambda groups, its: deliveries_figure(groups, look=its.look),
    ),
    "states": (
        "States of the sub-channels, jams and declared changes",
        lambda groups, its: states_figure(groups, over=its.over, look=its.look),
    ),
    "detections": (
        "Declared and true changes of the sub-channels",
        lambda groups, its: detections_figure(groups, over=its.over, look=its.look),
    ),
    "breakpoints": (
        "Regret around changes",
        lambda groups, its: regret_around_changes_figure(groups, window=its.window, over=its.over, look=its.look),
    ),
    "answered": (
        "Share of changes declared, and recovered from, by the time since the change",
        lambda groups, its: shares_figure(groups, window=its.window, over=its.over, look=its.look),
    ),
    "course": (
        "The regret rate of one run, with its changes, jamming and outages",
        lambda groups, its: course_figure(groups, window=its.window, over=its.over, look=its.look),
    ),
    "topology": (
        "The graph between clients, with what each of them believes",
        lambda groups, its: topology_figure(groups, round=its.round, look=its.look),
    ),
    "network": (
        "The network of links, with the utilisation of its cables",
        lambda groups, its: network_figure(groups, look=its.look),
    ),
    "link_loads": ("Utilisation of links over time", lambda groups, its: link_loads_figure(groups, look=its.look)),
    "partition": ("Training samples by client and label", lambda groups, its: partition_figure(groups, look=its.look)),
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
    """Draw one figure, as `draw` does; `options`: the settings as one object."""
    if figure is not None and figure not in _MAKERS:
        raise ValueError(f"figure = {figure!r}: there is no such figure; {did_you_mean(figure, _MAKERS)}")
    options = _fill_from_sweep(source, options)
    groups = group_runs(source)
    warn_of_letters((*groups, options.look.title or ""), options.look.font)
    for name in _MAKERS if figure is None else [figure]:
        drawn = _draw(name, groups, options)
        if drawn is not None:
            return drawn
    if figure is None:
        raise ValueError("these runs have data for no figure: no round of theirs took time or was measured")
    others = [name for name in _MAKERS if _draw(name, groups, options) is not None]
    message = f"figure = {figure!r}: these runs have no data for it; they have for {', '.join(others) or 'none'}"
    raise ValueError(message + (f"; {_REMEDIES[figure]}" if figure in _REMEDIES else ""))


def draw_all(
    source: Sweep | Run | Sequence[Run], out_dir: str | Path, *, formats: Sequence[ImageFormat] = ("png",), **settings: Any
) -> list[Path]:
    """Draw every figure the runs have data for into `out_dir`, in each of `formats`; return the files, in a fixed order.

    Accuracy against bytes is left out where there is one variant: its bytes grow with its rounds alone. `settings`: the fields of
    `FigureSettings`.
    """
    return save_all(source, out_dir, FigureSettings(**settings), formats)


def save_all(
    source: Sweep | Run | Sequence[Run], out_dir: str | Path, options: FigureSettings, formats: Sequence[ImageFormat] = ("png",)
) -> list[Path]:
    """Draw and save every figure, as `draw_all` does; `options`: the settings as one object."""
    drawn = figures_of(source, options)
    return [save_figure(figure, Path(out_dir) / f"{name}.{format}") for name, figure in drawn.items() for format in formats]


def figures_of(source: Sweep | Run | Sequence[Run], options: FigureSettings) -> dict[str, ShownFigure]:
    """Draw every figure that the runs have data for; return the figures by name, in a fixed order."""
    options = _fill_from_sweep(source, options)
    groups = group_runs(source)
    warn_of_letters((*groups, options.look.title or ""), options.look.font)
    names = [name for name in _MAKERS if len(groups) > 1 or name not in _OF_VARIANTS]
    drawn = {name: _draw(name, groups, options) for name in names}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _draw(name: str, groups: Groups, options: FigureSettings) -> ShownFigure | None:
    """Draw a figure of at most `MOST_VARIANTS` variants, and note on it how many are left out."""
    shown = groups
    if len(groups) > MOST_VARIANTS:
        kept = set(np.linspace(0, len(groups) - 1, MOST_VARIANTS).round().astype(int).tolist())
        shown = {label: runs for index, (label, runs) in enumerate(groups.items()) if index in kept}
    drawn = _MAKERS[name][1](shown, options)
    if drawn is not None and len(shown) < len(groups):
        add_note(drawn, f"{len(shown)} of {len(groups)} variants, at equal steps through their list", look=options.look)
    if drawn is not None and name in _OF_ROUNDS and len(round_meanings(shown)) > 1:
        add_note(drawn, "servers with different rules of rounds: a round of one is not a round of another", look=options.look)
    return drawn


def _fill_from_sweep(source: Sweep | Run | Sequence[Run], options: FigureSettings) -> FigureSettings:
    """Fill target and smoothing that are not set from the sweep."""
    if not isinstance(source, Sweep):
        return options
    return replace(
        options,
        target_accuracy=source.target_accuracy if options.target_accuracy is None else options.target_accuracy,
        smoothing_s=source.smoothing_s if options.smoothing_s is None else options.smoothing_s,
    )

"""All figures of runs by their names: what they show, and how one of them or all that there is data for are drawn."""

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
from analysis.figures.lines import kinds_of_servers
from analysis.figures.settings import MOST_VARIANTS, FigureSettings, ImageFormat, warn_of_letters
from analysis.figures.style import ShownFigure, add_note, save_figure
from analysis.learning.figure import accuracy_figure, loss_figure, reached_figure
from analysis.participation.figure import partition_figure, selections_figure
from analysis.privacy.figure import client_leaks_figure, leak_figure
from analysis.regret.figure import regret_figure
from analysis.results.groups import Groups, group_runs
from analysis.results.run import Run
from analysis.results.sweep import Sweep
from analysis.stragglers.figure import latency_figure, phases_figure
from analysis.stragglers.gantt_figure import gantt_figure
from analysis.suggestions import did_you_mean
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
"""Figures that say something new only where variants are compared."""
_OF_ROUNDS = frozenset({"latency", "phases", "ages"})
"""Figures that measure in rounds, or a round: what that is differs between kinds of servers."""


_REMEDIES: Mapping[str, str] = {
    "topology": "run with server.kind = 'fl-da' and output.beliefs_table = true",
}
"""What a scenario must say for a figure whose table is written on request only."""

Maker = Callable[[Groups, FigureSettings], ShownFigure | None]


def _accuracy(cost: Literal["seconds", "bytes", "joules"]) -> Maker:
    return lambda groups, its: accuracy_figure(
        groups,
        cost=cost,
        target_accuracy=its.target_accuracy,
        smoothing_s=its.smoothing_s or 0.0,
        horizon=its.horizon_s if cost == "seconds" else None,
        look=its.look,
    )


def _target(groups: Groups, its: FigureSettings) -> ShownFigure | None:
    if its.target_accuracy is None:
        return None
    return reached_figure(groups, target_accuracy=its.target_accuracy, smoothing_s=its.smoothing_s or 0.0, look=its.look)


_MAKERS: dict[str, tuple[str, Maker]] = {
    "accuracy": ("Test accuracy against simulated time", _accuracy("seconds")),
    "accuracy_bytes": ("Test accuracy against the bytes sent, both ways", _accuracy("bytes")),
    "accuracy_joules": ("Test accuracy against the energy drawn by all clients", _accuracy("joules")),
    "target": ("Share of runs that have reached the target accuracy against simulated time", _target),
    "loss": ("Loss on the test set and in training", lambda groups, its: loss_figure(groups, over=its.over, look=its.look)),
    "leak": ("Largest privacy leak over clients", lambda groups, its: leak_figure(groups, over=its.over, look=its.look)),
    "client_leaks": ("Privacy leak of each client at the end", lambda groups, its: client_leaks_figure(groups, look=its.look)),
    "delivered": ("Updates delivered against simulated time", lambda groups, its: delivered_figure(groups, look=its.look)),
    "latency": (
        "Latency of a round over the run, and its distribution",
        lambda groups, its: latency_figure(groups, window=its.window, over=its.over, look=its.look),
    ),
    "outcomes": ("How attempts ended", lambda groups, its: outcomes_figure(groups, look=its.look)),
    "phases": ("Where the time of clients in rounds goes", lambda groups, its: phases_figure(groups, look=its.look)),
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
    "partition": ("Training samples by client and label", lambda groups, its: partition_figure(groups, look=its.look)),
}

CAPTIONS: Mapping[str, str] = {name: caption for name, (caption, _) in _MAKERS.items()}
"""What each figure shows, by its name, in the order of reports."""


def draw(source: Sweep | Run | Sequence[Run], figure: str | None = None, **settings: Any) -> ShownFigure:
    """One figure of runs, by its name in `CAPTIONS`; None: the first that there is data for.

    `settings`: the fields of `FigureSettings`.

    Raises:
        ValueError: no figure of that name, a setting out of bounds, or the runs have no data for it.
    """
    return figure_of(source, figure, FigureSettings(**settings))


def figure_of(source: Sweep | Run | Sequence[Run], figure: str | None, its: FigureSettings) -> ShownFigure:
    """As `draw`, with the settings in one."""
    if figure is not None and figure not in _MAKERS:
        raise ValueError(f"figure = {figure!r}: there is no such figure; {did_you_mean(figure, _MAKERS)}")
    its = _settled(source, its)
    groups = group_runs(source)
    warn_of_letters((*groups, its.look.title or ""), its.look.font)
    for name in _MAKERS if figure is None else [figure]:
        drawn = _draw(name, groups, its)
        if drawn is not None:
            return drawn
    if figure is None:
        raise ValueError("these runs have data for no figure: no round of theirs took time or was measured")
    others = [name for name in _MAKERS if _draw(name, groups, its) is not None]
    told = f"figure = {figure!r}: these runs have no data for it; they have for {', '.join(others) or 'none'}"
    raise ValueError(told + (f"; {_REMEDIES[figure]}" if figure in _REMEDIES else ""))


def draw_all(
    source: Sweep | Run | Sequence[Run], out_dir: str | Path, *, formats: Sequence[ImageFormat] = ("png",), **settings: Any
) -> list[Path]:
    """Draw every figure the runs have data for into `out_dir`, in each of `formats`; the files written, in a fixed order.

    Accuracy against bytes is left out where there is one variant: its bytes grow with its rounds alone. `settings`: the fields of
    `FigureSettings`.
    """
    return save_all(source, out_dir, FigureSettings(**settings), formats)


def save_all(
    source: Sweep | Run | Sequence[Run], out_dir: str | Path, its: FigureSettings, formats: Sequence[ImageFormat] = ("png",)
) -> list[Path]:
    """As `draw_all`, with the settings in one."""
    drawn = figures_of(source, its)
    return [save_figure(figure, Path(out_dir) / f"{name}.{format}") for name, figure in drawn.items() for format in formats]


def figures_of(source: Sweep | Run | Sequence[Run], its: FigureSettings) -> dict[str, ShownFigure]:
    """Every figure that the runs have data for, by its name, in a fixed order."""
    its = _settled(source, its)
    groups = group_runs(source)
    warn_of_letters((*groups, its.look.title or ""), its.look.font)
    names = [name for name in _MAKERS if len(groups) > 1 or name not in _OF_VARIANTS]
    drawn = {name: _draw(name, groups, its) for name in names}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _draw(name: str, groups: Groups, its: FigureSettings) -> ShownFigure | None:
    """A figure of as many variants as one can show."""
    shown = groups
    if len(groups) > MOST_VARIANTS:
        kept = set(np.linspace(0, len(groups) - 1, MOST_VARIANTS).round().astype(int).tolist())
        shown = {label: runs for index, (label, runs) in enumerate(groups.items()) if index in kept}
    drawn = _MAKERS[name][1](shown, its)
    if drawn is not None and len(shown) < len(groups):
        add_note(drawn, f"{len(shown)} of {len(groups)} variants, at equal steps through their list", look=its.look)
    if drawn is not None and name in _OF_ROUNDS and len(kinds_of_servers(shown)) > 1:
        add_note(drawn, "servers of different kinds: a round of one is not a round of another", look=its.look)
    return drawn


def _settled(source: Sweep | Run | Sequence[Run], its: FigureSettings) -> FigureSettings:
    """Settings with those of the sweep where there are no others."""
    if not isinstance(source, Sweep):
        return its
    return replace(
        its,
        target_accuracy=source.target_accuracy if its.target_accuracy is None else its.target_accuracy,
        smoothing_s=source.smoothing_s if its.smoothing_s is None else its.smoothing_s,
    )

"""Overlays on a shared core: fixed shares against flows on five underlays, `netsim reproduce overlays_shared_core`.

Published round times give each path a core of its own. Here all messages of a round share every cable in its direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from models.overlays.silos import Silos
from scenarios.networks import read_network, shipped_networks
from scenarios.overlays import OVERLAYS, simulated_ms
from scenarios.papers.overlays_table import MODELS
from scenarios.papers.study import Judgement, Reproduction, Setup, Size

if TYPE_CHECKING:
    from analysis.documents.blocks import Section
    from analysis.figures.style import ShownFigure

STUDIED = ("star", "star-direct", "mst", "delta-mbst", "ring")
"""Overlays of the study: those that are not drawn at random."""
_SHOWN_MODEL = "inaturalist"
"""Model of the figure, the largest one."""


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """Round times of an overlay, in milliseconds."""

    network: str
    model: str
    overlay: str
    fixed_ms: float
    """Each path has fixed shares of the links."""
    fluid_ms: float
    """Messages share the links as flows."""


def round_times(networks: Sequence[str], models: Mapping[str, tuple[float, float]]) -> list[RoundTimes]:
    """Return the round times of all overlays of the study. `models`: model to its bits and milliseconds of a local step."""
    times = []
    for network in networks:
        for model, (bits, compute_ms) in models.items():
            silos = Silos(read_network(network), bits, compute_ms)
            for name in STUDIED:
                overlay = OVERLAYS[name](silos)
                fluid_ms = simulated_ms(silos, overlay, fluid=True)
                times.append(RoundTimes(network, model, name, overlay.cycle_ms(), fluid_ms))
    return times


def judge(cases: Path | None) -> Judgement:
    """Compute the study. Nothing is published to compare it with, and `cases` is not used."""
    return Judgement(sections(round_times(shipped_networks(), MODELS)), None)


def sections(times: Sequence[RoundTimes]) -> list[Section]:
    """Return the table of round times, and the figure for the largest model."""
    from analysis.documents.blocks import Picture, Section, Table

    rows = [
        [
            f"{time.network}, {time.model}, {time.overlay}",
            f"{time.fixed_ms:.1f}",
            f"{time.fluid_ms:.1f}",
            f"{time.fluid_ms / time.fixed_ms:.2f}",
        ]
        for time in times
    ]
    note = "Access 10 Gbit/s, cables 1 Gbit/s in each direction, one local step a round."
    table = Table("shared-core", "Time of a round", (["overlay", "fixed shares, ms", "flows, ms", "ratio"], rows), note=note)
    caption = f"Time of a round on five networks, {_SHOWN_MODEL}: dashed at fixed shares, solid with flows that share the core"
    picture = Picture("shared-core", caption, _figure([time for time in times if time.model == _SHOWN_MODEL]))
    return [Section("Times of a round", [table]), Section("Figures", [picture])]


def _figure(times: Sequence[RoundTimes]) -> ShownFigure:
    """Draw the round times of three overlays by network: dashed with fixed shares, solid with shared links."""
    from analysis.figures.settings import PLAIN
    from analysis.figures.style import finish_figure, line_style, new_figure

    networks = list(dict.fromkeys(time.network for time in times))
    with PLAIN.apply():
        figure, (axes,) = new_figure()
        lines = []
        for index, overlay in enumerate(("star-direct", "mst", "ring")):
            shown = [time for time in times if time.overlay == overlay]
            color = line_style(index)["color"]
            places = [networks.index(time.network) for time in shown]
            fixed_ms, fluid_ms = [time.fixed_ms for time in shown], [time.fluid_ms for time in shown]
            axes.plot(places, fixed_ms, marker="o", ms=4.0, color=color, linestyle="--", fillstyle="none")
            (line,) = axes.plot(places, fluid_ms, marker="o", ms=4.0, color=color)
            lines.append((line, overlay))
        axes.set(yscale="log", ylabel="time of a round (ms)", xticks=range(len(networks)))
        axes.set_xticklabels(networks)
        finish_figure(figure, "Overlays on a core that is shared", "dashed: fixed shares; solid: flows on all links", lines)
    return figure


REPRODUCTIONS = (
    Reproduction(
        name="overlays_shared_core",
        paper="Study of this project, after Marfoq, Xu, Neglia and Vidal 2020",
        shows="Overlays on a shared core: fixed shares beside flows, five networks, four models",
        metrics=(),
        judge=judge,
        notes="Fixed shares are those of the published tables: a core private to each pair. docs/results-overlays.md.",
        sizes=dict.fromkeys(Size, Setup(seeds=())),
    ),
)

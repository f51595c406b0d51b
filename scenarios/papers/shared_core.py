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
"""Overlays without chance."""
_SHOWN = "inaturalist"
"""Model of the figure, the largest one."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Round times of an overlay at fixed shares and with flows, ms."""

    network: str
    model: str
    overlay: str
    fixed_ms: float
    fluid_ms: float


def pairs(networks: Sequence[str], models: Mapping[str, tuple[float, float]]) -> list[Pair]:
    """Compute the round times of all overlays of the study."""
    result = []
    for network in networks:
        for model, (bits, compute_ms) in models.items():
            silos = Silos(read_network(network), bits, compute_ms)
            for name in STUDIED:
                overlay = OVERLAYS[name](silos)
                result.append(Pair(network, model, name, overlay.cycle_ms(), simulated_ms(silos, overlay, fluid=True)))
    return result


def judge(cases: Path | None) -> Judgement:
    """Compute the study; there is nothing published to compare it with."""
    return Judgement(sections(pairs(shipped_networks(), MODELS)), None)


def sections(found: Sequence[Pair]) -> list[Section]:
    """Return the table of round times and the figure."""
    from analysis.documents.blocks import Picture, Section, Table

    names = [f"{cell.network}, {cell.model}, {cell.overlay}" for cell in found]
    times = [[f"{cell.fixed_ms:.1f}", f"{cell.fluid_ms:.1f}", f"{cell.fluid_ms / cell.fixed_ms:.2f}"] for cell in found]
    rows = [[name, *cells] for name, cells in zip(names, times, strict=True)]
    note = "Access 10 Gbit/s, cables 1 Gbit/s in each direction, one local step a round."
    table = Table("shared-core", "Time of a round", (["overlay", "fixed shares, ms", "flows, ms", "ratio"], rows), note=note)
    caption = f"Time of a round on five networks, {_SHOWN}: dashed at fixed shares, solid with flows that share the core"
    picture = Picture("shared-core", caption, _figure([cell for cell in found if cell.model == _SHOWN]))
    return [Section("Times of a round", [table]), Section("Figures", [picture])]


def _figure(found: Sequence[Pair]) -> ShownFigure:
    """Draw the round times of three overlays by network: dashed with fixed shares, solid with shared links."""
    from analysis.figures.settings import PLAIN
    from analysis.figures.style import headline, line_style, new_figure

    networks = list(dict.fromkeys(cell.network for cell in found))
    with PLAIN.apply():
        figure, (axes,) = new_figure()
        lines = []
        for index, overlay in enumerate(("star-direct", "mst", "ring")):
            own = [cell for cell in found if cell.overlay == overlay]
            color = line_style(index)["color"]
            places = [networks.index(cell.network) for cell in own]
            axes.plot(places, [cell.fixed_ms for cell in own], marker="o", ms=4.0, color=color, linestyle="--", fillstyle="none")
            (line,) = axes.plot(places, [cell.fluid_ms for cell in own], marker="o", ms=4.0, color=color)
            lines.append((line, overlay))
        axes.set(yscale="log", ylabel="time of a round (ms)", xticks=range(len(networks)))
        axes.set_xticklabels(networks)
        headline(figure, "Overlays on a core that is shared", "dashed: fixed shares; solid: flows on all links", lines)
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

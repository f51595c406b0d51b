"""How figures look: palette, line styles, sizes, and PNG files whose bytes depend on the data alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO, StringIO
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, told apart with any colour vision; without their yellow, which is faint on white."""
DASHES: tuple[str | tuple[float, tuple[float, ...]], ...] = (
    "solid",
    (0.0, (5.0, 1.6)),
    (0.0, (1.2, 1.2)),
    (0.0, (6.0, 1.6, 1.2, 1.6)),
)
"""Line styles, so that lines are told apart in grey as well. 7 colours and 4 styles have no common divisor: 28 distinct lines."""
INK, FAINT = "#222222", "#8a8a8a"

_RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "text.color": INK,
    "axes.edgecolor": "#666666",
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "xtick.color": "#666666",
    "ytick.color": "#666666",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 2.0,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "legend.columnspacing": 1.6,
    "figure.dpi": 160.0,
    "savefig.dpi": 160.0,
    "svg.hashsalt": "netsim",
    "svg.fonttype": "path",
}
_SVG_SAYS = ("Date", "Creator", "Format", "Type")
"""What Matplotlib would write into an SVG of itself and of the time."""


def line_style(index: int) -> dict[str, Any]:
    """Keywords of the line that stands for variant `index`, the same in every figure."""
    return {"color": PALETTE[index % len(PALETTE)], "linestyle": DASHES[index % len(DASHES)]}


@contextmanager
def house_style() -> Iterator[None]:
    """Matplotlib's defaults with this project's settings, whatever the user's own are; those are back afterwards."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC)
        yield


class ShownFigure(Figure):
    """A figure that a notebook shows although pyplot does not know it."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        with house_style():
            self.savefig(buffer, format="png", metadata={"Software": None})
        return buffer.getvalue()


def new_figure(
    columns: Sequence[float] = (1.0,), *, size_in: tuple[float, float] = (7.2, 4.3), share_y: bool = True
) -> tuple[Figure, list[Axes]]:
    """A figure, outside pyplot, with panels side by side; `columns` are their relative widths, `share_y`: one vertical axis."""
    # The space keeps labels at the ends of neighbouring axes apart.
    figure = ShownFigure(figsize=size_in, layout=ConstrainedLayoutEngine(wspace=0.06))
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(columns), squeeze=False, sharey=share_y, width_ratios=list(columns))
    return figure, list(panels[0])


def headline(figure: Figure, title: str, note: str, lines: Sequence[tuple[Any, str]]) -> None:
    """Title with the legend in one or more rows below it, and a note in grey at the foot that says what was averaged."""
    handles, labels = [line for line, _ in lines], [label for _, label in lines]
    # More columns than these never fit, and to try them all takes long where there are many variants.
    for columns in range(min(max(1, len(lines)), 10), 0, -1):
        legend = figure.legend(
            handles,
            labels,
            loc="outside upper left",
            ncols=columns,
            title=title,
            title_fontproperties={"size": 12.5, "weight": "bold"},
            alignment="left",
            borderaxespad=0.2,
        )
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()
    figure.supxlabel(fill(note, 112), x=0.012, ha="left", fontsize=8.5, color="#6b6b6b")


def save_png(figure: Figure, path: Path) -> Path:
    """Write `figure` to `path`; no date and no version inside: the same data gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png", metadata={"Software": None})
    return path


def svg_text(figure: Figure) -> str:
    """`figure` as SVG: letters as outlines, so that it looks alike everywhere; the same figure gives the same text."""
    buffer = StringIO()
    with house_style():
        figure.savefig(buffer, format="svg", transparent=True, metadata=dict.fromkeys(_SVG_SAYS))
    return buffer.getvalue()

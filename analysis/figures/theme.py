"""Colours, dashes, hatches and Matplotlib settings of all figures; needs no Matplotlib."""

from __future__ import annotations

from typing import Any

PALETTE = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"),
    *("#0011CC", "#771100", "#775555", "#552277", "#9966FF"),
)
"""Twelve colours, as many as a figure shows variants. The first seven are Okabe and Ito's without their yellow, which is faint on
white. To eyes of any colour vision, the others differ from these and from each other as much as these seven do."""


DASHES: tuple[str | tuple[float, tuple[float, ...]], ...] = (
    "solid",
    (0.0, (5.0, 1.6)),
    (0.0, (1.2, 1.2)),
    (0.0, (6.0, 1.6, 1.2, 1.6)),
    (0.0, (9.0, 1.6, 1.2, 1.6, 1.2, 1.6)),
)
"""Line styles that tell lines apart in grey, too. 12 colours and 5 styles have no common divisor: there are 60 distinct lines."""


HATCHES = ("", "///", "...", "xxx", "\\\\\\")


INK, AXIS, FAINT, GRID, NOTE, PAPER = "#222222", "#666666", "#8a8a8a", "#e4e4e4", "#6b6b6b", "#ffffff"


RC: Any = {
    "text.color": INK,
    "axes.edgecolor": AXIS,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": AXIS,
    "ytick.color": AXIS,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 2.0,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "legend.columnspacing": 1.6,
    "hatch.linewidth": 0.5,
    "figure.dpi": 160.0,
    "savefig.dpi": 160.0,
    "svg.hashsalt": "netsim",
    "svg.fonttype": "path",
}

"""The figure of message times: consensus phase, disagreement and regret against latency over slot length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from analysis.consensus.measure import MARGIN, MOST_CONSENSUS, Point, points_by_start
from analysis.documents.numbers import format_percent
from analysis.figures.settings import PLAIN, Look

if TYPE_CHECKING:
    from analysis.figures.style import ShownFigure


def timing_figure(points: Sequence[Point], margin: float = MARGIN, *, look: Look = PLAIN) -> ShownFigure | None:
    """Draw consensus phase, disagreement and regret against the ratio of message latency to slot length.

    `margin`: regret a slot that counts as none, shaded. None unless the sweep has runs whose messages take no time, with which
    the others are compared.
    """
    from matplotlib.ticker import FuncFormatter, PercentFormatter

    from analysis.figures.style import finish_figure, line_style, new_figure
    from analysis.figures.theme import FAINT

    lines = points_by_start(points)
    if not lines or not any(point.zero_time for point in points):
        return None
    panels = (
        ("consensus_share", "share of time in the consensus phase"),
        ("disagreement", "clients that name others than the best"),
        ("regret_difference", "regret a slot, minus zero time's"),
    )
    with look.apply():
        figure, axes = new_figure((1.0, 1.0, 1.0), size_in=(11.4, 4.6), share_y=False, look=look)
        legend = []
        for axis, (name, title) in zip(axes, panels, strict=True):
            for index, (start, line) in enumerate(lines.items()):
                ratio = np.array([point.ratio for point in line])
                values = [getattr(point, name) for point in line]
                mean = np.array([value.mean for value in values])
                half = np.nan_to_num([value.half_width for value in values])
                style = line_style(index)
                (drawn,) = axis.plot(ratio, mean, marker="o", markersize=3.5, **style)
                low, high = (mean - half, mean + half) if axis is axes[2] else np.clip((mean - half, mean + half), 0.0, 1.0)
                axis.fill_between(ratio, low, high, color=style["color"], alpha=0.18, linewidth=0)
                if axis is axes[0]:
                    legend.append((drawn, start))
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:g} %"))
            axis.set_xlabel("message latency / slot length")
            axis.set_title(title, fontsize=10.5)
        for axis in axes[:2]:
            axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
            axis.set_ylim(0.0, 1.02)
        axes[0].axhline(MOST_CONSENSUS, color=FAINT, linewidth=1.0, linestyle=(0, (2, 2)))
        axes[0].annotate(
            format_percent(MOST_CONSENSUS),
            (1.0, MOST_CONSENSUS),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            color=FAINT,
        )
        axes[2].axhline(0.0, color="#666666", linewidth=0.8, zorder=1)
        axes[2].axhspan(-margin, margin, color=FAINT, alpha=0.25, linewidth=0, zorder=0)
        seeds = max(point.regret.count for point in points)
        note = (
            f"mean over {seeds} seeds, shaded: 95 % interval; regret: average opinion with the best clients, minus that reached; "
            f"grey: the margin of {margin:g}"
        )
        finish_figure(figure, "BP-UCB when messages take time, by when training starts", note, legend, look=look)
    return figure

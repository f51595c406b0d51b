"""Client analytics, figure 8: the beliefs of the first clients slot by slot.

Beliefs are b_n as each client computed it in the consensus phase of the slot (Tong et al. 2024, eq. 4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from netsim.core.protocols import FloatArray

if TYPE_CHECKING:
    from analysis import Sweep
    from analysis.documents.blocks import Block
    from analysis.figures.settings import Look
    from analysis.figures.style import ShownFigure

CLIENTS = 5
"""Number of clients shown one by one."""
SLOTS = (1, 2, 3, 5, 10, 20, 50, 100, 200)
"""Slots with a row in the table."""


def blocks(sweep: Sweep, *, look: Look) -> list[Block]:
    """Return a table and a figure of the beliefs of the first `CLIENTS` clients, from a sweep of one variant.

    Its runs must have the table `beliefs`.
    """
    from analysis.consensus.topology_figure import belief_map
    from analysis.documents.blocks import Picture, Table
    from analysis.documents.numbers import format_interval
    from analysis.statistics.intervals import mean_interval

    beliefs = np.array([belief_map(run) for run in sweep])  # (seeds, slots, clients)
    rows = []
    for slot in (slot for slot in SLOTS if slot <= beliefs.shape[1]):
        by_client = beliefs[:, slot - 1]  # (seeds, clients)
        intervals = [mean_interval(by_client[:, n]) for n in range(CLIENTS)]
        intervals.append(mean_interval(by_client[:, CLIENTS:].mean(axis=1)))
        rows.append([str(slot), *map(format_interval, intervals)])
    header = ["slot", *(f"client {n}" for n in range(CLIENTS)), "mean of the others"]
    note = f"Mean over {len(beliefs)} seeds ± half-width of the 95 % interval."
    note += " The paper has curves only; it counts clients from 1."
    caption = "Belief that a client should be selected"
    table = Table("beliefs", caption, (header, rows), note=note, words=())
    return [table, Picture("beliefs", f"{caption}, slot by slot", _figure(beliefs, look))]


def _figure(beliefs: FloatArray, look: Look) -> ShownFigure:
    """Draw the belief of each of the first clients, and the mean of all others, slot by slot.

    `beliefs`: (seeds, slots, clients).
    """
    from analysis.figures.lines import curve_note, draw_lines, round_axis
    from analysis.figures.style import finish_figure, new_figure

    slots = np.arange(1.0, beliefs.shape[1] + 1.0)
    curves = {f"client {n}": [(slots, run[:, n]) for run in beliefs] for n in range(CLIENTS)}
    curves["mean of the others"] = [(slots, run[:, CLIENTS:].mean(axis=1)) for run in beliefs]
    with look.apply():
        figure, (axes,) = new_figure(look=look)
        lines = draw_lines(axes, curves, slots, limits=(0.0, 1.0))
        axes.set(xlabel="slot", ylabel="belief (probability)", ylim=(0.0, 1.02))
        round_axis(axes)
        note = curve_note(curves, "belief after each consensus phase")
        finish_figure(figure, "Beliefs of belief propagation", note, lines, look=look)
    return figure

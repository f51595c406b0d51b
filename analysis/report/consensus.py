"""The section of a report on clients that decide among themselves: how long it takes, how far they agree, what it costs."""

from __future__ import annotations

from analysis.figures.settings import PLAIN, Look
from analysis.report.blocks import Picture, Section, Table
from analysis.studies.timing import MARGIN, answer_cells, table_cells, timing_figure, timing_study
from analysis.sweeps import Sweep


def consensus_sections(sweep: Sweep, margin: float = MARGIN, *, look: Look = PLAIN) -> list[Section]:
    """Tables and figure of message times; nothing where a variant's clients do not decide among themselves.

    Nor where the delays of messages are of another law than constant or shifted-exponential, or differ between clients.
    `margin`: regret a slot that counts as none.
    """
    first = {entry.variant: entry.seed for entry in reversed(sweep.entries)}
    kinds = {(sweep.run(variant, seed).scenario.get("server") or {}).get("kind") for variant, seed in first.items()}
    if kinds != {"fl-da"}:
        return []
    try:
        points = timing_study(sweep)
    except ValueError:
        return []
    note = (
        "Means over seeds with 95 % intervals. Settled: belief propagation had come to its fixed point; agreed: all "
        "clients named "
        "the same best clients, in slots in which they did before training started. Latency: the mean delay of a message; slot: "
        "without the consensus phase."
    )
    blocks: list[Table | Picture] = [Table("consensus", "Consensus phase by variant", table_cells(points, margin), note=note)]
    figure = timing_figure(points, margin, look=look)
    if figure is not None:
        words = (
            f"Ratios of message latency to slot length up to which two criteria hold, at every latency simulated up to "
            f"there: the "
            f"consensus phase takes less than 5 % of the time; regret is equivalent to that in zero time, within "
            f"{margin:g} a slot "
            "(two one-sided tests at 2.5 %). The last column has the least ratio at which regret is shown to differ by more."
        )
        caption = "Consensus phase, disagreement and regret against message latency over slot length"
        cells = answer_cells(points, margin)
        blocks.append(Table("message-times", "Up to where zero message time may be assumed", cells, note=words))
        blocks.append(Picture("timing", caption, figure))
    return [Section("Consensus phase", blocks)]

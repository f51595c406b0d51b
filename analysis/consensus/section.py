"""The section of a report on the consensus phase of clients: duration, agreement, cost."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.consensus.figure import timing_figure
from analysis.consensus.measure import MARGIN, MOST_CONSENSUS, Point, has_consensus, holds_up_to, points_by_start, timing_study
from analysis.documents.blocks import Cells, Picture, Section, Table
from analysis.documents.numbers import format_interval, format_number, format_percent
from analysis.figures.settings import PLAIN, Look
from analysis.results.sweep import Sweep
from analysis.statistics.intervals import Interval


def consensus_sections(sweep: Sweep, margin: float = MARGIN, *, look: Look = PLAIN) -> list[Section]:
    """Return tables and the figure of message times; empty unless the clients of every variant decide among themselves.

    Empty, too, where the delays of messages follow a law other than constant or shifted-exponential, or differ between clients.
    `margin`: regret a slot that counts as none.
    """
    # Backwards, so that the first seed of each variant is the one that stays.
    first_seeds = {entry.variant: entry.seed for entry in reversed(sweep.entries)}
    if not all(has_consensus(sweep.run(variant, seed)) for variant, seed in first_seeds.items()):
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


def table_cells(points: Sequence[Point], margin: float = MARGIN) -> Cells:
    """Return header and a row for each variant: its consensus phase, messages and regret, and the verdict on `margin`."""
    has_differences = any(point.regret_difference.count for point in points)
    header = [
        "variant",
        "latency / slot",
        "settled (s)",
        "agreed (s)",
        "agreed (latencies)",
        "slots agreed",
        "consensus phase",
        "disagree",
        "members",
        "messages",
        "regret a slot",
    ]
    if has_differences:
        header += ["regret minus zero time's", "verdict"]
    rows = []
    for point in points:
        has_latency = not point.zero_time and point.latency_s != 0.0
        cells = [
            point.label,
            "—" if point.zero_time else f"{point.ratio * 100:.3g} %",
            format_interval(point.converged_s),
            format_interval(point.agreed_s),
            format_interval(point.agreed_s, scale=1 / point.latency_s) if has_latency else "—",
            _share(point.agreed_share),
            _share(point.consensus_share),
            _share(point.disagreement),
            format_interval(point.members),
            format_number(point.messages.mean, digits=0),
            format_interval(point.regret),
        ]
        if has_differences:
            verdict = "—" if point.zero_time else point.regret_verdict(margin)
            cells += [format_interval(point.regret_difference, signed=True), verdict]
        rows.append(cells)
    return header, rows


def _share(interval: Interval) -> str:
    """Return a share as a percentage, without an interval where all runs agree."""
    if interval.half_width < 1e-9:
        return format_percent(round(interval.mean, 4))
    return f"{format_interval(interval, scale=100)} %"


def answer_cells(points: Sequence[Point], margin: float = MARGIN) -> Cells:
    """Return header and rows: up to which ratio of message latency to slot the time of messages is negligible.

    There is a row for each start, which is the common label of variants that differ in the latency only. Columns: limits by
    time, by regret and by both; then the least ratio at which regret is shown to differ by more than `margin`. Between that and
    the limit by regret, neither is shown.
    """
    header = [
        "start",
        f"consensus phase below {format_percent(MOST_CONSENSUS)}",
        f"regret within {margin:g} of zero time's",
        "both",
        "regret differs by more from",
    ]
    rows = []
    for start, line in points_by_start(points).items():
        limits = [
            holds_up_to(line, lambda point: point.is_quick),
            holds_up_to(line, lambda point: point.regret_verdict(margin) == "equivalent"),
        ]
        # A ratio of 0 stands for none, here and in `limits`.
        different_from = min((point.ratio for point in line if point.regret_verdict(margin) == "different"), default=0.0)
        ratios = [f"{ratio * 100:.3g} %" if ratio else "nowhere" for ratio in (*limits, min(limits), different_from)]
        rows.append([start, *ratios])
    return header, rows

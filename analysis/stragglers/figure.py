"""Figures of the time of rounds: latencies, and phases of clients."""

from __future__ import annotations

import numpy as np
from matplotlib.ticker import FuncFormatter

from analysis.figures.bars import seconds_figure
from analysis.figures.lines import MOST_POINTS, abscissa, curve_note, curves_of, draw_lines, round_columns, thin_curve
from analysis.figures.settings import PLAIN, Look, Over
from analysis.figures.style import ShownFigure, finish_figure, line_style, new_figure
from analysis.results.groups import Groups
from analysis.results.run import Run
from analysis.statistics.arrays import Curve, FloatArray
from analysis.statistics.curves import moving_mean
from analysis.stragglers.decomposition import decompose
from analysis.stragglers.records import run_records


def latency_figure(
    groups: Groups, *, window: int | None = None, over: Over | None = None, look: Look = PLAIN
) -> ShownFigure | None:
    """Draw the latency of rounds over rounds or seconds (moving mean, single rounds faint), and its distribution.

    The mean is over `window` rounds; None: a fiftieth of the longest run, at least 10. Return None without rounds that take
    time. Rounds of different kinds of servers are different things: `delivered_figure` compares such servers.
    """
    along = abscissa(groups, over)

    def curve(run: Run) -> Curve:
        """Return the length of each round in seconds against the axis of the figure."""
        number, start, end = round_columns(run, along.column, "start_s", "end_s")
        return number, end - start

    raw = curves_of(groups, curve)
    if not any(y.any() for curves in raw.values() for _, y in curves):
        return None
    window = window or max(10, max(y.size for curves in raw.values() for _, y in curves) // 50)
    smooth = {label: [thin_curve((x, moving_mean(y, window))) for x, y in curves] for label, curves in raw.items()}
    with look.apply():
        figure, (over_rounds, spread) = new_figure((2.1, 1.0), look=look)
        share = np.linspace(0.0, 1.0, MOST_POINTS + 1)
        for index, (label, curves) in enumerate(raw.items()):
            if curves:
                number, latency = curves[0]
                step = -(-number.size // MOST_POINTS)
                over_rounds.plot(
                    number[::step],
                    latency[::step],
                    ".",
                    color=line_style(index)["color"],
                    alpha=0.22,
                    ms=3.0,
                    mew=0,
                    zorder=1,
                    rasterized=True,
                )
                pooled = np.concatenate([y for _, y in curves])
                spread.plot(share, np.quantile(pooled, share, method="inverted_cdf"), label=label, **line_style(index))
        means = {label: line for line, label in draw_lines(over_rounds, smooth, along.grid(smooth))}
        # A variant whose runs have no common rounds has no mean, but it has a distribution.
        lines = [(means.get(str(line.get_label()), line), str(line.get_label())) for line in spread.get_lines()]
        over_rounds.set_ylim(bottom=0.0)
        over_rounds.set_ylabel("latency of a round (s)")
        along.label(over_rounds)
        spread.set(xlabel="share of rounds at or below", xlim=(0.0, 1.0))
        spread.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
        spread.set_xticks([0.0, 0.5, 1.0])
        whose = " of the first seed" if any(len(curves) > 1 for curves in raw.values()) else ""
        note = curve_note(raw, f"left: moving mean of {window} rounds, dots: single rounds{whose}")
        finish_figure(figure, "Latency of a round", note, lines, look=look)
    return figure


_PHASE_NAMES = {
    "download_s": "download",
    "compute_s": "training",
    "queue_s": "queue",
    "upload_s": "upload",
    "resend_s": "sending again",
    "wait_s": "waiting for the close",
    "before_s": "before it was selected",
}


def phases_figure(groups: Groups, *, look: Look = PLAIN) -> ShownFigure | None:
    """Draw the mean seconds of each phase of a client's round, a bar a variant.

    Phases are those of `analysis.stragglers.decomposition`: together they are the round. None without records of clients, or
    where one phase is the whole round.
    """
    means: dict[str, list[float]] = {}
    for label, runs in groups.items():
        kept = [_phase_means(run) for run in runs if run.has_clients and run.states_causes]
        if kept:
            means[label] = np.mean(kept, axis=0).tolist()
    if not any(np.count_nonzero(values) > 1 for values in means.values()):
        return None
    return seconds_figure(
        means,
        list(_PHASE_NAMES.values()),
        title="Where the time of clients in rounds goes",
        xlabel="mean of a client's round (s)",
        note="mean over rounds and the clients in each; waiting: up to the close of the round",
        look=look,
    )


def _phase_means(run: Run) -> FloatArray:
    """Return the mean seconds of each phase over all rounds and their clients, in the order of `_PHASE_NAMES`."""
    phases = decompose(run_records(run))[list(_PHASE_NAMES)]
    return phases.to_numpy(np.float64).mean(axis=0) if len(phases) else np.zeros(len(_PHASE_NAMES))

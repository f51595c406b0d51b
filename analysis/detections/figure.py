"""The figure of sub-channels: their states over time, jamming, and declared changes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from analysis.detections.measure import Cause, DetectionScore, declared_rounds, run_detections
from analysis.figures.lines import abscissa, round_columns, round_edges
from analysis.figures.settings import PLAIN, Look, Over
from analysis.figures.style import LETTERS, ShownFigure, drawable_text, finish_figure, line_style, new_figure, row_height_in
from analysis.figures.theme import FAINT, INK, PAPER
from analysis.results.groups import Groups
from analysis.results.run import Run
from analysis.statistics.arrays import FloatArray

IntArray = NDArray[np.int64]
JAM = "#D55E00"
_BINS = 120
"""Stretches of a run over which observed states are averaged."""


def states_figure(groups: Groups, *, over: Over | None = None, look: Look = PLAIN) -> ShownFigure | None:
    """Draw the states of the sub-channels over one run, with jams and declared changes; None without sub-channels.

    The run is the first of the first variant that declares changes, or else of the first with sub-channels. Colours are the true
    means of segments where the run tells them, else the share of transmissions that found the sub-channel Good.
    """
    run = _choose_run(groups)
    if run is None:
        return None
    (number,) = round_columns(run, "round")
    are_true, means, stretch_edges = _channel_means(run, number.size)
    if not means.size:
        return None
    along = abscissa(groups, over)
    edges = round_edges(run, along)
    with look.apply():
        figure, (axes,) = new_figure(size_in=(7.2, 1.9 + 0.3 * means.shape[0]), look=look)
        rows = np.arange(means.shape[0] + 1) - 0.5
        image = axes.pcolorfast(edges[stretch_edges], rows, np.ma.masked_invalid(means), cmap="cividis", vmin=0.0, vmax=1.0)
        legend = [*_draw_jams(axes, run, edges), *_mark_declarations(axes, run, edges)]
        along.label(axes)
        axes.set(ylabel="sub-channel", xlim=(edges[0], edges[-1]), ylim=(rows[0], rows[-1]))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=12, integer=True))
        axes.grid(visible=False)
        label = "true mean of the state" if are_true else "share of transmissions that found it Good"
        figure.colorbar(image, ax=axes, label=label, pad=0.015)
        changes = run_detections(run).changes or ()
        note = f"seed {run.seed}, {run.label}"
        note += "" if are_true else f"; averaged over {_BINS} stretches, white: nothing was sent"
        finish_figure(figure, "States of the sub-channels", note, legend, look=look)
        figure.description = (
            f"A map of {means.shape[0]} sub-channels over {number.size:,} rounds, with {len(changes)} true changes and "
            f"{len(run_detections(run).causes)} declared ones."
        )
    return figure


def _choose_run(groups: Groups) -> Run | None:
    """Return the first run that declared changes, else the first one with sub-channels, or None."""
    having = [run for runs in groups.values() for run in runs[:1] if run.scenario.get("channels") and run.has_clients]
    declaring = [run for run in having if run.has_detections and run_detections(run).causes]
    return next(iter([*declaring, *having]), None)


class _ChannelMeans(NamedTuple):
    """Means of N sub-channels in successive stretches of a run."""

    are_true: bool
    """True for the means of the law, False for observed shares of transmissions that found the sub-channel Good."""
    means: FloatArray
    """(N, stretches), NaN where unknown."""
    edges: IntArray
    """Number of rounds before each stretch, and at the end of the last one, (stretches + 1,)."""


def _channel_means(run: Run, rounds: int) -> _ChannelMeans:
    """Return the true means of the sub-channels over time if the summary of the run states them, otherwise observed shares."""
    channels = run.summary.get("sub_channels") or {}
    segments = channels.get("channels") or {}
    if segments.get("means") and "first_rounds" in segments:
        starts = [1, *run.row_of(segments["first_rounds"]).tolist()]
        segment_of = np.searchsorted(starts, np.arange(1, rounds + 1), side="right") - 1
        kept = np.unique(np.linspace(0, rounds - 1, min(rounds, 1000)).astype(np.int64))
        true_means = np.asarray(segments["means"], np.float64)[segment_of[kept]].T
        return _ChannelMeans(True, true_means, np.append(kept, rounds))
    table = run.arrow("clients", ["round", "channel", "good"])
    channel, good = (np.asarray(table.column(name).to_numpy(zero_copy_only=False), np.float64) for name in ("channel", "good"))
    seen = ~np.isnan(channel) & ~np.isnan(good)
    count = int((run.scenario.get("channels") or {}).get("count", 0))
    if not seen.any() or not count:
        return _ChannelMeans(False, np.empty(0), np.zeros(1, np.int64))
    # Count transmissions by sub-channel and stretch, all in one call: cell = sub-channel * _BINS + stretch.
    stretch = (run.row_of(table.column("round").to_numpy())[seen] - 1) * _BINS // max(1, rounds)
    cell = channel[seen].astype(np.int64) * _BINS + np.minimum(stretch, _BINS - 1)
    hits = np.bincount(cell, minlength=count * _BINS).astype(np.float64)
    with np.errstate(invalid="ignore"):
        share = np.bincount(cell, weights=good[seen], minlength=count * _BINS) / hits
    return _ChannelMeans(False, share.reshape(count, _BINS), -(-np.arange(_BINS + 1) * rounds // _BINS))


def _draw_jams(axes: Axes, run: Run, edges: FloatArray) -> list[tuple[Patch, str]]:
    """Draw the dwells of jammers as bars within the rows of their sub-channels; return the entries of the legend."""
    if not run.source.has("jams"):
        return []
    table = run.arrow("jams", ["round", "channel", "jammer"])
    # For a jammer of links, cables or clients the column "channel" numbers those.
    channel_jammers = [name for name, jammed in run.jammed.items() if jammed == "channels"]
    table = table.filter(np.isin(table.column("jammer").to_numpy(zero_copy_only=False).astype(str), channel_jammers))
    rounds = run.row_of(table.column("round").to_numpy())
    channels = np.asarray(table.column("channel").to_numpy(), np.int64)
    closed = rounds < edges.size  # the end of the run may have cut the last round short
    rounds, channels = rounds[closed], channels[closed]
    if not rounds.size:
        return []
    for channel in np.unique(channels):
        bars = []
        for first, length in _stretches(np.unique(rounds[channels == channel])):
            left, right = edges[first - 1], edges[first - 1 + length]
            bars.append((left, right - left))
        axes.broken_barh(bars, (channel - 0.5, 0.16), facecolor=JAM, linewidth=0.0)
    return [(Patch(facecolor=JAM), "jammed")]


def _stretches(rounds: FloatArray | np.ndarray[tuple[int], np.dtype[np.int64]]) -> Sequence[tuple[int, int]]:
    """Split ascending rounds into stretches without a gap; return the first round and the length of each."""
    cuts = np.flatnonzero(np.diff(rounds) > 1) + 1
    return [(int(stretch[0]), len(stretch)) for stretch in np.split(rounds, cuts)]


def _mark_declarations(axes: Axes, run: Run, edges: FloatArray) -> list[tuple[Line2D, str]]:
    """Mark declared changes, in the rows of their sub-channels, and true changes, as lines; return the legend (line, label).

    `edges` (n + 1,): abscissae of the edges of the n rounds.
    """
    legend: list[tuple[Line2D, str]] = []
    scored = run_detections(run)
    for first in run.row_of(scored.changes or ()).tolist():
        axes.axvline(edges[first - 1], color=PAPER, linewidth=1.6)
        axes.axvline(edges[first - 1], color=INK, linewidth=1.0, linestyle=(0, (3, 2)))
    if scored.changes:
        legend.append((Line2D([], [], color=INK, linewidth=1.0, linestyle=(0, (3, 2))), "change of means"))
    if not scored.causes:
        return legend
    # Declarations (m,): the abscissa of each, amid its round, and its sub-channel.
    rounds = declared_rounds(run)
    centres = (edges[rounds - 1] + edges[rounds]) / 2.0
    channels = np.asarray(run.arrow("detections", ["channel"]).column("channel").to_numpy(), np.int64)
    for cause, (marker, words) in MARKERS.items():
        has_cause = np.array([declared_cause == cause for declared_cause in scored.causes])
        if has_cause.any():
            face = PAPER if cause == "jamming" else "#CC79A7"
            x, y = centres[has_cause], channels[has_cause]
            axes.plot(x, y, marker, color=face, mec=INK, mew=1.0, ms=7.0, ls="none", zorder=4)
            legend.append((Line2D([], [], color=face, mec=INK, marker=marker, ls="none"), words))
    return legend


MARKERS: dict[Cause, tuple[str, str]] = {
    "change": ("o", "change found"),
    "jamming": ("s", "restart by jamming"),
    "false alarm": ("X", "false alarm"),
}
"""Marker of a declaration and its words in the legend, by cause."""


def detections_figure(groups: Groups, *, over: Over | None = None, look: Look = PLAIN) -> ShownFigure | None:
    """Draw declared and true changes of each variant's first run, with the counts of all its runs; None without declarations.

    A row for each variant that declares changes: lines mark true changes, markers the causes of declarations.
    """
    # Scores of all runs of each variant.
    scores = {label: [run_detections(run) for run in runs] for label, runs in groups.items()}
    shown = [label for label, scores_of_runs in scores.items() if any(score.causes for score in scores_of_runs)]
    if not shown:
        return None
    along = abscissa(groups, over)
    edges = {label: round_edges(groups[label][0], along) for label in shown}
    with look.apply():
        figure, (axes,) = new_figure(size_in=(7.2, 1.7 + row_height_in(shown, 0.42) * len(shown)), look=look)
        for row, label in enumerate(shown):
            first_run, score = groups[label][0], scores[label][0]
            colour = line_style(list(groups).index(label))["color"]
            # A true change stands at the start of its first round, a declaration at the end of its round.
            changes_x = edges[label][first_run.row_of(score.changes or ()) - 1]
            declarations_x = edges[label][declared_rounds(first_run)]
            axes.vlines(changes_x, row - 0.36, row + 0.36, color=FAINT, linewidth=1.2, zorder=1)
            for cause, (marker, _) in MARKERS.items():
                x = declarations_x[[declared_cause == cause for declared_cause in score.causes]]
                face = "white" if cause == "jamming" else colour
                axes.plot(x, np.full(len(x), row), marker, color=colour, mfc=face, ms=6, ls="none", zorder=3)
        names = [f"{drawable_text(label, LETTERS)}\n{_counts(scores[label])}" for label in shown]
        axes.set_yticks(range(len(shown)), names, fontsize="small")
        axes.set_ylim(len(shown) - 0.5, -0.5)
        along.label(axes)
        axes.set_xlim(0.0, max(float(edge[-1]) for edge in edges.values()))
        axes.grid(visible=False)
        drawn_scores = [scores[label][0] for label in shown]
        legend = []
        if any(score.changes for score in drawn_scores):
            legend.append((Line2D([], [], color=FAINT, lw=1.2), "change of means"))
        drawn_causes = set(itertools.chain(*(score.causes for score in drawn_scores)))
        for cause, (marker, words) in MARKERS.items():
            if cause in drawn_causes:
                face = "white" if cause == "jamming" else INK
                legend.append((Line2D([], [], color=INK, marker=marker, ls="none", mfc=face), words))
        seeds = max(len(scores[label]) for label in shown)
        note = f"drawn: seed {groups[shown[0]][0].seed}; counts: all {seeds} seeds" if seeds > 1 else ""
        finish_figure(figure, "Declared changes", note, legend, look=look)
    return figure


def _counts(scored: Sequence[DetectionScore]) -> str:
    """Return the numbers of changes found, of declarations by jamming and of false alarms of several runs, as text."""
    changes = sum(len(score.changes or ()) for score in scored)
    detected = sum(len(score.delays_rounds) for score in scored)
    alarms = sum(sum(score.false_alarms.values()) for score in scored)
    jamming = sum(sum(score.jamming.values()) for score in scored)
    words = [f"{detected:,} of {changes:,} found"] if changes else []
    words += [f"{jamming:,} by jamming"] if jamming else []
    return ", ".join([*words, f"{alarms:,} false"])

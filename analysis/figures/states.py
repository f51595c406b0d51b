"""The figure of sub-channels: how good each was when, where a jammer was, and what the detectors declared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from analysis.figures.channels import MARKERS
from analysis.figures.lines import round_columns
from analysis.figures.settings import PLAIN, Look
from analysis.figures.style import INK, PAPER, ShownFigure, headline, new_figure
from analysis.groups import Groups
from analysis.report.detections import run_detections
from analysis.results import Run
from analysis.statistics import FloatArray

JAM = "#D55E00"
_BINS = 120
"""Stretches of a run over which observed states are averaged."""


def states_figure(groups: Groups, *, look: Look = PLAIN) -> ShownFigure | None:
    """States of the sub-channels over the rounds of one run, with jams and declared changes; None without sub-channels.

    The run is the first of the first variant that declares changes, or else of the first with sub-channels. Colours are the true
    means of segments where the run tells them, else the share of transmissions that found the sub-channel Good.
    """
    run = _chosen(groups)
    if run is None:
        return None
    (number,) = round_columns(run, "round")
    true, means = _means(run, number.size)
    if not means.size:
        return None
    with look.applied():
        figure, (axes,) = new_figure(size_in=(7.2, 1.9 + 0.3 * means.shape[0]), look=look)
        extent = (0.5, number.size + 0.5, -0.5, means.shape[0] - 0.5)
        image = axes.imshow(
            means, aspect="auto", origin="lower", cmap="cividis", vmin=0.0, vmax=1.0, extent=extent, interpolation="nearest"
        )
        legend = [*_jams(axes, run), *_declared(axes, run)]
        axes.set(xlabel="round", ylabel="sub-channel", xlim=extent[:2], ylim=extent[2:])
        axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=12, integer=True))
        axes.grid(visible=False)
        label = "true mean of the state" if true else "share of transmissions that found it Good"
        figure.colorbar(image, ax=axes, label=label, pad=0.015)
        changes = run_detections(run).changes or ()
        note = f"{run.label}, seed {run.seed}" + ("" if true else f"; averaged over {_BINS} stretches, white: nothing was sent")
        headline(figure, "States of the sub-channels", note, legend, look=look)
        figure.described = (
            f"A map of {means.shape[0]} sub-channels over {number.size:,} rounds, with {len(changes)} true changes and "
            f"{len(run_detections(run).causes)} declared ones."
        )
    return figure


def _chosen(groups: Groups) -> Run | None:
    having = [run for runs in groups.values() for run in runs[:1] if run.scenario.get("channels") and run.has_clients]
    declaring = [run for run in having if run.has_detections and run_detections(run).causes]
    return next(iter([*declaring, *having]), None)


def _means(run: Run, rounds: int) -> tuple[bool, FloatArray]:
    """Whether they are the true ones; and how good each sub-channel was over time, (N, stretches), NaN where nobody knows."""
    channels = run.summary.get("sub_channels") or {}
    segments = channels.get("channels") or {}
    if segments.get("means") and "first_rounds" in segments:
        starts = [1, *segments["first_rounds"]]
        edges = np.searchsorted(starts, np.arange(1, rounds + 1), side="right") - 1
        kept = np.unique(np.linspace(0, rounds - 1, min(rounds, 1000)).astype(np.int64))
        return True, np.asarray(segments["means"], np.float64)[edges[kept]].T
    table = run.arrow("clients", ["round", "channel", "good"])
    channel, good = (np.asarray(table.column(name).to_numpy(zero_copy_only=False), np.float64) for name in ("channel", "good"))
    seen = ~np.isnan(channel) & ~np.isnan(good)
    count = int((run.scenario.get("channels") or {}).get("count", 0))
    if not seen.any() or not count:
        return False, np.empty(0)
    at = (np.asarray(table.column("round").to_numpy(), np.int64)[seen] - 1) * _BINS // max(1, rounds)
    cell = channel[seen].astype(np.int64) * _BINS + np.minimum(at, _BINS - 1)
    hits = np.bincount(cell, minlength=count * _BINS).astype(np.float64)
    with np.errstate(invalid="ignore"):
        share = np.bincount(cell, weights=good[seen], minlength=count * _BINS) / hits
    return False, share.reshape(count, _BINS)


def _jams(axes: Axes, run: Run) -> list[tuple[Patch, str]]:
    """Dwells of jammers, as bars within the row of their sub-channel."""
    if not run.source.has("jams"):
        return []
    table = run.arrow("jams", ["round", "channel"])
    number, channel = (np.asarray(table.column(name).to_numpy(), np.int64) for name in ("round", "channel"))
    if not number.size:
        return []
    for one in np.unique(channel):
        spans = _stretches(np.unique(number[channel == one]))
        axes.broken_barh([(start - 0.5, length) for start, length in spans], (one - 0.5, 0.16), facecolor=JAM, linewidth=0.0)
    return [(Patch(facecolor=JAM), "jammed")]


def _stretches(rounds: FloatArray | np.ndarray[tuple[int], np.dtype[np.int64]]) -> Sequence[tuple[int, int]]:
    """Rounds, ascending, as stretches without a gap: the first round and the length of each."""
    cuts = np.flatnonzero(np.diff(rounds) > 1) + 1
    return [(int(part[0]), len(part)) for part in np.split(rounds, cuts)]


def _declared(axes: Axes, run: Run) -> list[tuple[Line2D, str]]:
    """Declared changes by their cause, each in the row of the sub-channel that told, and true changes as lines."""
    legend: list[tuple[Line2D, str]] = []
    scored = run_detections(run)
    for first in scored.changes or ():
        axes.axvline(first - 0.5, color=PAPER, linewidth=1.6)
        axes.axvline(first - 0.5, color=INK, linewidth=1.0, linestyle=(0, (3, 2)))
    if scored.changes:
        legend.append((Line2D([], [], color=INK, linewidth=1.0, linestyle=(0, (3, 2))), "change of means"))
    if not scored.causes:
        return legend
    table = run.arrow("detections", ["round", "channel"])
    number, channel = (np.asarray(table.column(name).to_numpy(), np.float64) for name in ("round", "channel"))
    for cause, (marker, words) in MARKERS.items():
        at = np.array([found == cause for found in scored.causes])
        if at.any():
            faces = PAPER if cause == "jamming" else "#CC79A7"
            axes.plot(number[at], channel[at], marker, color=faces, mec=INK, mew=1.0, ms=7.0, ls="none", zorder=4)
            legend.append((Line2D([], [], color=faces, mec=INK, marker=marker, ls="none"), words))
    return legend

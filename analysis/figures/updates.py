"""Figures of what became of updates: deliveries over time, how attempts ended, who was selected how often, where time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, PercentFormatter

from analysis.figures.by_client import client_lines
from analysis.figures.lines import curve_note, curves_of, draw_lines, round_columns, thinned, time_axis
from analysis.figures.settings import PLAIN, Look
from analysis.figures.style import AXIS, LETTERS, ShownFigure, drawable, headline, line_style, new_figure, row_in, surface_style
from analysis.groups import Groups
from analysis.metrics.facts import Facts
from analysis.results import OUTCOMES, Run
from analysis.statistics import Curve, FloatArray, mean_interval
from analysis.stragglers.decomposition import decompose
from analysis.stragglers.served import served

_PHASE_NAMES = {
    "download_s": "download",
    "compute_s": "training",
    "queue_s": "queue",
    "upload_s": "upload",
    "resend_s": "sending again",
    "wait_s": "waiting for the close",
    "before_s": "before it was selected",
}


def delivered_figure(groups: Groups, *, look: Look = PLAIN) -> ShownFigure | None:
    """Updates delivered against simulated time, the one clock of all servers; None where nothing takes time or is delivered."""

    def curve(run: Run) -> Curve:
        end_s, delivered = round_columns(run, "end_s", "delivered")
        if not delivered.any() or not end_s.size or end_s[-1] <= 0.0:
            return np.empty(0), np.empty(0)
        return thinned((np.concatenate([[0.0], end_s]), np.concatenate([[0.0], delivered.cumsum()])))

    curves = curves_of(groups, curve)
    if not any(curves.values()):
        return None
    with look.applied():
        figure, (axes,) = new_figure(look=look)
        last_s = max(float(x[-1]) for group in curves.values() for x, _ in group)
        lines = draw_lines(axes, curves, np.linspace(0.0, last_s, 1000))
        axes.set(xlabel="simulated time (s)", ylabel="updates delivered")
        axes.set_ylim(bottom=0.0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        time_axis(axes)
        headline(figure, "Updates delivered", curve_note(curves, "counted at the close of rounds"), lines, look=look)
    return figure


def outcomes_figure(groups: Groups, *, look: Look = PLAIN) -> ShownFigure | None:
    """Share of attempts by how they ended, a bar a variant; None where all that ended was delivered."""
    shares: dict[str, FloatArray] = {}
    for label, runs in groups.items():
        totals = [run.summary["totals"] for run in runs if (run.summary.get("totals") or {}).get("selected")]
        counts = np.array([[total.get(name, 0) for name in OUTCOMES] for total in totals], np.float64)
        if counts.size:
            # Every seed counts once, however many attempts it made.
            shares[label] = (counts / counts.sum(axis=1, keepdims=True)).mean(axis=0)
    if not shares or not any(share[1:-1].any() for share in shares.values()):
        return None
    names = [name.replace("_", " ") for name in OUTCOMES]
    seeds = max(len(runs) for runs in groups.values())
    note = f"shares of attempts begun{f', mean over {seeds} seeds' if seeds > 1 else ''}"
    with look.applied():
        figure, (axes,) = new_figure(size_in=(7.2, 1.6 + row_in(shares, 0.36) * len(shares)), look=look)
        legend = _stacked(axes, {label: share.tolist() for label, share in shares.items()}, names)
        axes.set(xlabel="share of attempts", xlim=(0.0, 1.0))
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        headline(figure, "How attempts ended", note, legend, look=look)
        figure.described = _told({label: share.tolist() for label, share in shares.items()}, names, "{:.1%}")
    return figure


def phases_figure(groups: Groups, *, look: Look = PLAIN) -> ShownFigure | None:
    """Mean seconds of each phase of a client's round, a bar a variant.

    Phases are those of `analysis.stragglers.decomposition`: together they are the round. None without records of clients, or
    where all is one phase.
    """
    found: dict[str, list[float]] = {}
    for label, runs in groups.items():
        kept = [_phase_means(run) for run in runs if run.has_clients and run.states_causes]
        if kept:
            found[label] = np.mean(kept, axis=0).tolist()
    if not any(np.count_nonzero(values) > 1 for values in found.values()):
        return None
    names = list(_PHASE_NAMES.values())
    with look.applied():
        figure, (axes,) = new_figure(size_in=(7.2, 1.6 + row_in(found, 0.36) * len(found)), look=look)
        legend = _stacked(axes, found, names)
        axes.set(xlabel="mean of a client's round (s)")
        axes.set_xlim(left=0.0)
        note = "mean over rounds and the clients in each; waiting: up to the close of the round"
        headline(figure, "Where the time of clients in rounds goes", note, legend, look=look)
        figure.described = _told(found, names, "{:.3g} s")
    return figure


def _phase_means(run: Run) -> FloatArray:
    """Mean seconds of each phase over all rounds and the clients that each is about, in the order of `_PHASE_NAMES`."""
    phases = decompose(served(run))[list(_PHASE_NAMES)]
    return phases.to_numpy(np.float64).mean(axis=0) if len(phases) else np.zeros(len(_PHASE_NAMES))


def _stacked(axes: Axes, bars: Mapping[str, Sequence[float]], names: Sequence[str]) -> list[tuple[Patch, str]]:
    """Horizontal bars, one for each label, of values that add up; what stands for each name in a legend."""
    left = np.zeros(len(bars))
    legend = []
    for index, name in enumerate(names):
        width = np.array([values[index] for values in bars.values()])
        style = surface_style(index)
        axes.barh(range(len(bars)), width, left=left, height=0.7, **style)
        left += width
        if width.any():
            legend.append((Patch(**style), name))
    axes.set_yticks(range(len(bars)), [drawable(label, LETTERS) for label in bars])
    axes.invert_yaxis()
    axes.grid(visible=False)
    return legend


def _told(bars: Mapping[str, Sequence[float]], names: Sequence[str], number: str) -> str:
    parts = [
        f"{label}: {', '.join(f'{name} {number.format(value)}' for name, value in zip(names, values, strict=True) if value)}"
        for label, values in bars.items()
    ]
    return "; ".join(parts) + "."


def selections_figure(groups: Groups, *, look: Look = PLAIN) -> ShownFigure | None:
    """How often clients were selected: by group, where there are groups, and client by client.

    None without records of clients, and where all clients of a run were selected equally often. Clients are shown by their
    numbers where they are few, else from the one selected most often to the least.
    """
    counts = {label: [Facts(run).begun for run in runs] for label, runs in groups.items()}
    if all(np.ptp(count) == 0.0 for several in counts.values() for count in several if count.size):
        return None
    by_group = {label: [run.summary.get("groups") or {} for run in runs] for label, runs in groups.items()}
    names = list(dict.fromkeys(name for several in by_group.values() for one in several for name in one))

    with look.applied():
        widths = (min(1.2, 0.3 * len(names)), 2.0) if names else (1.0,)
        figure, panels = new_figure(widths, share_y=False, look=look)
        lines, curves = client_lines(panels[-1], counts, "times a client was selected", "most selected")
        if names:
            _group_bars(panels[0], by_group, names)
        seeds = curve_note(curves, "attempts begun")
        headline(figure, "Who was selected how often", seeds, lines, look=look)
    return figure


def _group_bars(axes: Axes, by_group: Mapping[str, Sequence[Mapping[str, Mapping[str, int]]]], names: Sequence[str]) -> None:
    """Attempts a client of each group, a bar for each variant with its interval over seeds."""
    width = 0.8 / len(by_group)
    for index, several in enumerate(by_group.values()):
        style = line_style(index)
        values = [
            mean_interval([one[name]["selected"] / max(1, one[name]["clients"]) for one in several if name in one])
            for name in names
        ]
        at = np.arange(len(names)) + (index - (len(by_group) - 1) / 2) * width
        means = np.array([value.mean for value in values])
        halves = np.nan_to_num([value.half_width for value in values])
        # Nobody is selected less than never.
        reach = (np.nan_to_num(np.minimum(halves, means)), halves)
        axes.bar(at, means, width * 0.92, color=style["color"], yerr=reach, ecolor=AXIS, capsize=2.0)
    few = len(names) < 4
    axes.set_xticks(range(len(names)), list(map(drawable, names)), rotation=0 if few else 30, ha="center" if few else "right")
    axes.set(xlabel="group", ylabel="times, mean of a group's clients")
    axes.grid(visible=True, axis="y")

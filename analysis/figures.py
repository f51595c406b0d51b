"""The figures of a study: accuracy against simulated time, leak, latency and regret against rounds.

Every figure takes `Groups`: the runs of each variant by its label. A variant keeps its colour and line style in every figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from analysis.results import Run, Sweep
from analysis.statistics import Curve, FloatArray, mean_curve, moving_mean
from analysis.style import FAINT, headline, house_style, line_style, new_figure, save_png

Groups = Mapping[str, Sequence[Run]]
"""Label of a variant to its runs, one a seed."""

MOST_POINTS = 1000
"""Points of one line over rounds: as many as a figure of this size can show."""


def group_runs(source: Sweep | Run | Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by label: those of a sweep by variant, others by policy, or by folder where one policy ran twice on the same seed."""
    if isinstance(source, Sweep):
        labels = source.labels
        # Two variants may carry one label; their runs must not be averaged.
        unique = len(set(labels.values())) == len(labels)
        return {label if unique else variant: source.runs(variant) for variant, label in labels.items()}
    runs = [source] if isinstance(source, Run) else list(source)
    distinct = len({(run.label, run.seed) for run in runs}) == len(runs)
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.label if distinct else str(run.path), []).append(run)
    return groups


def accuracy_figure(groups: Groups, *, target_accuracy: float | None = None, window: int = 10) -> Figure | None:
    """Moving mean of `window` test accuracies against simulated seconds; None where no run was evaluated."""

    def curve(run: Run) -> Curve:
        times, accuracy = _columns(run, "end_s", "accuracy")
        evaluated = ~np.isnan(accuracy)
        return times[evaluated], moving_mean(accuracy[evaluated], window)

    curves = _curves(groups, curve)
    if not any(curves.values()):
        return None
    with house_style():
        figure, (axes,) = new_figure()
        lines = _draw(axes, curves)
        for line, _ in lines:
            # Runs of a fixed number of rounds end at different times: the end of a line is information.
            axes.plot(line.get_xdata()[-1:], line.get_ydata()[-1:], "o", color=line.get_color(), ms=4.5, zorder=4)
        if target_accuracy is not None:
            axes.axhline(target_accuracy, color=FAINT, linewidth=1.0, zorder=1)
            axes.annotate(
                f"target {target_accuracy:.0%}" if round(target_accuracy * 100, 6) % 1 == 0 else f"target {target_accuracy:.1%}",
                (1.0, target_accuracy),
                xycoords=("axes fraction", "data"),
                xytext=(0, 3),
                textcoords="offset points",
                ha="right",
                fontsize=9,
                color="#555555",
            )
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        axes.set(xlabel="simulated time (s)", ylabel="test accuracy")
        _time_axis(axes)
        smooth = f"moving mean of {window} evaluations" if window > 1 else "each evaluation"
        headline(figure, "Accuracy against simulated time", _note(curves, smooth), lines)
    return figure


def leak_figure(groups: Groups) -> Figure | None:
    """Largest composed privacy leak over clients against rounds; None where no run leaks anything measured.

    Variants whose updates arrive without protection have no finite leak: the note names them, and no line pretends to be zero.
    """
    unprotected = []

    def curve(run: Run) -> Curve:
        number, leak, delivered = _columns(run, "round", "max_leak", "delivered")
        if not leak.size or not np.isfinite(leak).all() or leak.max() <= 0.0:
            if leak.size and delivered.sum() > 0:
                unprotected.append(run.label)
            return np.empty(0), np.empty(0)
        return number, leak

    curves = _curves(groups, curve)
    if not any(curves.values()):
        return None
    with house_style():
        figure, (axes,) = new_figure()
        lines = _draw(axes, curves, _round_grid(curves))
        axes.set_ylim(bottom=0.0)
        axes.set(xlabel="round", ylabel="largest leak over clients (ε)")
        _round_axis(axes)
        names = ", ".join(dict.fromkeys(unprotected))
        note = _note(curves, "composed over a client's participations")
        headline(figure, "Privacy leak", note + (f"; without protection, not drawn: {names}" if names else ""), lines)
    return figure


def latency_figure(groups: Groups, *, window: int = 10) -> Figure | None:
    """Seconds each round took: over rounds (moving mean, single rounds faint), and their distribution; None without rounds."""

    def curve(run: Run) -> Curve:
        number, start, end = _columns(run, "round", "start_s", "end_s")
        return number, end - start

    raw = _curves(groups, curve)
    if not any(raw.values()):
        return None
    smooth = {label: [(x, moving_mean(y, window)) for x, y in curves] for label, curves in raw.items()}
    with house_style():
        figure, (over_rounds, spread) = new_figure((2.1, 1.0))
        share = np.linspace(0.0, 1.0, MOST_POINTS + 1)
        for index, curves in enumerate(raw.values()):
            if curves:
                number, latency = curves[0]
                step = -(-number.size // MOST_POINTS)
                over_rounds.plot(
                    number[::step], latency[::step], ".", color=line_style(index)["color"], alpha=0.22, ms=3.0, mew=0, zorder=1
                )
                pooled = np.concatenate([y for _, y in curves])
                spread.plot(share, np.quantile(pooled, share, method="inverted_cdf"), **line_style(index))
        lines = _draw(over_rounds, smooth, _round_grid(smooth))
        over_rounds.set_ylim(bottom=0.0)
        over_rounds.set(xlabel="round", ylabel="latency of a round (s)")
        _round_axis(over_rounds)
        spread.set(xlabel="share of rounds at or below", xlim=(0.0, 1.0))
        spread.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
        spread.set_xticks([0.0, 0.5, 1.0])
        of_first = " of the first seed" if any(len(curves) > 1 for curves in raw.values()) else ""
        note = _note(raw, f"left: moving mean of {window} rounds, dots: single rounds{of_first}")
        headline(figure, "Latency of a round", note, lines)
    return figure


def regret_figure(groups: Groups, *, bound: Callable[[FloatArray], FloatArray] | None = None) -> Figure | None:
    """Cumulative regret (PAUSE eq. 15) against rounds; None where no run measured it.

    `bound` maps rounds (n,) to an upper bound on the expected regret (PAUSE eq. 17). Bounds lie orders of magnitude above what
    happens: the vertical axis is then logarithmic, and linear below 1.
    """

    def curve(run: Run) -> Curve:
        number, reward, genie = _columns(run, "round", "reward", "genie_reward")
        measured = ~np.isnan(genie - reward)
        return number[measured], np.cumsum((genie - reward)[measured])

    curves = _curves(groups, curve)
    if not any(curves.values()):
        return None
    with house_style():
        figure, (axes,) = new_figure()
        lines = _draw(axes, curves, _round_grid(curves))
        axes.axhline(0.0, color="#666666", linewidth=0.8, zorder=1)
        if bound is not None:
            rounds = _round_grid(curves)
            (line,) = axes.plot(rounds, np.asarray(bound(rounds), dtype=np.float64), color="#555555", linewidth=1.2)
            lines.append((line, "bound"))
            axes.set_yscale("symlog", linthresh=1.0)
        axes.set(xlabel="round", ylabel="cumulative regret (reward units)")
        _round_axis(axes)
        headline(figure, "Regret against the genie", _note(curves, "sum of genie reward minus reward"), lines)
    return figure


def partition_figure(groups: Groups) -> Figure | None:
    """How many training samples of each label each client holds, as a map; of the first run that says. None where none does.

    A sweep's variants share their data as long as they do not change the learner: one map stands for all of them then.
    """
    run = next((run for runs in groups.values() for run in runs if run.has_partition), None)
    if run is None:
        return None
    table = run.arrow("partition")
    client, label, samples = (np.asarray(table.column(name).to_numpy(), np.int64) for name in ("client", "label", "samples"))
    counts = np.zeros((int(label.max()) + 1, int(client.max()) + 1))
    counts[label, client] = samples
    with house_style():
        figure, (axes,) = new_figure()
        image = axes.imshow(counts, aspect="auto", interpolation="nearest", origin="lower", cmap="Blues", vmin=0.0)
        axes.grid(visible=False)
        axes.set(xlabel="client", ylabel="label")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True))
        figure.colorbar(image, ax=axes, label="training samples", pad=0.015)
        sizes = counts.sum(0)
        spread = f"{sizes.min():,.0f} to {sizes.max():,.0f} samples a client"
        headline(figure, "Who holds which training samples", f"{run.label}, seed {run.seed}; {spread}", [])
    return figure


def draw_all(
    source: Sweep | Run | Sequence[Run],
    out_dir: str | Path,
    *,
    target_accuracy: float | None = None,
    window: int = 10,
    bound: Callable[[FloatArray], FloatArray] | None = None,
) -> list[Path]:
    """Draw every figure the runs have data for as PNG into `out_dir`; the files written, in a fixed order.

    `target_accuracy` is drawn as a line; None takes that of the sweep, where there is one.
    """
    if target_accuracy is None and isinstance(source, Sweep):
        target_accuracy = source.target_accuracy
    groups = group_runs(source)
    figures = {
        "accuracy": accuracy_figure(groups, target_accuracy=target_accuracy, window=window),
        "leak": leak_figure(groups),
        "latency": latency_figure(groups, window=window),
        "regret": regret_figure(groups, bound=bound),
        "partition": partition_figure(groups),
    }
    with house_style():
        return [save_png(figure, Path(out_dir) / f"{name}.png") for name, figure in figures.items() if figure is not None]


def _columns(run: Run, *names: str) -> list[FloatArray]:
    """Columns of the rounds table as floats, missing values as NaN; only these are read."""
    table = run.arrow("rounds", names)
    return [np.asarray(table.column(name).to_numpy(), dtype=np.float64) for name in names]


def _curves(groups: Groups, curve: Callable[[Run], Curve]) -> dict[str, list[Curve]]:
    """Curves of each label's runs, without the empty ones; labels without any stay, for their place in the palette."""
    return {label: [found for found in map(curve, runs) if found[0].size] for label, runs in groups.items()}


def _draw(axes: Axes, curves: Mapping[str, Sequence[Curve]], grid: FloatArray | None = None) -> list[tuple[Any, str]]:
    """Mean over seeds of each label's curves with its interval as a band; the lines and labels for a legend."""
    lines: list[tuple[Any, str]] = []
    for index, (label, group) in enumerate(curves.items()):
        x, mean, half = mean_curve(group, grid=grid)
        if not x.size:
            continue
        style = line_style(index)
        # The first variants on top: by custom these are the ones the study is about.
        order = 3.0 - index / len(curves)
        (line,) = axes.plot(x, mean, zorder=order, **style)
        if len(group) > 1:
            axes.fill_between(x, mean - half, mean + half, color=style["color"], alpha=0.18, linewidth=0, zorder=order - 1)
        lines.append((line, label))
    return lines


def _round_grid(curves: Mapping[str, Sequence[Curve]]) -> FloatArray:
    """Whole rounds up to the last of any curve; evenly thinned where there are more than a figure can show."""
    last = max(float(x[-1]) for group in curves.values() for x, _ in group)
    return np.unique(np.round(np.linspace(1.0, last, min(int(last), MOST_POINTS))))


def _note(curves: Mapping[str, Sequence[Curve]], what: str) -> str:
    counts = sorted({len(group) for group in curves.values() if group})
    if counts == [1]:
        return what
    seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{what}; mean over {seeds} seeds, shaded: 95 % interval"


def _time_axis(axes: Axes) -> None:
    axes.set_xlim(left=0.0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _round_axis(axes: Axes) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True))
    axes.margins(x=0.02)

"""The figures of a study: accuracy against what it cost, leak, latency and regret against rounds; and all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from analysis.figures.accuracy import accuracy_figure, reached_figure
from analysis.figures.channels import aoi_regret_figure, aoi_variance_figure, deliveries_figure, detections_figure
from analysis.figures.lines import (
    MOST_POINTS,
    curve_note,
    curves_of,
    draw_lines,
    round_axis,
    round_columns,
    round_grid,
)
from analysis.figures.style import headline, house_style, line_style, new_figure, save_png
from analysis.groups import Bound, Groups, group_runs
from analysis.results import Run, Sweep
from analysis.statistics import Curve, moving_mean

_OF_VARIANTS = frozenset({"accuracy_bytes"})
"""Figures that say something new only where variants are compared."""


def leak_figure(groups: Groups) -> Figure | None:
    """Largest composed privacy leak over clients against rounds; None where no run leaks anything measured.

    Variants whose updates arrive without protection have no finite leak: the note names them, and no line pretends to be zero.
    """
    unprotected = []

    def curve(run: Run) -> Curve:
        number, leak, delivered = round_columns(run, "round", "max_leak", "delivered")
        if not leak.size or not np.isfinite(leak).all() or leak.max() <= 0.0:
            if leak.size and delivered.sum() > 0:
                unprotected.append(run.label)
            return np.empty(0), np.empty(0)
        return number, leak

    curves = curves_of(groups, curve)
    if not any(curves.values()):
        return None
    with house_style():
        figure, (axes,) = new_figure()
        lines = draw_lines(axes, curves, round_grid(curves))
        axes.set_ylim(bottom=0.0)
        axes.set(xlabel="round", ylabel="largest leak over clients (ε)")
        round_axis(axes)
        names = ", ".join(dict.fromkeys(unprotected))
        note = curve_note(curves, "composed over a client's participations")
        headline(figure, "Privacy leak", note + (f"; without protection, not drawn: {names}" if names else ""), lines)
    return figure


def latency_figure(groups: Groups, *, window: int = 10) -> Figure | None:
    """Seconds each round took: over rounds (moving mean, single rounds faint), and their distribution.

    None without rounds, or where none takes any time.
    """

    def curve(run: Run) -> Curve:
        number, start, end = round_columns(run, "round", "start_s", "end_s")
        return number, end - start

    raw = curves_of(groups, curve)
    if not any(y.any() for curves in raw.values() for _, y in curves):
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
        lines = draw_lines(over_rounds, smooth, round_grid(smooth))
        over_rounds.set_ylim(bottom=0.0)
        over_rounds.set(xlabel="round", ylabel="latency of a round (s)")
        round_axis(over_rounds)
        spread.set(xlabel="share of rounds at or below", xlim=(0.0, 1.0))
        spread.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
        spread.set_xticks([0.0, 0.5, 1.0])
        of_first = " of the first seed" if any(len(curves) > 1 for curves in raw.values()) else ""
        note = curve_note(raw, f"left: moving mean of {window} rounds, dots: single rounds{of_first}")
        headline(figure, "Latency of a round", note, lines)
    return figure


def regret_figure(groups: Groups, *, bounds: Sequence[Bound] = ()) -> Figure | None:
    """Cumulative regret (PAUSE eq. 15) against rounds; None where no run measured it.

    `bounds` are on the expected regret (PAUSE eq. 17). They lie orders of magnitude above what happens: the vertical axis is then
    logarithmic, and linear below 1.
    """

    def curve(run: Run) -> Curve:
        number, reward, genie = round_columns(run, "round", "reward", "genie_reward")
        measured = ~np.isnan(genie - reward)
        return number[measured], np.cumsum((genie - reward)[measured])

    curves = curves_of(groups, curve)
    if not any(curves.values()):
        return None
    with house_style():
        figure, (axes,) = new_figure()
        lines = draw_lines(axes, curves, round_grid(curves))
        axes.axhline(0.0, color="#666666", linewidth=0.8, zorder=1)
        note = curve_note(curves, "sum of genie reward minus reward")
        for bound in bounds:
            rounds = round_grid(curves)
            (line,) = axes.plot(rounds, bound.values(rounds), color="#555555", linewidth=1.2)
            lines.append((line, bound.label))
            note += f"; {bound.label}: {bound.constants}"
        if bounds:
            axes.set_yscale("symlog", linthresh=1.0)
        axes.set(xlabel="round", ylabel="cumulative regret (reward units)")
        round_axis(axes)
        headline(figure, "Regret against the genie", note, lines)
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


def draw(source: Sweep | Run | Sequence[Run], figure: str | None = None, **settings: Any) -> Figure:
    """One figure of runs, by its name in `draw_all`; None: the first that there is data for. `settings`: as for `draw_all`.

    Raises:
        ValueError: no figure of that name, or the runs have no data for it.
    """
    makers = _makers(source, **settings)
    if figure is not None and figure not in makers:
        raise ValueError(f"figure = {figure!r}: must be one of {', '.join(makers)}")
    for make in makers.values() if figure is None else [makers[figure]]:
        with house_style():
            drawn = make()
        if drawn is not None:
            return drawn
    if figure is None:
        raise ValueError("these runs have data for no figure: no round of theirs took time or was measured")
    others = [name for name, make in makers.items() if make() is not None]
    raise ValueError(f"figure = {figure!r}: these runs have no data for it; they have for {', '.join(others) or 'none'}")


def draw_all(source: Sweep | Run | Sequence[Run], out_dir: str | Path, **settings: Any) -> list[Path]:
    """Draw every figure the runs have data for as PNG into `out_dir`; the files written, in a fixed order.

    Accuracy against bytes is left out where there is one variant: its bytes grow with its rounds alone.

    Settings: `target_accuracy` is drawn as a line with its hits, of accuracies averaged over `smoothing_s` simulated seconds;
    None takes those of the sweep, where there is one; `horizon_s`: as in `compare`. `window`: latencies are averaged over so many
    rounds. `regret_bounds`: beside regrets; `aoi_bounds`: beside AoI regrets.
    """
    with house_style():
        return [save_png(figure, Path(out_dir) / f"{name}.png") for name, figure in draw_figures(source, **settings).items()]


def draw_figures(source: Sweep | Run | Sequence[Run], **settings: Any) -> dict[str, Figure]:
    """Every figure that the runs have data for, by its name, in a fixed order; `settings` as for `draw_all`."""
    alone = len(group_runs(source)) < 2
    drawn = {name: make() for name, make in _makers(source, **settings).items() if not (alone and name in _OF_VARIANTS)}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _makers(
    source: Sweep | Run | Sequence[Run],
    *,
    target_accuracy: float | None = None,
    smoothing_s: float | None = None,
    horizon_s: float | None = None,
    window: int = 10,
    regret_bounds: Sequence[Bound] = (),
    aoi_bounds: Sequence[Bound] = (),
) -> dict[str, Callable[[], Figure | None]]:
    """What draws each figure, by its name."""
    sweep = source if isinstance(source, Sweep) else None
    target = sweep.target_accuracy if sweep is not None and target_accuracy is None else target_accuracy
    smooth = sweep.smoothing_s if sweep is not None and smoothing_s is None else smoothing_s or 0.0
    groups = group_runs(source)
    return {
        "accuracy": lambda: accuracy_figure(groups, target_accuracy=target, smoothing_s=smooth, horizon=horizon_s),
        "accuracy_bytes": lambda: accuracy_figure(groups, cost="bytes", target_accuracy=target, smoothing_s=smooth),
        "accuracy_joules": lambda: accuracy_figure(groups, cost="joules", target_accuracy=target, smoothing_s=smooth),
        "target": lambda: None if target is None else reached_figure(groups, target_accuracy=target, smoothing_s=smooth),
        "leak": lambda: leak_figure(groups),
        "latency": lambda: latency_figure(groups, window=window),
        "regret": lambda: regret_figure(groups, bounds=regret_bounds),
        "aoi_regret": lambda: aoi_regret_figure(groups, bounds=aoi_bounds),
        "aoi_variance": lambda: aoi_variance_figure(groups),
        "deliveries": lambda: deliveries_figure(groups),
        "detections": lambda: detections_figure(groups),
        "partition": lambda: partition_figure(groups),
    }

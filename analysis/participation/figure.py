"""Figures of participation: selections of each client, and the training samples that clients hold."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from analysis.figures.client_lines import client_lines
from analysis.figures.lines import curve_note
from analysis.figures.settings import PLAIN, Look
from analysis.figures.style import ShownFigure, drawable_text, finish_figure, line_style, new_figure
from analysis.figures.theme import AXIS
from analysis.metrics.facts import Facts
from analysis.results.groups import Groups
from analysis.statistics.arrays import FloatArray
from analysis.statistics.intervals import mean_interval


def selections_figure(groups: Groups, *, look: Look = PLAIN) -> ShownFigure | None:
    """Draw how often clients were selected: by group, if there are groups, and client by client.

    None without records of clients, and where all clients of a run were selected equally often. Few clients are shown by their
    numbers, many from the one selected most often to the one selected least often.
    """
    # Per run: the selections of each client, (K,), and the counts of each group of clients.
    counts: dict[str, list[FloatArray]] = {}
    by_group: dict[str, list[dict[str, dict[str, int]]]] = {}
    for label, runs in groups.items():
        counts[label] = [Facts(run).attempts_begun for run in runs]
        by_group[label] = [run.summary.get("groups") or {} for run in runs]
    if all(np.ptp(selections) == 0.0 for selections in itertools.chain(*counts.values()) if selections.size):
        return None
    # Groups of clients in the order in which the runs name them.
    names = list(dict.fromkeys(itertools.chain(*itertools.chain(*by_group.values()))))

    with look.apply():
        widths = (min(1.2, 0.3 * len(names)), 2.0) if names else (1.0,)
        figure, panels = new_figure(widths, share_y=False, look=look)
        lines, curves = client_lines(panels[-1], counts, "times a client was selected", "most selected")
        if names:
            _group_bars(panels[0], by_group, names)
        seeds = curve_note(curves, "attempts begun")
        finish_figure(figure, "Who was selected how often", seeds, lines, look=look)
    return figure


def _group_bars(axes: Axes, by_group: Mapping[str, Sequence[Mapping[str, Mapping[str, int]]]], names: Sequence[str]) -> None:
    """Draw the mean attempts of a client of each group, a bar for each variant with its interval over seeds.

    `by_group`: label of a variant to the counts of each run: group, then "selected" or "clients". `names`: the groups. A run
    without a group adds nothing to the mean of that group.
    """
    width = 0.8 / len(by_group)
    for index, runs in enumerate(by_group.values()):
        intervals = []
        for name in names:
            counts_of_runs = [counts[name] for counts in runs if name in counts]
            per_client = [counts["selected"] / max(1, counts["clients"]) for counts in counts_of_runs]
            intervals.append(mean_interval(per_client))
        # The bars of the variants stand side by side, centred on the tick of their group.
        positions = np.arange(len(names)) + (index - (len(by_group) - 1) / 2) * width
        means = np.array([interval.mean for interval in intervals])
        half_widths = np.nan_to_num([interval.half_width for interval in intervals])
        # Counts are not negative: bars of intervals end at 0.
        below_and_above = (np.nan_to_num(np.minimum(half_widths, means)), half_widths)
        colour = line_style(index)["color"]
        axes.bar(positions, means, width * 0.92, color=colour, yerr=below_and_above, ecolor=AXIS, capsize=2.0)
    texts = list(map(drawable_text, names))
    # More names than three do not fit side by side.
    rotation, align = (0, "center") if len(names) < 4 else (30, "right")
    axes.set_xticks(range(len(names)), texts, rotation=rotation, ha=align)
    axes.set(xlabel="group", ylabel="times, mean of a group's clients")
    axes.grid(visible=True, axis="y")


def partition_figure(groups: Groups, *, look: Look = PLAIN) -> ShownFigure | None:
    """Draw a map of the training samples that each client holds of each label, of the first run that records them.

    None where no run does. Variants share their data as long as they do not change the learner: one map stands for all.
    """
    run = next((run for runs in groups.values() for run in runs if run.has_partition), None)
    if run is None:
        return None
    table = run.arrow("partition")
    client, label, samples = (np.asarray(table.column(name).to_numpy(), np.int64) for name in ("client", "label", "samples"))
    counts = np.zeros((int(label.max()) + 1, int(client.max()) + 1))
    counts[label, client] = samples
    with look.apply():
        figure, (axes,) = new_figure(look=look)
        image = axes.imshow(counts, aspect="auto", interpolation="nearest", origin="lower", cmap="Blues", vmin=0.0)
        axes.grid(visible=False)
        axes.set(xlabel="client", ylabel="label")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True))
        figure.colorbar(image, ax=axes, label="training samples", pad=0.015)
        sizes = counts.sum(0)
        spread = f"{sizes.min():,.0f} to {sizes.max():,.0f} samples a client"
        finish_figure(figure, "Who holds which training samples", f"seed {run.seed}, {run.label}; {spread}", [], look=look)
    return figure

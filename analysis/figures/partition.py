"""The figure of who holds which training samples."""

from __future__ import annotations

import numpy as np
from matplotlib.ticker import MaxNLocator

from analysis.figures.settings import PLAIN, Look
from analysis.figures.style import ShownFigure, headline, new_figure
from analysis.groups import Groups


def partition_figure(groups: Groups, *, look: Look = PLAIN) -> ShownFigure | None:
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
    with look.applied():
        figure, (axes,) = new_figure(look=look)
        image = axes.imshow(counts, aspect="auto", interpolation="nearest", origin="lower", cmap="Blues", vmin=0.0)
        axes.grid(visible=False)
        axes.set(xlabel="client", ylabel="label")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True))
        figure.colorbar(image, ax=axes, label="training samples", pad=0.015)
        sizes = counts.sum(0)
        spread = f"{sizes.min():,.0f} to {sizes.max():,.0f} samples a client"
        headline(figure, "Who holds which training samples", f"seed {run.seed}, {run.label}; {spread}", [], look=look)
    return figure

"""The map of the best method in each cell of a grid over one key or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch

from analysis.figures.settings import PLAIN, Look
from analysis.figures.style import ShownFigure, drawable_text, finish_figure, new_figure
from analysis.figures.theme import PALETTE, PAPER
from analysis.grids.measure import BestInCell, CellStudy, method_values
from analysis.metrics.registry import metric
from analysis.parameters.measure import key_with_unit

NONE_COLOUR = "#d9d9d9"
NONE_WORDS = "no difference shown"
MOST_NAMED = 2
"""Most methods of a cell without a winner that are named; of more, the number is given."""
DARKEST = 0.45
"""Luminance of a cell below which its letters are white."""


def best_figure(
    study: CellStudy, cells: Sequence[BestInCell], name: str, heading: str, *, look: Look = PLAIN
) -> ShownFigure | None:
    """Draw a map of cells, each in the colour of its best method by metric `name`; grey if no difference is shown.

    `cells`: the result of `best_in_cells`. The first key goes up, the second to the right; one key gives one row. None if there
    are no values.
    """
    if not any(cell.best.index >= 0 for cell in cells):
        return None
    has_two_keys = len(study.keys) == 2
    # Values of the keys, by row and by column of the map.
    rows, columns = (study.axis(0), study.axis(1)) if has_two_keys else (np.zeros(1), study.axis(0))
    with look.apply():
        figure, (axes,) = new_figure(look=look, size_in=(7.2, 1.6 + 0.75 * max(2, rows.size)))
        axes.grid(visible=False)
        # A combination of values without a cell stays white.
        image = np.ones((rows.size, columns.size, 3))
        for cell in cells:
            row = rows.tolist().index(cell.cell.at[0]) if has_two_keys else 0
            column = columns.tolist().index(cell.cell.at[-1])
            colour = to_rgb(_colour(cell.winners))
            image[row, column] = colour
            # Luminance of red, green and blue, as screens weigh them.
            dark = float(np.dot(colour, (0.2126, 0.7152, 0.0722))) < DARKEST
            words = drawable_text(cell_words(study, cell, name))
            style: dict[str, Any] = {"color": "white" if dark else "black", "fontsize": "small", "linespacing": 1.25}
            # With an id of its own in the picture: checks of contrast must know that it stands on its cell, not on paper.
            axes.text(column, row, words, ha="center", va="center", gid=f"cell-{row}-{column}", **style)
        axes.imshow(image, aspect="auto", origin="lower")
        axes.set_xticks(range(columns.size), [f"{value:g}" for value in columns])
        axes.set_yticks(range(rows.size), [f"{value:g}" for value in rows] if has_two_keys else [""])
        axes.set_xticks(np.arange(1, columns.size) - 0.5, minor=True)
        axes.set_yticks(np.arange(1, rows.size) - 0.5, minor=True)
        axes.grid(visible=True, which="minor", axis="both", color=PAPER, linewidth=2.0)
        axes.tick_params(which="both", length=0)
        axes.set(xlabel=key_with_unit(study.keys[-1]), ylabel=key_with_unit(study.keys[0]) if has_two_keys else "")
        legend = []
        # Cells without a winner come last.
        for winners in sorted({cell.winners for cell in cells}, key=lambda winners: (not winners, winners)):
            names = " = ".join(study.methods[index] for index in winners)
            legend.append((Patch(facecolor=_colour(winners)), names or NONE_WORDS))
        note = (
            f"a method is best where every other is shown to be worse, with {study.confidence * 100:g} % in all "
            f"{len(study.cells)} cells together (multiple comparisons with the best on paired seeds, Bonferroni)"
        )
        finish_figure(figure, f"Best where: {heading}", note, legend, look=look)
        sentences = []
        for cell in cells:
            where = ", ".join(f"{key} {value:g}" for key, value in zip(study.keys, cell.cell.at, strict=True))
            words = cell_words(study, cell, name).replace("\n", ", ")
            sentences.append(f"{where}: {words}")
        figure.description = "; ".join(sentences)
    return figure


def cell_words(study: CellStudy, cell: BestInCell, name: str) -> str:
    """Return two lines of text on a cell: the best method and its mean, or the methods that may be best."""
    if cell.best.index < 0:
        return "—"
    if not cell.winners:
        candidates = [method for method, may_be_best in zip(study.methods, cell.best.members, strict=True) if may_be_best]
        if len(candidates) <= MOST_NAMED:
            return f"no difference\n({', '.join(candidates)})"
        return f"no difference\n({len(candidates)} of {len(study.methods)} may be best)"
    mean = float(np.nanmean(method_values(cell.cell, name)[:, cell.best.index])) * metric(name).scale
    names = " =\n".join(study.methods[index] for index in cell.winners)
    return f"{names}\n{mean:.4g}"


def _colour(winners: Sequence[int]) -> str:
    """Return the colour of the first winner, or grey without one."""
    return PALETTE[winners[0] % len(PALETTE)] if winners else NONE_COLOUR

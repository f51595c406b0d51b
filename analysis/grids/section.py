"""The section of a report on the best method in each cell of a grid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from analysis.documents.blocks import Block, Bullets, Picture, Section, Table, Text
from analysis.documents.comparison_tables import difference_cell, heading, value_cell
from analysis.documents.numbers import MISSING, format_interval, format_percent, format_seconds
from analysis.figures.settings import PLAIN, Look
from analysis.grids.measure import BestInCell, Cell, CellStudy, best_in_cells, cells_of, grid_keys
from analysis.metrics.comparison import TARGETS, Comparison
from analysis.metrics.differences import is_comparable, simultaneous_difference
from analysis.metrics.registry import metric
from analysis.parameters.measure import key_with_unit, named_keys, settings_of
from analysis.parameters.section import metrics_shown
from analysis.results.sweep import Sweep

MOST_KEYS = 2
"""Largest number of keys that make a grid of cells."""


def cell_sections(sweep: Sweep, comparison: Comparison, *, within: Sequence[str] = (), look: Look = PLAIN) -> list[Section]:
    """Return a section on the best method in each cell, a cell being a value of one or two numeric keys.

    `within`: these keys; empty: the two keys of a grid with several methods. No section if the sweep is no such grid.
    ValueError: a key that is not varied by itself, more than two keys, or nothing to compare within their values.
    """
    settings = settings_of(sweep) if len(sweep) else {}
    keys = named_keys(settings, within, "within") or grid_keys(settings)
    if len(keys) > MOST_KEYS:
        raise ValueError(f"within {', '.join(keys)}: name at most {MOST_KEYS} keys")
    study = cells_of(sweep, comparison, settings, keys) if keys else None
    if study is None:
        if within:
            raise ValueError(f"within {', '.join(keys)}: nothing else is varied, so that there is nothing to compare there")
        return []
    blocks = [block for name in metrics_shown(comparison) for block in _blocks(study, name, look)]
    where = " and ".join(study.keys)
    return [Section(f"Best where, within {where}", [Text(_introduction(study)), *blocks])]


def best_text(study: CellStudy, cells: Sequence[BestInCell], title: str) -> str:
    """Return a sentence that says in how many cells each method is best, the most frequent first."""
    parts = []
    # Methods that win together count as one entry.
    counts = Counter(cell.winners for cell in cells)
    for winners, count in counts.most_common():
        if winners:
            names = " = ".join(study.methods[index] for index in winners)
            parts.append(f"{names} in {count}")
    without_winner = counts[()]
    if without_winner:
        parts.append(f"no difference shown in {without_winner}")
    return f"{title}, best of {len(study.methods)} in {len(cells)} cells: {'; '.join(parts)}."


def means_table(study: CellStudy, best_cells: Sequence[BestInCell], name: str) -> Table:
    """Return a table of means, a row for each cell, a column for each method; a star: may be the best of its row."""
    title = heading(study.cells[0].comparison, name)
    header = [*map(key_with_unit, study.keys), *study.methods]
    rows = []
    for best_cell in best_cells:
        cell, comparison = best_cell.cell, best_cell.cell.comparison
        by_variant = {row.variant: row for row in comparison.rows}
        texts = [f"{value:g}" for value in cell.at]
        # Where all are alike, such as where no run reached the target, no method is called the best.
        differ = len({row[name].mean for row in by_variant.values()}) > 1
        for variant, may_be_best in zip(cell.variants, best_cell.best.members, strict=True):
            if variant is None:
                texts.append(MISSING)
                continue
            star = " *" if differ and may_be_best else ""
            texts.append(value_cell(by_variant[variant], comparison, name) + star)
        rows.append(texts)
    level = format_percent(study.confidence)
    note = (
        f"Mean ± half-width of the {level} interval over seeds, each by itself. *: may be the best of its row ({level} sets of "
        "best of all rows together)."
    )
    if name in TARGETS:
        note += " Runs that missed the target count with the horizon of their row."
    return Table(f"{_slug(name)}-within", title, (header, rows), note=note, words=())


def differences_table(study: CellStudy, name: str) -> Table | None:
    """Return the table of each method minus the baseline within each cell, at equal seeds; its intervals hold all at once.

    None if the cells have no common baseline, or nothing to compare.
    """
    count = sum(len(cell.comparison.differences) for cell in study.cells)
    baselines = {_baseline(cell) for cell in study.cells}
    if not count or len(baselines) > 1:
        return None
    (baseline,) = baselines
    title = heading(study.cells[0].comparison, name)
    others = [method for method in range(len(study.methods)) if method != baseline]
    rows = []
    for cell in study.cells:
        texts = [f"{value:g}" for value in cell.at]
        difference_of = {row.variant: row for row in cell.comparison.differences}
        for method in others:
            variant = cell.variants[method]
            difference = None if variant is None else difference_of.get(variant)
            if difference is None:
                texts.append(MISSING)
                continue
            interval = simultaneous_difference(cell.comparison, difference, name, together=count)
            if np.isnan(interval.half_width) or not is_comparable(difference, name):
                texts.append(difference_cell(difference, name))
                continue
            star = " *" if interval.low > 0.0 or interval.high < 0.0 else ""
            texts.append(format_interval(interval, scale=metric(name).scale, signed=True) + star)
        rows.append(texts)
    level = format_percent(study.confidence)
    note = f"Paired at equal seeds; the {count} intervals hold together with {level} (Bonferroni). *: without zero."
    header = [*map(key_with_unit, study.keys), *(study.methods[method] for method in others)]
    caption = f"{title}, minus {study.methods[baseline]}"
    return Table(f"{_slug(name)}-within-differences", caption, (header, rows), note=note, words=())


def _baseline(cell: Cell) -> int:
    """Return the number of the method that is the baseline of a cell."""
    return cell.variants.index(cell.comparison.baseline)


def _blocks(study: CellStudy, name: str, look: Look) -> list[Block]:
    """Return the blocks on metric `name`: a sentence, a map, the table of means and that of differences."""
    from analysis.grids.figure import best_figure

    cells = best_in_cells(study, name)
    title = heading(study.cells[0].comparison, name)
    blocks: list[Block] = [Bullets([best_text(study, cells, title)])]
    figure = best_figure(study, cells, name, title, look=look)
    if figure is not None:
        blocks.append(Picture(f"{_slug(name)}-best-where", f"Who is best where: {title}", figure))
    blocks.append(means_table(study, cells, name))
    differences = differences_table(study, name)
    if differences is not None:
        blocks.append(differences)
    return blocks


def _introduction(study: CellStudy) -> str:
    """Return sentences that say what a cell is, and up to which time its runs are compared."""
    ends_s = [cell.comparison.horizon_s for cell in study.cells]
    where = " and ".join(study.keys)
    asked_s = study.cells[0].comparison.asked_horizon_s
    words = (
        f"{len(study.methods)} methods within each of {len(study.cells)} cells: a cell is a value of {where}. Runs of a cell are "
        "compared up to the end of the shortest of them"
    )
    if asked_s is not None:
        return f"{words}; times to a target are restricted to {format_seconds(asked_s)} in all of them."
    if not np.isfinite(ends_s).all():
        return f"{words}."
    return f"{words}, which lies between {min(ends_s):,.4g} and {max(ends_s):,.4g} s; times to a target are restricted to it."


def _slug(name: str) -> str:
    """Return the name of a metric as part of the id of a table."""
    return name.replace("_", "-")

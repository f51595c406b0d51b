"""The section of a report on the best method in each cell of a grid."""

from __future__ import annotations

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


def best_text(study: CellStudy, found: Sequence[BestInCell], title: str) -> str:
    """Return a sentence that says in how many cells each method is best."""
    counts: dict[tuple[int, ...], int] = {}
    for cell in found:
        counts[cell.winners] = counts.get(cell.winners, 0) + 1
    parts = [
        f"{' = '.join(study.methods[index] for index in winners)} in {count}"
        for winners, count in sorted(counts.items(), key=lambda item: -item[1])
        if winners
    ]
    none = counts.get((), 0)
    parts += [f"no difference shown in {none}"] if none else []
    return f"{title}, best of {len(study.methods)} in {len(found)} cells: {'; '.join(parts)}."


def means_table(study: CellStudy, found: Sequence[BestInCell], name: str) -> Table:
    """Return a table of means, a row for each cell, a column for each method; a star: may be the best of its row."""
    title = heading(study.cells[0].comparison, name)
    header = [*map(key_with_unit, study.keys), *study.methods]
    rows = []
    for cell in found:
        by_variant = {row.variant: row for row in cell.cell.comparison.rows}
        cells = [f"{value:g}" for value in cell.cell.at]
        # Where all are alike, such as where no run reached the target, no method is called the best.
        differ = len({row[name].mean for row in by_variant.values()}) > 1
        for index, variant in enumerate(cell.cell.variants):
            star = " *" if differ and cell.best.members[index] else ""
            cells.append(MISSING if variant is None else value_cell(by_variant[variant], cell.cell.comparison, name) + star)
        rows.append(cells)
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
    together = sum(len(cell.comparison.differences) for cell in study.cells)
    baselines = [_baseline(cell) for cell in study.cells]
    base = baselines[0]
    if not together or any(label != base for label in baselines):
        return None
    title = heading(study.cells[0].comparison, name)
    others = [index for index in range(len(study.methods)) if index != base]
    rows = []
    for cell in study.cells:
        cells = [f"{value:g}" for value in cell.at]
        by_variant = {row.variant: row for row in cell.comparison.differences}
        for index in others:
            row = by_variant.get(cell.variants[index] or "")
            if row is None:
                cells.append(MISSING)
                continue
            interval = simultaneous_difference(cell.comparison, row, name, together=together)
            if np.isnan(interval.half_width) or not is_comparable(row, name):
                cells.append(difference_cell(row, name))
                continue
            excludes_zero = interval.low > 0.0 or interval.high < 0.0
            cells.append(format_interval(interval, scale=metric(name).scale, signed=True) + (" *" if excludes_zero else ""))
        rows.append(cells)
    level = format_percent(study.confidence)
    note = f"Paired at equal seeds; the {together} intervals hold together with {level} (Bonferroni). *: without zero."
    header = [*map(key_with_unit, study.keys), *(study.methods[index] for index in others)]
    caption = f"{title}, minus {study.methods[base]}"
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
    return [*blocks, *([] if differences is None else [differences])]


def _introduction(study: CellStudy) -> str:
    """Return sentences that say what a cell is, and up to which time its runs are compared."""
    ends = [cell.comparison.horizon_s for cell in study.cells]
    where = " and ".join(study.keys)
    asked_s = study.cells[0].comparison.asked_horizon_s
    words = f"{len(study.methods)} methods within each of {len(study.cells)} cells: a cell is a value of {where}. "
    if asked_s is not None:
        return (
            f"{words}Runs of a cell are compared up to the end of the shortest of them; times to a target are restricted to "
            f"{format_seconds(asked_s)} in all of them."
        )
    if not np.isfinite(ends).all():
        return f"{words}Runs of a cell are compared up to the end of the shortest of them."
    return (
        f"{words}Runs of a cell are compared up to the end of the shortest of them, which lies between {min(ends):,.4g} and "
        f"{max(ends):,.4g} s; times to a target are restricted to it."
    )


def _slug(name: str) -> str:
    """Return the name of a metric as part of the id of a table."""
    return name.replace("_", "-")

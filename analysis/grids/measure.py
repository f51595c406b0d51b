"""The best of several methods in each cell of a grid.

A cell holds the variants with one value at each of some keys. Cells may differ in time scale, so that a common horizon would be
too short for some: each cell is a comparison of its own, with the horizon, the common end and the baseline of its own runs.
Statements on the cells hold for all of them together, with the stated confidence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.metrics.comparison import Comparison, compare, metric_by_seed
from analysis.metrics.registry import metric
from analysis.parameters.measure import Settings, is_number, numeric_keys, shared_label
from analysis.results.sweep import Sweep
from analysis.statistics.arrays import FloatArray
from analysis.statistics.inference import Best, set_of_best, simultaneous_confidence

MOST_CELLS = 100
"""Largest grid that is compared cell by cell without a request."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The variants that have one value at each key."""

    at: tuple[float, ...]
    """Values of the keys (keys,)."""
    variants: tuple[str | None, ...]
    """Variant of each method (methods,); None: it was not run in this cell."""
    comparison: Comparison
    """Comparison of its variants alone."""


@dataclass(frozen=True, slots=True)
class CellStudy:
    """Methods compared within each cell of a grid."""

    keys: tuple[str, ...]
    methods: tuple[str, ...]
    """Labels of the methods, without the parts about the keys."""
    cells: tuple[Cell, ...]
    """Cells in ascending order of their values."""
    confidence: float

    def axis(self, key: int) -> FloatArray:
        """Return the values of the key of that number, ascending."""
        return np.array(sorted({cell.at[key] for cell in self.cells}))


@dataclass(frozen=True, slots=True)
class BestInCell:
    """The methods that may be best by one metric in one cell; sets of all cells hold together."""

    cell: Cell
    best: Best
    """Set of best methods."""
    winners: tuple[int, ...]
    """The method that is shown to be best, or several with equal values at every seed; empty: no difference is shown."""


def cells_of(sweep: Sweep, comparison: Comparison, settings: Mapping[str, Settings], keys: Sequence[str]) -> CellStudy | None:
    """Return the grid of a sweep split into cells by the values of `keys`; None if there are fewer than two cells or methods.

    A method is what variants with the same settings at all other keys have in common. `settings`: the result of `settings_of`. A
    variant whose value of a key is no number is in no cell. Target, smoothing, confidence, metrics and a requested horizon are
    those of `comparison`. The baseline of each cell is the method of the sweep's baseline.
    """
    # Values of the keys to the variant of each method there, and method to its variants; `_method_key` names a method.
    variants_at: dict[tuple[float, ...], dict[str, str]] = {}
    variants_of: dict[str, list[str]] = {}
    for variant, own_settings in settings.items():
        values = [own_settings.get(key) for key in keys]
        if not all(map(is_number, values)):
            continue
        method = _method_key(own_settings, keys)
        at = tuple(float(own_settings[key]) for key in keys)
        variants_at.setdefault(at, {})[method] = variant
        variants_of.setdefault(method, []).append(variant)
    if len(variants_at) < 2 or len(variants_of) < 2:
        return None
    baseline = _method_key(settings[comparison.baseline], keys)
    cells = []
    for at, by_method in sorted(variants_at.items()):
        compared = _compare_variants(sweep, comparison, list(by_method.values()), by_method.get(baseline))
        cells.append(Cell(at=at, variants=tuple(by_method.get(method) for method in variants_of), comparison=compared))
    labels_of = {method: [sweep.labels[variant] for variant in variants] for method, variants in variants_of.items()}
    methods = tuple(shared_label(labels, keys) for labels in labels_of.values())
    return CellStudy(tuple(keys), methods, tuple(cells), comparison.confidence)


def grid_keys(settings: Mapping[str, Settings]) -> list[str]:
    """Return the two numeric keys that span the cells of a grid with several methods; empty if the sweep is no such grid.

    Empty, too, for a grid of more than `MOST_CELLS` cells.
    """
    keys = numeric_keys(settings)
    if len(keys) != 2:
        return []
    methods, cells = set(), set()
    for own_settings in settings.values():
        methods.add(_method_key(own_settings, keys))
        cells.add(tuple(repr(own_settings.get(key)) for key in keys))
    return keys if len(methods) > 1 and 1 < len(cells) <= MOST_CELLS else []


def best_in_cells(study: CellStudy, name: str) -> list[BestInCell]:
    """Return the methods that may be best by the metric `name`, cell by cell.

    The sets of best hold in all cells together with the confidence of the study (Bonferroni).
    ValueError: neither high nor low values of the metric are better.
    """
    definition = metric(name)
    if definition.better == "neither":
        raise ValueError(f"metric = {name!r}: is no better high or low, so that nothing is best by it")
    level = simultaneous_confidence(study.confidence, len(study.cells))
    result = []
    for cell in study.cells:
        values = method_values(cell, name)
        best = set_of_best(values, higher=definition.better == "higher", confidence=level)
        result.append(BestInCell(cell, best, _winners(values, best)))
    return result


def method_values(cell: Cell, name: str) -> FloatArray:
    """Return the metric of each run of a cell, (seeds, methods); NaN where there is none."""
    variants = [variant for variant in cell.variants if variant is not None]
    values = metric_by_seed(cell.comparison, variants, name)
    # Methods that were not run in this cell keep a column of NaN.
    was_run = [variant is not None for variant in cell.variants]
    table: FloatArray = np.full((len(values), len(cell.variants)), np.nan)
    table[:, was_run] = values
    return table


def _winners(values: FloatArray, best: Best) -> tuple[int, ...]:
    """Return the methods that are shown to be best: one, or several whose values are all equal; empty if none is shown to be."""
    members = np.flatnonzero(best.members)
    compared = ~np.isnan(values).all(axis=0)
    # If every method may be the best, no difference is shown.
    if best.seeds < 2 or members.size == compared.sum():
        return ()
    # Leave out seeds at which one of the methods has no value.
    paired = values[~np.isnan(values[:, compared]).any(axis=1)]
    equal = (paired[:, members] == paired[:, members[:1]]).all()
    return tuple(members.tolist()) if equal else ()


def _method_key(settings: Settings, keys: Sequence[str]) -> str:
    """Return the settings of a variant other than `keys` as text: variants with equal text run the same method."""
    return repr(sorted((key, repr(value)) for key, value in settings.items() if key not in keys))


def _compare_variants(sweep: Sweep, whole: Comparison, variants: Sequence[str], baseline: str | None) -> Comparison:
    """Return the comparison of `variants` of a sweep among themselves, up to the end of their own shortest run.

    `whole`: the comparison of the whole sweep, whose settings are used. `baseline` None: the first of them.
    """
    entries = [entry for entry in sweep.entries if entry.variant in variants]
    part = Sweep(
        path=sweep.path,
        name=sweep.name,
        entries=entries,
        baseline=entries[0].variant if baseline is None else baseline,
        target_accuracy=whole.target_accuracy,
        smoothing_s=whole.smoothing_s,
    )
    return compare(
        part,
        horizon_s=whole.asked_horizon_s,
        equal=whole.equal,
        last=whole.last,
        confidence=whole.confidence,
        metrics=whole.asked,
    )

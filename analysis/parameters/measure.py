"""A metric against a parameter: numeric keys that a sweep varies, the metric over them, and best values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.metrics.comparison import Comparison, metric_by_seed
from analysis.metrics.registry import metric
from analysis.results.sweep import Sweep
from analysis.statistics.arrays import FloatArray
from analysis.statistics.inference import Best, set_of_best
from analysis.statistics.intervals import Interval
from analysis.suggestions import did_you_mean

Settings = Mapping[str, Any]
"""Keys of a scenario, dotted, with their values; of lists as text."""
UNITS = {"_s": "s", "_bytes": "bytes", "_bytes_per_s": "bytes/s", "_j": "J", "_km": "km", "_w": "W", "_rounds": "rounds"}


@dataclass(frozen=True, slots=True)
class Line:
    """Variants that differ in one numeric key alone."""

    label: str
    """Parts that the variants' labels share; empty for a single line."""
    at: FloatArray
    """Values (n,) of the key, ascending."""
    variants: tuple[str, ...]
    """(n,)"""
    intervals: tuple[Interval, ...]
    """Means (n,) of the metric over seeds, with intervals."""
    best: Best | None
    """Values that may be the best; None: neither high nor low values of the metric are better."""


@dataclass(frozen=True, slots=True)
class AgainstOne:
    """A metric against one numeric key."""

    metric: str
    key: str
    lines: tuple[Line, ...]

    @property
    def axis(self) -> str:
        """The key with its unit, as the label of an axis."""
        return key_with_unit(self.key)


@dataclass(frozen=True, slots=True)
class AgainstTwo:
    """A metric against two numeric keys; every combination was run."""

    metric: str
    rows: str
    """The key that changes from row to row."""
    columns: str
    at_rows: FloatArray
    at_columns: FloatArray
    means: FloatArray
    """(rows, columns)"""
    best: Best | None
    """Over all combinations, row after row."""
    members: NDArray[np.bool_]
    """True (rows, columns) for combinations that may be best."""


def unit_of(key: str) -> str:
    """Return the unit at the end of a key's name; empty without one."""
    return next((unit for end, unit in sorted(UNITS.items(), key=lambda item: -len(item[0])) if key.endswith(end)), "")


def key_with_unit(key: str) -> str:
    """Return a key with its unit, as the label of an axis."""
    unit = unit_of(key)
    return f"{key} ({unit})" if unit else key


def settings_of(sweep: Sweep) -> dict[str, dict[str, Any]]:
    """Return by variant the values of the keys in which scenarios of the sweep differ, seeds, names and descriptions aside."""
    first = {entry.variant: entry.seed for entry in reversed(sweep.entries)}
    flat = {variant: _flatten(sweep.run(variant, first[variant]).scenario) for variant in sweep.variants}
    keys = dict.fromkeys(key for settings in flat.values() for key in settings)
    missing = object()  # no value of a key is equal to it
    different = [key for key in keys if len({repr(settings.get(key, missing)) for settings in flat.values()}) > 1]
    return {variant: {key: settings[key] for key in different if key in settings} for variant, settings in flat.items()}


def _flatten(scenario: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return the keys of a scenario with dots, without seeds, names and descriptions; `above`: prefix of the keys."""
    keys: dict[str, Any] = {}
    for name, value in scenario.items():
        key = f"{above}{name}"
        if key in ("seed", "name", "description", "sweep"):
            continue
        if isinstance(value, Mapping):
            keys |= _flatten(value, f"{key}.")
        else:
            keys[key] = value
    return keys


def numeric_keys(settings: Mapping[str, Settings]) -> list[str]:
    """Return the numeric keys that some variants differ in alone, so that a metric can be shown against them."""
    keys = dict.fromkeys(key for own_settings in settings.values() for key in own_settings)
    return [key for key in keys if any(len(group) > 1 for group in _group_by_other_settings(settings, key).values())]


def _group_by_other_settings(settings: Mapping[str, Settings], key: str) -> dict[str, list[str]]:
    """Group the variants with a number at `key` by their other settings; of variants with equal settings, keep the first.

    Another one would repeat the value, and make the set of best values larger without reason.
    """
    groups: dict[str, list[str]] = {}
    for variant, own_settings in settings.items():
        value = own_settings.get(key)
        if is_number(value):
            group = groups.setdefault(repr(sorted((k, repr(v)) for k, v in own_settings.items() if k != key)), [])
            if all(settings[other][key] != value for other in group):
                group.append(variant)
    return groups


def is_number(value: Any) -> bool:
    """Return True if a value of a scenario is a number; truth values, texts and lists are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_key(settings: Mapping[str, Settings], key: str, option: str = "against") -> str:
    """Return the full name of a numeric key that the sweep varies by itself; `key` may be the last parts of it.

    ValueError, naming `option`: there is no such key, or several.
    """
    keys = numeric_keys(settings)
    matches = [full_key for full_key in keys if full_key == key or full_key.endswith(f".{key}")]
    if len(matches) != 1:
        no_grid = "no numeric key varies by itself: make a grid, such as --grid KEY=[1, 2, 5]"
        remedy = did_you_mean(key, keys) if keys else no_grid
        raise ValueError(f"{option} {key!r}: is not varied alone by this sweep; {remedy}")
    return matches[0]


def named_keys(settings: Mapping[str, Settings], keys: Sequence[str], option: str) -> list[str]:
    """Return the keys that an `option` names, in full, each once. ValueError: as for `check_key`."""
    return list(dict.fromkeys(check_key(settings, key, option) for key in keys))


def against_one(comparison: Comparison, sweep: Sweep, settings: Mapping[str, Settings], name: str, key: str) -> AgainstOne:
    """Return the metric `name` of a comparison against `key`, a line for each setting of the other keys."""
    rows = {row.variant: row for row in comparison.rows}
    groups = [group for group in _group_by_other_settings(settings, key).values() if len(group) > 1]
    lines = []
    for group in groups:
        ordered = sorted(group, key=lambda variant: float(settings[variant][key]))
        lines.append(
            Line(
                label=shared_label([sweep.labels[variant] for variant in ordered], [key]) if len(groups) > 1 else "",
                at=np.array([float(settings[variant][key]) for variant in ordered]),
                variants=tuple(ordered),
                intervals=tuple(rows[variant][name] for variant in ordered),
                best=_best(comparison, ordered, name),
            )
        )
    return AgainstOne(name, key, tuple(lines))


def against_two(
    comparison: Comparison, settings: Mapping[str, Settings], name: str, rows: str, columns: str
) -> AgainstTwo | None:
    """Return metric `name` on a map of two keys, `rows` and `columns`.

    None unless the sweep varies just these keys and ran every combination of their values, at least 2 by 2. Variants whose value
    of a key is no number have no place on the map.
    """
    keys = {key for own_settings in settings.values() for key in own_settings}
    if keys != {rows, columns}:
        return None
    variant_at: dict[tuple[float, float], str] = {}
    for variant, values in settings.items():
        if is_number(values.get(rows)) and is_number(values.get(columns)):
            variant_at[float(values[rows]), float(values[columns])] = variant
    at_rows = np.array(sorted({row for row, _ in variant_at}))
    at_columns = np.array(sorted({column for _, column in variant_at}))
    was_whole_map_run = len(variant_at) == at_rows.size * at_columns.size
    if not was_whole_map_run or min(at_rows.size, at_columns.size) < 2:
        return None
    variants = [variant_at[row, column] for row in at_rows for column in at_columns]
    by_variant = {row.variant: row[name].mean for row in comparison.rows}
    shape = (at_rows.size, at_columns.size)
    best = _best(comparison, variants, name)
    members = np.zeros(shape, bool) if best is None else best.members.reshape(shape)
    means = np.array([by_variant[variant] for variant in variants]).reshape(shape)
    return AgainstTwo(name, rows, columns, at_rows, at_columns, means, best, members)


def _best(comparison: Comparison, variants: Sequence[str], name: str) -> Best | None:
    """Return the best of `variants` by metric `name`; None for a metric of which neither higher nor lower is better."""
    definition = metric(name)
    if definition.better == "neither":
        return None
    higher = definition.better == "higher"
    return set_of_best(metric_by_seed(comparison, variants, name), higher=higher, confidence=comparison.confidence)


def shared_label(labels: Sequence[str], keys: Sequence[str]) -> str:
    """Return the words that the labels of several variants share, without those of `keys`."""
    short = tuple(f"{name}=" for key in keys for name in (key, key.rpartition(".")[2]))
    words = [word for word in labels[0].split(", ") if not word.startswith(short)]
    shared = [word for word in words if all(word in label.split(", ") for label in labels)]
    return ", ".join(shared) or labels[0]


def is_tied(line: Line) -> bool:
    """Return True if the metric is the same at every value, so that no value is the best."""
    means = [interval.mean for interval in line.intervals]
    return line.best is not None and len(means) > 1 and all(mean == means[0] for mean in means)


def best_text(study: AgainstOne, line: Line, confidence: float) -> str:
    """Return a text such as "deadline 5 s; 95 % set of best: 4 to 6 s"; "" if the metric has no better direction or no value."""
    if line.best is None or line.best.index < 0:
        return ""
    unit = unit_of(study.key)
    unit = f" {unit}" if unit else ""
    # The values of the key, ascending, and the indexes of those in the set of best.
    values, members = line.at, np.flatnonzero(line.best.members)
    best = f"{study.key} {values[line.best.index]:g}{unit}"
    if line.best.seeds < 2:
        return f"{best}; one seed does not tell which others may be"
    if members.size == 1:
        set_text = f"{values[members[0]]:g}{unit} alone"
    elif members.size == members[-1] - members[0] + 1:  # without a gap
        set_text = f"{values[members[0]]:g} to {values[members[-1]]:g}{unit}"
    else:
        set_text = f"{', '.join(f'{values[index]:g}' for index in members)}{unit}"
    whole = " (all values tried)" if members.size == values.size > 1 else ""
    return f"{best}; {confidence * 100:.10g} % set of best: {set_text}{whole}"

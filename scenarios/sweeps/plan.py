"""Plan of a sweep's runs: variants and grids of keys, all with the same seeds, so that differences are paired."""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote

from scenarios.registry.in_process import replace_classes
from scenarios.runs.folders.marker import MARKER
from scenarios.runs.folders.replacement import DATASET, FAILURES, MANIFEST
from scenarios.runs.reading import override, parse
from scenarios.schema.cautions import Caution
from scenarios.schema.errors import UserError, did_you_mean, name_source
from scenarios.schema.fit import LARGEST
from scenarios.schema.scenario import Scenario, Sweep, Until
from scenarios.schema.section import NO_VALUE, Tables
from scenarios.wiring.simulation import build

MOST_VARIANTS = 1000
LONGEST_NAME = 240
"""Largest length of a variant's name in the data set of a sweep, in which "=" and "+" count three: names of folders have at
most 255 letters.
"""
_RESERVED_NAMES = ("figures", "report", "comparison.parquet", DATASET, FAILURES, MANIFEST, MARKER)


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep."""

    variant: str
    label: str
    seed: int
    scenario: Scenario

    def pack(self) -> tuple[str, str, int, Tables]:
        """Return plain data from which `unpack` makes the run in another process; a pickled scenario is 30 times larger."""
        return self.variant, self.label, self.seed, self.scenario.model_dump(exclude_none=True, by_alias=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return unpack, self.pack()

    @property
    def path(self) -> str:
        """Folder of the run below that of the sweep."""
        return f"{self.variant}/seed-{self.seed}"


def unpack(variant: str, label: str, seed: int, tables: Tables) -> PlannedRun:
    """Return the run from the data of `PlannedRun.pack`."""
    return PlannedRun(variant, label, seed, parse(tables))


@dataclass(frozen=True)
class Plan:
    """All runs of a sweep, checked before any of them begins."""

    name: str
    runs: list[PlannedRun]
    baseline: str
    target_accuracy: float | None
    smoothing_s: float = 0.0
    until: Until | None = None
    """Rule by which seeds are added, or None. Its `against` names a variant."""
    cautions: dict[Caution, list[str]] = field(default_factory=dict)
    """Warnings known before any run begins, each with the names of its variants."""

    @property
    def variants(self) -> list[str]:
        """The names of all variants, in order."""
        return list(dict.fromkeys(run.variant for run in self.runs))

    @property
    def warned(self) -> dict[Caution, str]:
        """Warnings known before any run begins, each with the names of its variants as text; "" stands for all."""
        count = len(self.variants)
        texts = {}
        for caution, names in self.cautions.items():
            texts[caution] = "" if len(names) == count else ", ".join(names)
        return texts

    @property
    def most_runs(self) -> int:
        """Largest number of runs, including those of seeds that may be added."""
        return len(self.runs) if self.until is None else len(self.variants) * self.until.at_most

    @property
    def first_runs(self) -> list[PlannedRun]:
        """The first run of every variant."""
        first: dict[str, PlannedRun] = {}
        for run in self.runs:
            first.setdefault(run.variant, run)
        return list(first.values())

    def modules(self, *more: str) -> list[str]:
        """Return `more`, and the modules that runs need and that take long to import: workers import them as they start."""
        # Planning built the laws of the runs, so what they import is in `sys.modules`. Learners are built by the workers only.
        modules = list(more)
        if "scipy.special" in sys.modules:
            modules.append("scipy.special")
        if any(run.scenario.learner is not None for run in self.runs):
            modules.append("models.fl.build")
        return modules


def plan_more_seeds(planned: Plan, runs: list[PlannedRun], count: int) -> list[PlannedRun]:
    """Return the runs of `count` more seeds of every variant: the whole numbers after the largest seed of `runs`."""
    first_seed = max(run.seed for run in runs) + 1
    seeds = range(first_seed, first_seed + count)
    return [
        PlannedRun(run.variant, run.label, seed, run.scenario.model_copy(update={"seed": seed}))
        for run in planned.first_runs
        for seed in seeds
    ]


def plan(tables: Mapping[str, object], source: str, *, strict: bool = False) -> Plan:
    """Return the plan of a scenario's `[sweep]`, with every variant checked; raises UserError for a wrong key of any variant.

    `source`: name of the scenario in messages. `strict`: True to refuse any warning. Then every run is built, not only every
    variant, because what is drawn from a seed may cause warnings, too.
    """
    base = parse(tables, source)
    variants = expand_variants(base, source)
    section = base.sweep
    baseline = section.baseline or next(iter(variants))
    seeds = section.seeds or [base.seed]
    if len(set(seeds)) < len(seeds):
        raise UserError(f"{source}: sweep.seeds = {seeds}: names a seed twice; give each once")
    study_tables = {key: value for key, value in tables.items() if key != "sweep"}
    runs = []
    cautions: dict[Caution, list[str]] = {}
    for name, (label, changes) in variants.items():
        place = f"{source} (variant {name})" if len(variants) > 1 else source
        with name_source(place):
            variant_tables = override(study_tables, changes)
        scenario = parse(variant_tables, place)
        with name_source(place):
            for caution in build(scenario, learner=False, strict=strict).cautions:
                cautions.setdefault(caution, []).append(name)
        for seed in seeds:
            run = PlannedRun(variant=name, label=label, seed=seed, scenario=scenario.model_copy(update={"seed": seed}))
            runs.append(run)
            if strict:
                with name_source(f"{place}, seed {seed}"):
                    build(run.scenario, learner=False, strict=True)
    # After the checks of variants, because an unknown key also changes a variant's name.
    if baseline not in variants:
        raise UserError(f"{source}: sweep.baseline = {baseline!r}: no such variant; {did_you_mean(baseline, variants)}")
    until = _resolve_until(section, list(variants), baseline, seeds, source)
    return Plan(
        name=base.name,
        runs=runs,
        baseline=baseline,
        target_accuracy=section.target_accuracy,
        smoothing_s=section.smoothing_s,
        until=until,
        cautions=cautions,
    )


def _resolve_until(section: Sweep, variants: list[str], baseline: str, seeds: list[int], source: str) -> Until | None:
    """Return the rule by which seeds are added, with the name of the reference variant filled in; None if seeds are fixed.

    Raises UserError for an unknown metric or variant, and if there is nothing to compare.
    """
    until = section.until
    if until is None:
        return None
    from analysis.metrics.registry import metric

    place = f"{source}: sweep.until"
    try:
        cost = metric(until.metric).cost
    except ValueError as error:
        raise UserError(f"{place}.{error}") from error
    if cost is not None and section.target_accuracy is None:
        raise UserError(f"{place}.metric = {until.metric!r}: is the cost of a target; set sweep.target_accuracy")
    against = until.against or baseline
    if against not in variants:
        raise UserError(f"{place}.against = {against!r}: no such variant; {did_you_mean(against, variants)}")
    if len(variants) < 2:
        raise UserError(f"{place}: compares variants, and there is one; add others in sweep.variants or sweep.grid")
    if until.at_most < len(seeds):
        raise UserError(f"{place}.at_most = {until.at_most}: must be at least the {len(seeds)} seeds of sweep.seeds")
    if max(seeds) + until.at_most - len(seeds) > LARGEST:
        message = f"{source}: sweep.seeds: {max(seeds)} leaves no room for the seeds that sweep.until adds"
        raise UserError(f"{message}; give smaller ones")
    return until.model_copy(update={"against": against})


class Variant(NamedTuple):
    """Variant of a sweep, apart from its name."""

    label: str
    changes: Tables
    """Changed keys of the scenario, in an order in which none undoes another."""


class _GridValue(NamedTuple):
    """One value of a key of `sweep.grid`."""

    key: str
    value: Any
    word: str
    """Part of a variant's name that stands for the value, such as "deadline_s=30"."""


def expand_variants(base: Scenario, source: str) -> dict[str, Variant]:
    """Return the variants of a scenario's sweep by name: each of `sweep.variants` at each point of `sweep.grid`.

    A sweep without variants and without a grid has one variant, the scenario itself. `source`: name of the scenario in messages.
    Raises UserError for too many variants, a name or a label that two have, a name that no folder can have, and a key that a
    variant may not set.
    """
    section = base.sweep
    # Without `sweep.variants`, the variants are the points of the grid: one variant without name and changes stands for them.
    listed = [(variant.name, variant.label or variant.name, dict(variant.set)) for variant in section.variants]
    if not listed:
        listed = [("", "", {})]
    number = math.prod([len(listed), *map(len, section.grid.values())])
    if number > MOST_VARIANTS:
        raise UserError(f"{source}: sweep.grid: makes {number:,} variants; at most {MOST_VARIANTS:,} are allowed")
    variants: dict[str, Variant] = {}
    names_by_label: dict[str, str] = {}
    for (name, label, own_changes), point in itertools.product(listed, _grid_points(section.grid)):
        words = [value.word for value in point]
        # Without variants and grid the method names the only variant.
        full_name = "+".join([name, *words] if name else words) or _name_part(base.method.kind, 0)
        full_label = ", ".join([label, *words] if label else words) or base.method.kind
        if full_name in variants:
            raise UserError(f"{source}: sweep: two variants are named {full_name!r}; give each its own name, each value once")
        _check_name(full_name, source)
        if full_label in names_by_label:
            both = f"{names_by_label[full_label]} and {full_name}"
            raise UserError(f"{source}: sweep.variants: {both} have the same label {full_label!r}; tell them apart")
        # Keys that a value of the grid would replace: it sets the key itself, or a table that holds it.
        overridden = [key for key in own_changes if any(f"{key}.".startswith(f"{value.key}.") for value in point)]
        if overridden:
            reason = "which sweep.grid varies as well; leave it out of one of them, or choose variants without it (--variants)"
            raise UserError(f"{source}: sweep.variants: {name!r} sets {overridden[0]}, {reason}")
        changes = _sort_changes(own_changes | {value.key: value.value for value in point})
        shared = [key for key in changes if key.split(".")[0] in ("seed", "sweep")]
        if shared:
            raise UserError(f"{source}: sweep: variant {full_name!r} sets {shared[0]}, which all share; set it outside of it")
        variants[full_name] = Variant(full_label, changes)
        names_by_label[full_label] = full_name
    return variants


def _grid_points(grid: Mapping[str, list[Any]]) -> list[tuple[_GridValue, ...]]:
    """Return the points of a grid: all combinations of one value for each key, the values of the last key varying fastest."""
    short_names = _short_names(list(grid))
    axes = []
    for key, values in grid.items():
        words = [f"{short_names[key]}={_name_part(value, position)}" for position, value in enumerate(values)]
        axes.append([_GridValue(key, value, word) for value, word in zip(values, words, strict=True)])
    return list(itertools.product(*axes))


def _check_name(name: str, source: str) -> None:
    """Raise UserError for a variant's name that cannot be that of its folder."""
    if len(quote(name, safe="")) > LONGEST_NAME:
        reason = "is too long for the name of a folder; vary fewer keys in sweep.grid, or name variants in sweep.variants"
        raise UserError(f"{source}: sweep: a variant of {len(name)} letters, {name[:60]}.., {reason}")
    if name in _RESERVED_NAMES:
        raise UserError(f"{source}: sweep.variants: {name!r} is taken by a file of the sweep; rename the variant")


def _sort_changes(changes: Tables) -> Tables:
    """Return the changes of a variant, sorted so that none undoes another.

    Setting `x.kind` or a whole table x drops the other keys of x. So a table comes before the keys within it, and `x.kind` before
    other keys of x. Otherwise keys are sorted by depth, and stay in their order.
    """
    ordered: list[str] = []
    for key in sorted(changes, key=lambda key: key.count(".")):
        table, _, name = key.rpartition(".")
        # Insert `x.kind` before the first of the last keys of x, but after a table that contains it.
        position = len(ordered)
        if name == "kind" and table:
            for i in reversed(range(len(ordered))):
                if key.startswith(f"{ordered[i]}."):
                    break  # a table that contains the key
                if ordered[i].startswith(f"{table}."):
                    position = i
        ordered.insert(position, key)
    return {key: changes[key] for key in ordered}


def _short_names(keys: list[str]) -> dict[str, str]:
    """Return each key with its short name: its last word if that is unique among `keys`, otherwise the whole key."""
    last_words = [key.rsplit(".", 1)[-1] for key in keys]
    return {key: word if last_words.count(word) == 1 else key for key, word in zip(keys, last_words, strict=True)}


def _name_part(value: object, position: int) -> str:
    """Return the part of a variant's name that stands for a value of a grid.

    A short value is its own name; a table, a list or a long value is named by its `position` in the grid's list, as "no1".
    """
    text = NO_VALUE if value is None else str(replace_classes(value))
    if callable(value):
        text = text.rpartition(":")[2]  # a class without its module
    name = re.sub(r"[^A-Za-z0-9.-]", "_", text)
    if isinstance(value, dict | list) or len(name) > 40:
        return f"no{position + 1}"
    return name


def plan_grid(
    tables: Mapping[str, object],
    source: str,
    *,
    grid: Mapping[str, list[Any]],
    seeds: list[int] | None,
    variants: Collection[str] | None,
    strict: bool,
) -> Plan:
    """Return the plan of a scenario with more keys in its grid, other seeds (None: its own) and some variants (None: all).

    See `plan` for `source` and `strict`.
    """
    return plan(choose_variants(add_grid(tables, grid, seeds), variants, source), source, strict=strict)


def add_grid(tables: Mapping[str, object], grid: Mapping[str, list[Any]], seeds: list[int] | None) -> Tables:
    """Return a scenario's tables with more keys in the sweep's grid, and other seeds (None: its own)."""
    changes: Tables = {}
    if grid:
        section = tables.get("sweep", {})
        own_grid = section.get("grid", {}) if isinstance(section, dict) else {}
        changes["sweep.grid"] = {**own_grid, **grid} if isinstance(own_grid, dict) else grid  # wrong types are refused later
    if seeds is not None:
        changes["sweep.seeds"] = seeds
    return override(tables, changes)


def choose_variants(tables: Mapping[str, Any], names: Collection[str] | None, source: str) -> Tables:
    """Return a scenario's tables with only the `[[sweep.variants]]` of these names, in the order of the file; None: all.

    If the baseline is not among them, the first of them becomes the baseline. Raises UserError for an unknown name.
    """
    if names is None:
        return dict(tables)
    choices = [variant.name for variant in parse(tables, source).sweep.variants]
    if not choices:
        raise UserError(f"variants {', '.join(names)}: {source} has no sweep.variants to choose from; leave them out")
    if not names:
        raise UserError(f"variants: names none; name some of sweep.variants of {source} ({', '.join(choices)}), or leave it out")
    for name in names:
        if name not in choices:
            raise UserError(f"variants: {name!r} is none of sweep.variants of {source}; {did_you_mean(name, choices)}")
    section = dict(tables["sweep"])
    section["variants"] = [variant for variant in section["variants"] if variant["name"] in names]
    result = override(tables, {"sweep": section})
    if section.get("baseline") not in expand_variants(parse(result, source), source):
        result["sweep"].pop("baseline", None)
    return result

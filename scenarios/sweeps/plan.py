"""Plan of a sweep's runs: variants and grids of keys, all with the same seeds, so that differences are paired."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from scenarios.registry.in_process import name_in_text
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
class Planned:
    """One run of a sweep."""

    variant: str
    label: str
    seed: int
    scenario: Scenario

    def pack(self) -> tuple[str, str, int, Tables]:
        """Return plain data from which `unpack` makes the run in another process. It is 30 times smaller than a pickled run."""
        return self.variant, self.label, self.seed, self.scenario.model_dump(exclude_none=True, by_alias=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return unpack, self.pack()

    @property
    def path(self) -> str:
        """Folder of the run below that of the sweep."""
        return f"{self.variant}/seed-{self.seed}"


def unpack(variant: str, label: str, seed: int, tables: Tables) -> Planned:
    """Return the run from the data of `Planned.pack`."""
    return Planned(variant, label, seed, parse(tables))


@dataclass(frozen=True)
class Plan:
    """All runs of a sweep, checked before any of them begins."""

    name: str
    runs: list[Planned]
    baseline: str
    target_accuracy: float | None
    smoothing_s: float = 0.0
    until: Until | None = None
    """Rule by which seeds are added, or None. Its `against` names a variant."""
    cautions: dict[Caution, list[str]] = field(default_factory=dict)
    """Warnings before any run begins, with the variants that each is about."""

    @property
    def variants(self) -> list[str]:
        """The names of all variants, in order."""
        return list(dict.fromkeys(run.variant for run in self.runs))

    @property
    def warned(self) -> dict[Caution, str]:
        """Warnings known before any run, each with the names of its variants ("": all)."""
        count = len(self.variants)
        return {caution: "" if len(about) == count else ", ".join(about) for caution, about in self.cautions.items()}

    @property
    def most_runs(self) -> int:
        """Largest number of runs, with the seeds that may be added."""
        return len(self.runs) if self.until is None else len(self.variants) * self.until.at_most

    @property
    def one_each(self) -> list[Planned]:
        """The first run of every variant."""
        return list({run.variant: run for run in reversed(self.runs)}.values())[::-1]

    def modules(self, *more: str) -> list[str]:
        """Return the modules that a worker imports for some of these runs, and `more`."""
        # Planning has built the laws of the runs, so their imports are in `sys.modules`. Workers build the learners.
        special = [name for name in ("scipy.special",) if name in sys.modules]
        return [*more, *special, *(["models.fl.build"] if any(run.scenario.learner is not None for run in self.runs) else [])]


def further(planned: Plan, runs: list[Planned], add: int) -> list[Planned]:
    """Return the runs of `add` more seeds of every variant: the whole numbers after the seeds of `runs`."""
    first = max(run.seed for run in runs) + 1
    seeds = range(first, first + add)
    return [
        Planned(run.variant, run.label, seed, run.scenario.model_copy(update={"seed": seed}))
        for run in planned.one_each
        for seed in seeds
    ]


def plan(tables: Mapping[str, object], source: str, *, strict: bool = False) -> Plan:
    """Return the plan of the `[sweep]` table; raises UserError for a wrong key of any variant.

    `strict`: True to refuse any warning of any run, because the draws of a seed may cause warnings, too.
    """
    base = parse(tables, source)
    named = variants_of(base, source)
    section = base.sweep
    baseline = section.baseline or next(iter(named))
    seeds = section.seeds or [base.seed]
    if len(set(seeds)) < len(seeds):
        raise UserError(f"{source}: sweep.seeds = {seeds}: names a seed twice; give each once")
    without = {key: value for key, value in tables.items() if key != "sweep"}
    runs = []
    cautions: dict[Caution, list[str]] = {}
    for name, (label, changes) in named.items():
        place = f"{source} (variant {name})" if len(named) > 1 else source
        with name_source(place):
            changed_tables = override(without, changes)
        changed = parse(changed_tables, place)
        with name_source(place):
            for caution in build(changed, learner=False, strict=strict).cautions:
                cautions.setdefault(caution, []).append(name)
        planned = [Planned(name, label, seed, changed.model_copy(update={"seed": seed})) for seed in seeds]
        for run in planned if strict else ():
            with name_source(f"{place}, seed {run.seed}"):
                build(run.scenario, learner=False, strict=True)
        runs += planned
    # After the checks of variants, because an unknown key also changes a variant's name.
    if baseline not in named:
        raise UserError(f"{source}: sweep.baseline = {baseline!r}: no such variant; {did_you_mean(baseline, named)}")
    until = _checked_until(section, list(named), baseline, seeds, source)
    return Plan(base.name, runs, baseline, section.target_accuracy, section.smoothing_s, until, cautions)


def _checked_until(section: Sweep, variants: list[str], baseline: str, seeds: list[int], source: str) -> Until | None:
    """Return the rule by which seeds are added; raises UserError for an unknown metric or variant, or nothing to compare."""
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


def variants_of(base: Scenario, source: str) -> dict[str, tuple[str, Tables]]:
    """Return the label and the changed keys of each variant, by its name; raises UserError."""
    section = base.sweep
    variants = [(v.name, v.label or v.name, dict(v.set)) for v in section.variants] or [("", "", {})]
    short = _short_names(list(section.grid))
    values = [[(key, value, _name_part(value, i)) for i, value in enumerate(values)] for key, values in section.grid.items()]
    number = math.prod([len(variants), *map(len, section.grid.values())])
    if number > MOST_VARIANTS:
        raise UserError(f"{source}: sweep.grid: makes {number:,} variants; at most {MOST_VARIANTS:,} are allowed")
    named: dict[str, tuple[str, Tables]] = {}
    labels: dict[str, str] = {}
    for (name, label, changes), setting in itertools.product(variants, itertools.product(*values)):
        suffix = [f"{short[key]}={part}" for key, _, part in setting]
        full_name = "+".join([*([name] if name else []), *suffix]) or _name_part(base.method.kind, 0)
        full_label = ", ".join([*([label] if label else []), *suffix]) or base.method.kind
        if full_name in named:
            raise UserError(f"{source}: sweep: two variants are named {full_name!r}; give each its own name, each value once")
        if len(quote(full_name, safe="")) > LONGEST_NAME:
            reason = "is too long for the name of a folder; vary fewer keys in sweep.grid, or name variants in sweep.variants"
            raise UserError(f"{source}: sweep: a variant of {len(full_name)} letters, {full_name[:60]}.., {reason}")
        if full_name in _RESERVED_NAMES:
            raise UserError(f"{source}: sweep.variants: {full_name!r} is taken by a file of the sweep; rename the variant")
        if full_label in labels:
            both = f"{labels[full_label]} and {full_name}"
            raise UserError(f"{source}: sweep.variants: {both} have the same label {full_label!r}; tell them apart")
        overridden = [key for key in changes if any(f"{key}.".startswith(f"{varied}.") for varied, _, _ in setting)]
        if overridden:
            reason = "which sweep.grid varies as well; leave it out of one of them, or choose variants without it (--variants)"
            raise UserError(f"{source}: sweep.variants: {name!r} sets {overridden[0]}, {reason}")
        changes = _sort_changes(changes | {key: value for key, value, _ in setting})
        shared = [key for key in changes if key.split(".")[0] in ("seed", "sweep")]
        if shared:
            raise UserError(f"{source}: sweep: variant {full_name!r} sets {shared[0]}, which all share; set it outside of it")
        named[full_name] = (full_label, changes)
        labels[full_label] = full_name
    return named


def _sort_changes(changes: Tables) -> Tables:
    """Return the changes of a variant, sorted so that none undoes another.

    Setting `x.kind` or a whole table drops the other keys of x. So a table comes before keys within it, and `x.kind` before other
    keys of x; otherwise the order stays.
    """
    ordered: list[str] = []
    for key in sorted(changes, key=lambda key: key.count(".")):
        above, _, last = key.rpartition(".")
        position = len(ordered)
        for i in reversed(range(len(ordered) if last == "kind" and above else 0)):
            if key.startswith(f"{ordered[i]}."):
                break  # a table that contains the key
            position = i if ordered[i].startswith(f"{above}.") else position
        ordered.insert(position, key)
    return {key: changes[key] for key in ordered}


def _short_names(keys: list[str]) -> dict[str, str]:
    """Return each key as its last word if that is unique among `keys`, otherwise in full."""
    last = [key.rsplit(".", 1)[-1] for key in keys]
    return {key: name if last.count(name) == 1 else key for key, name in zip(keys, last, strict=True)}


def _name_part(value: object, position: int) -> str:
    """Return a value for a folder's name: a short word as it is, any other value by its position in the list."""
    text = NO_VALUE if value is None else str(name_in_text(value))
    name = text.rpartition(":")[2] if callable(value) else text
    text = "".join(c if (c.isascii() and c.isalnum()) or c in ".-" else "_" for c in name)
    return text if not isinstance(value, dict | list) and len(text) <= 40 else f"no{position + 1}"


def plan_grid(
    tables: Mapping[str, object],
    source: str,
    *,
    grid: Mapping[str, list[Any]],
    seeds: list[int] | None,
    variants: Collection[str] | None,
    strict: bool,
) -> Plan:
    """Return the plan of a scenario with more keys in its grid, other seeds (None: its own) and some variants (None: all)."""
    return plan(choose_variants(add_grid(tables, grid, seeds), variants, source), source, strict=strict)


def add_grid(tables: Mapping[str, object], grid: Mapping[str, list[Any]], seeds: list[int] | None) -> Tables:
    """Return a scenario's tables with more keys in the sweep's grid, and other seeds."""
    changes: Tables = {}
    if grid:
        table = tables.get("sweep", {})
        before = table.get("grid", {}) if isinstance(table, dict) else {}
        changes["sweep.grid"] = {**before, **grid} if isinstance(before, dict) else grid
    if seeds is not None:
        changes["sweep.seeds"] = seeds
    return override(tables, changes)


def choose_variants(tables: Mapping[str, Any], names: Collection[str] | None, source: str) -> Tables:
    """Return a scenario's tables with only these `[[sweep.variants]]`, in the order of the file; None: all.

    If the baseline is not among them, the first one becomes it. Raises UserError for an unknown name.
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
    if section.get("baseline") not in variants_of(parse(result, source), source):
        result["sweep"].pop("baseline", None)
    return result

"""Sequential stopping: seeds are added until the differences of a sweep's variants are known well enough.

The number of added seeds depends only on the results of the seeds so far, in the order of the seeds. It does not depend on the
workers or on the order in which runs ended. A sweep that is interrupted, or begun again, therefore stops at the same seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from netsim.core.protocols import Notes
from scenarios.schema.errors import UserError
from scenarios.sweeps.plan import Plan, PlannedRun

_MOST_AT_ONCE = 2
"""Largest factor by which the number of seeds grows at a time: few seeds predict badly how many are needed."""
_LEAST_PART = 8
"""At least an eighth of the present seeds is added at a time, so that all workers have something to do."""


def differences(planned: Plan, runs: Sequence[PlannedRun], folders: Mapping[str, Path]) -> list[Notes]:
    """Return the difference of each other variant to the reference variant, as entries of `sweep.json`.

    `runs`: runs planned so far, in the order of seeds within a variant. `folders`: folders of complete runs, by the run's path.
    """
    from analysis.metrics.facts import Settings
    from analysis.metrics.registry import metric
    from analysis.metrics.run_metrics import paired_difference
    from analysis.results.run import Run
    from analysis.statistics.sequential import always_valid_interval

    rule = planned.until
    assert rule is not None
    settings = Settings(target_accuracy=planned.target_accuracy, smoothing_s=planned.smoothing_s)
    # Folders of complete runs, by variant and by seed in order.
    complete: dict[str | None, dict[int, Path]] = {}
    for run in runs:
        of_variant = complete.setdefault(run.variant, {})
        if run.path in folders:
            of_variant[run.seed] = folders[run.path]
    references = complete[rule.against]
    entries = []
    for variant, label in {run.variant: run.label for run in runs if run.variant != rule.against}.items():
        values = []
        for seed, folder in complete[variant].items():
            if seed in references:
                values.append(paired_difference(Run(folder), Run(references[seed]), rule.metric, settings))
        interval = always_valid_interval(values, rule.confidence)
        # For the cost of a target, a difference is 0 if neither run reached the target. Only such zeros predict nothing.
        known = math.isfinite(interval.half_width) and (metric(rule.metric).cost is None or any(values))
        entries.append(
            {
                "variant": variant,
                "label": label,
                "difference": interval.mean if interval.count else None,
                "half_width": interval.half_width if known else None,
                "count": interval.count,
            }
        )
    return entries


def seeds_to_add(planned: Plan, seeds: int, entries: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of seeds to add to the present number `seeds`; 0 if they are enough, or the most allowed.

    `entries`: result of `differences`. Raises UserError if no run measures the metric.
    """
    rule = planned.until
    assert rule is not None
    if all(entry["count"] == 0 for entry in entries):
        raise UserError(f"sweep.until.metric = {rule.metric!r}: no run measures it; name another, or let the scenario measure it")
    widths = [math.inf if entry["half_width"] is None else float(entry["half_width"]) for entry in entries]
    widest = max(widths)
    if widest <= rule.half_width or seeds >= rule.at_most:
        return 0
    # A half-width falls about as one over the square root of the number of seeds.
    ratio = min(widest / rule.half_width, 1e6)
    needed = math.ceil(seeds * ratio**2) - seeds if math.isfinite(widest) else seeds
    least, most = math.ceil(seeds / _LEAST_PART), (_MOST_AT_ONCE - 1) * seeds
    return min(max(needed, least), most, rule.at_most - seeds)


def stopping_entry(planned: Plan, seeds: int, entries: Sequence[Mapping[str, Any]]) -> Notes:
    """Return the entry `until` of `sweep.json`: the rule, the number of seeds, and the differences `entries`."""
    rule = planned.until
    assert rule is not None
    reached = all(entry["half_width"] is not None and entry["half_width"] <= rule.half_width for entry in entries)
    return rule.model_dump() | {"seeds": seeds, "reached": reached, "differences": list(entries)}


def describe(until: Mapping[str, Any]) -> list[str]:
    """Return the entry `until` of `sweep.json` as lines of text: the result, a line for each variant, and the confidence."""
    result = "seeds are enough" if until["reached"] else "seeds, the most allowed, are not enough"
    lines = [f"{until['seeds']} {result} for {until['metric']} to +- {until['half_width']:g} against {until['against']}:"]
    for entry in until["differences"]:
        width = "no interval yet" if entry["half_width"] is None else f"+- {entry['half_width']:.4g}"
        value = "no value" if entry["difference"] is None else f"{entry['difference']:.6g} {width}"
        lines.append(f"  {entry['label']}: {value} ({entry['count']} pairs)")
    scope = "at every number of seeds together; all other intervals are for a number of seeds that was fixed before"
    return [*lines, f"  (confidence {until['confidence']:g} each, {scope})"]

"""Sequential stopping: seeds are added until the differences of a sweep's variants are known well enough.

What is added depends on what the seeds so far have shown, in the order of the seeds, and on nothing else: neither on who
simulated them nor on which came first. A sweep that is interrupted, or begun again, therefore stops at the same seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from netsim.core.protocols import Notes
from scenarios.schema.errors import UserError
from scenarios.sweeps.plan import Plan, Planned

_MOST_AT_ONCE = 2
"""Largest factor of the number of seeds between two looks: few seeds predict badly how many are needed."""
_FEWEST_AT_ONCE = 8
"""At least an eighth is added, so that all workers have something to do."""


def differences(planned: Plan, runs: Sequence[Planned], places: Mapping[str, Path]) -> list[Notes]:
    """Return the differences of all variants to the reference variant, one entry each, in the form of `sweep.json`.

    `runs`: runs planned so far, in the order of seeds within a variant. `places`: folders of complete runs, by path.
    """
    from analysis.metrics.facts import Settings
    from analysis.metrics.registry import metric
    from analysis.metrics.run_metrics import paired_difference
    from analysis.results.run import Run
    from analysis.statistics.sequential import always_valid_interval

    rule = planned.until
    assert rule is not None
    settings = Settings(target_accuracy=planned.target_accuracy, smoothing_s=planned.smoothing_s)
    at: dict[tuple[str | None, int], Path] = {(p.variant, p.seed): places[p.path] for p in runs if p.path in places}
    result = []
    for variant, label in {p.variant: p.label for p in runs if p.variant != rule.against}.items():
        seeds = [p.seed for p in runs if p.variant == variant and {(variant, p.seed), (rule.against, p.seed)} <= at.keys()]
        pairs = [(Run(at[variant, seed]), Run(at[rule.against, seed])) for seed in seeds]
        values = [paired_difference(mine, theirs, rule.metric, settings) for mine, theirs in pairs]
        interval = always_valid_interval(values, rule.confidence)
        # If neither variant reached the target in any pair, differences of 0 do not predict the next one.
        known = math.isfinite(interval.half_width) and (metric(rule.metric).cost is None or any(values))
        result.append(
            {
                "variant": variant,
                "label": label,
                "difference": interval.mean if interval.count else None,
                "half_width": interval.half_width if known else None,
                "count": interval.count,
            }
        )
    return result


def seeds_to_add(planned: Plan, seeds: int, found: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of seeds to add to `seeds`, given the differences `found`; 0: enough, or as many as allowed.

    Raises UserError where the metric exists at no seed.
    """
    rule = planned.until
    assert rule is not None
    if all(entry["count"] == 0 for entry in found):
        raise UserError(f"sweep.until.metric = {rule.metric!r}: no run measures it; name another, or let the scenario measure it")
    widths = [math.inf if entry["half_width"] is None else float(entry["half_width"]) for entry in found]
    widest = max(widths)
    if widest <= rule.half_width or seeds >= rule.at_most:
        return 0
    # A half-width falls with the square root of their number, about.
    ratio = min(widest / rule.half_width, 1e6)
    wanted = math.ceil(seeds * ratio**2) - seeds if math.isfinite(widest) else seeds
    add = min(max(wanted, math.ceil(seeds / _FEWEST_AT_ONCE)), (_MOST_AT_ONCE - 1) * seeds)
    return min(add, rule.at_most - seeds)


def note(planned: Plan, seeds: int, found: Sequence[Mapping[str, Any]]) -> Notes:
    """Return the entry of `sweep.json`."""
    rule = planned.until
    assert rule is not None
    reached = all(entry["half_width"] is not None and entry["half_width"] <= rule.half_width for entry in found)
    return rule.model_dump() | {"seeds": seeds, "reached": reached, "differences": list(found)}


def describe(noted: Mapping[str, Any]) -> list[str]:
    """Return the differences as text, one line each."""
    how = "seeds are enough" if noted["reached"] else "seeds, the most allowed, are not enough"
    lines = [f"{noted['seeds']} {how} for {noted['metric']} to +- {noted['half_width']:g} against {noted['against']}:"]
    for entry in noted["differences"]:
        width = "no interval yet" if entry["half_width"] is None else f"+- {entry['half_width']:.4g}"
        value = "no value" if entry["difference"] is None else f"{entry['difference']:.6g} {width}"
        lines.append(f"  {entry['label']}: {value} ({entry['count']} pairs)")
    scope = "at every number of seeds together; all other intervals are for a number of seeds that was fixed before"
    return [*lines, f"  (confidence {noted['confidence']:g} each, {scope})"]

"""Runs grouped by the label of their variant, as tables and figures of several variants take them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from analysis.results.run import Run
from analysis.results.sweep import Sweep

Groups = Mapping[str, Sequence[Run]]
"""Label of a variant to its runs, one a seed."""


def select_runs(groups: Groups, condition: Callable[[Run], bool]) -> dict[str, list[Run]]:
    """Return the runs of each variant that meet `condition`, without the variants of which no run does."""
    selected = {label: [run for run in runs if condition(run)] for label, runs in groups.items()}
    return {label: runs for label, runs in selected.items() if runs}


def group_runs(source: Sweep | Run | Sequence[Run]) -> dict[str, list[Run]]:
    """Return runs by label, in their order: those of a sweep by variant, others by policy.

    Runs outside a sweep are grouped by folder if two of them have the same policy and seed.
    """
    if isinstance(source, Sweep):
        labels = source.labels
        # Two variants may carry one label; their runs must not be averaged.
        unique = len(set(labels.values())) == len(labels)
        return {label if unique else variant: list(source.runs(variant)) for variant, label in labels.items()}
    runs = [source] if isinstance(source, Run) else list(source)
    distinct = len({(run.label, run.seed) for run in runs}) == len(runs)
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.label if distinct else run.source.place, []).append(run)
    return groups

"""What tables and figures of several variants take: the runs of each by its label, and bounds to draw beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from analysis.results import Run
from analysis.statistics import FloatArray
from analysis.sweeps import Sweep

Groups = Mapping[str, Sequence[Run]]
"""Label of a variant to its runs, one a seed."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound on the expected AoI regret."""

    label: str
    constants: str
    """What its constants are, for the note at the foot of the figure."""
    values: Callable[[FloatArray], FloatArray]
    """Rounds (n,) to the bound for a run of so many rounds; NaN where it says nothing."""


def group_runs(source: Sweep | Run | Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by label: those of a sweep by variant, others by policy, or by folder where one policy ran twice on the same seed."""
    if isinstance(source, Sweep):
        labels = source.labels
        # Two variants may carry one label; their runs must not be averaged.
        unique = len(set(labels.values())) == len(labels)
        return {label if unique else variant: source.runs(variant) for variant, label in labels.items()}
    runs = [source] if isinstance(source, Run) else list(source)
    distinct = len({(run.label, run.seed) for run in runs}) == len(runs)
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.label if distinct else run.source.place, []).append(run)
    return groups

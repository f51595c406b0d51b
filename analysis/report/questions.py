"""Questions to a report: what it compares, and which differences count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from analysis.consensus.measure import MARGIN
from analysis.metrics.comparison import Equal
from analysis.metrics.differences import margins_of
from analysis.metrics.registry import metric


@dataclass(frozen=True, kw_only=True)
class Questions:
    """Questions to a report. ValueError: an unknown metric, or a malformed difference."""

    metrics: Sequence[str] = ()
    """Metrics that tables show; empty: those that the study is about."""
    equal: Equal = "time"
    """Point at which final accuracies are compared, as for `analysis.compare`."""
    against: Sequence[str] = ()
    """Keys against which metrics are shown; empty: all that vary by themselves."""
    within: Sequence[str] = ()
    """Keys within whose values variants are compared; empty: the two keys of a grid with several methods."""
    margin: float = MARGIN
    """Regret a slot that counts as none, of clients that decide among themselves."""
    equivalent: Sequence[str] = ()
    """"metric=difference": the difference of a metric that counts as none, in its own unit."""

    def __post_init__(self) -> None:
        for name in self.metrics:
            metric(name)
        margins_of(self.equivalent)

    @cached_property
    def margins(self) -> Mapping[str, float]:
        """Metric to the difference that counts as none."""
        return margins_of(self.equivalent)


USUAL = Questions()

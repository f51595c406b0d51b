"""What a report compares, and what it asks of the differences."""

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
    """ValueError: a metric that does not exist, or a difference that is none of a metric."""

    metrics: Sequence[str] = ()
    """Those that tables show; none: those that the study is about."""
    equal: Equal = "time"
    """Where final accuracies are compared, as of `comparison.compare`."""
    against: Sequence[str] = ()
    """The keys against which metrics are shown; none: all that vary by themselves."""
    within: Sequence[str] = ()
    """The keys within each value of which variants are compared; none: those of a grid of two with several methods."""
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

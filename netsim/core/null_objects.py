"""Null objects: what stands in for a component that a study does without."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netsim.core.protocols import (
        BoolArray,
        Content,
        Deliveries,
        Evaluation,
        FloatArray,
        IntArray,
        RoundOutcome,
        RoundView,
        State,
    )


class _Stateless:
    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        return None


class NoLearner(_Stateless):
    """Nothing is trained: updates have a size and no content."""

    aggregates = False
    records_losses = False

    def __init__(self) -> None:
        self.version = 0

    def aggregate(self, deliveries: Deliveries, want_updates: bool, want_losses: bool = False) -> Content | None:
        return None

    def evaluate(self, round: int, time_s: float, last: bool) -> Evaluation | None:
        return None

    def retain(self, versions: list[int]) -> None:
        """There are no versions."""

    def contribution(self) -> FloatArray | None:
        return None


class NoMeter(_Stateless):
    """No reward is measured."""

    def measure(self, outcome: RoundOutcome, view: RoundView, latency_s: Callable[[IntArray], FloatArray]) -> tuple[float, float]:
        return float("nan"), float("nan")


class NoOracle(_Stateless):
    """No oracle runs beside the scheduler."""

    def measure(self, round: int, good: BoolArray) -> float:
        return float("nan")

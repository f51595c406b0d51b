"""Null objects, which stand in for components that a study does without."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from netsim.core.errors import AnswerError
from netsim.core.state import StateFields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netsim.core.protocols import BoolArray, Content, DelayLaw, Deliveries, Evaluation, FloatArray, IntArray


class NoLearner(StateFields):
    """Learner of a study without training: updates have a size and no content."""

    aggregates = False
    round_columns: Sequence[str] = ()
    records_losses = False

    def __init__(self) -> None:
        self.version = 0

    def aggregate(self, deliveries: Deliveries, want_updates: bool, want_losses: bool = False) -> Content | None:
        """Return None: updates have no content."""

    def losses_of(self, clients: IntArray, round: int, samples: int | None) -> FloatArray:
        """Return NaN for each client: without a learner losses are unknown."""
        return np.full(len(clients), np.nan)

    def accuracies_of(self, clients: IntArray) -> FloatArray:
        """Return NaN for each client: there is no model."""
        return np.full(len(clients), np.nan)

    def evaluate(self, round: int, time_s: float, last: bool) -> Evaluation | None:
        """Return None: there is no model."""

    def retain(self, versions: list[int]) -> None:
        """Do nothing: there are no versions."""

    def contribution(self) -> FloatArray | None:
        """Return None: no client contributes more than another."""


class NoWork:
    """Work law of unknown amounts: no samples and no steps are reported, and `compute.delay` is the whole time."""

    eager = False
    samples: IntArray | None = None
    drawn: IntArray | None = None
    a_pass: IntArray | None = None

    def plan_steps(self, round: int, clients: IntArray) -> IntArray | None:
        """Return None: steps are as planned."""

    def amounts(self, clients: IntArray, steps: IntArray | None = None) -> tuple[list[int | None], list[int | None]]:
        """Return (samples, steps) of each update, all None. Raises AnswerError if a policy asks for `steps`, because nothing says
        what a step is.
        """
        if steps is not None:
            raise AnswerError("policy", "select", steps, "nothing says what a local step is: give [learner] or [work]")
        nothing: list[int | None] = [None] * len(clients)
        return nothing, nothing

    def begin(
        self, round: int, version: int, clients: IntArray, steps: IntArray | None
    ) -> tuple[list[int | None], list[int | None]]:
        """Return `amounts`."""
        return self.amounts(clients, steps)


class NoTime:
    """A law of durations that are all zero, for ever."""

    constant = fixed = True

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray:
        """Return zeros (n,)."""
        return np.zeros(len(entities))

    def mean_s(self, entities: IntArray) -> FloatArray:
        """Return zeros (n,)."""
        return np.zeros(len(entities))

    def at(self, round: int, time_s: float) -> tuple[DelayLaw, float]:
        """Return this law, for ever."""
        return self, math.inf


class NoAccountant(StateFields):
    """Accountant of a study without privacy: nothing is released or spent."""

    spends = False

    def __init__(self) -> None:
        self.participations: IntArray = np.zeros(0, np.int64)
        self.exhausted: BoolArray = np.zeros(0, np.bool_)

    def charge(self, client: int) -> tuple[float, float]:
        """Return (NaN, NaN): no budget and no leak."""
        return float("nan"), float("nan")

    def charge_all(self, clients: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return NaN for the budget and the leak of each of `clients` (n,)."""
        nothing = np.full(len(clients), np.nan)
        return nothing, nothing

    def max_leak(self) -> float:
        """Return 0: nothing leaks."""
        return 0.0


class NoOracle(StateFields):
    """Meter of a study without an oracle beside the scheduler."""

    def measure(self, round: int, good: BoolArray) -> float:
        """Return NaN: there is no oracle."""
        return float("nan")

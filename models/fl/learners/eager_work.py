"""Work law of an eager trainer: the amount of work of an update is known only by training, and so it trains at its begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
Amounts = tuple[Sequence[int | None], Sequence[int | None]]
"""(samples (n,), steps (n,)) of updates; None for an unknown number."""


class PlannedWork(Protocol):
    """Planned amount of each client's update: what `netsim.core.protocols.WorkLaw` offers, which models may not import."""

    @property
    def samples(self) -> IntArray | None:
        """Planned samples (K,) of an update of each client; None if unknown."""
    @property
    def drawn(self) -> IntArray | None:
        """Planned steps (K,) of an update of each client; None if unknown."""
    @property
    def a_pass(self) -> IntArray | None:
        """Steps (K,) of a pass over the samples of each client; None if unknown."""
    def plan_steps(self, round: int, clients: IntArray) -> IntArray | None:
        """Return the steps (n,) requested if no policy decides; None: as planned."""
    def amounts(self, clients: IntArray, steps: IntArray | None = None) -> Amounts:
        """Return the samples and steps of updates of `clients` (n,)."""


class EagerLearner(Protocol):
    """Trains updates as they begin (`models.fl.learners.learner.FederatedLearner`)."""

    def begin(
        self, round: int, version: int, clients: IntArray, steps: IntArray | None
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Train updates of `clients` (n,) that begin in `round`; return (samples, steps) that each processed."""


class EagerWork:
    """Work law with the amounts of `planned` as expectations, and for each update the amounts that `learner` processed."""

    eager = True

    def __init__(self, *, planned: PlannedWork, learner: EagerLearner) -> None:
        self._planned, self._learner = planned, learner

    @property
    def samples(self) -> IntArray | None:
        """Planned samples (K,)."""
        return self._planned.samples

    @property
    def drawn(self) -> IntArray | None:
        """Planned steps (K,)."""
        return self._planned.drawn

    @property
    def a_pass(self) -> IntArray | None:
        """Planned steps (K,) of a pass."""
        return self._planned.a_pass

    def plan_steps(self, round: int, clients: IntArray) -> IntArray | None:
        """Return the steps (n,) that the plan requests; None: as planned."""
        return self._planned.plan_steps(round, clients)

    def amounts(self, clients: IntArray, steps: IntArray | None = None) -> Amounts:
        """Return the planned amounts."""
        return self._planned.amounts(clients, steps)

    def begin(self, round: int, version: int, clients: IntArray, steps: IntArray | None) -> tuple[Sequence[int], Sequence[int]]:
        """Train the updates now; return the numbers of samples and of steps that each processed."""
        return self._learner.begin(round, version, clients, steps)

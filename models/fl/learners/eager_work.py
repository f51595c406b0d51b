"""Work law of an eager trainer, whose amount of work is known only by training: it trains when an update begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
Amounts = tuple[Sequence[int | None], Sequence[int | None]]


class PlannedWork(Protocol):
    """Planned amount of each client's update (`netsim.core.protocols.WorkLaw`)."""

    @property
    def samples(self) -> IntArray | None: ...
    @property
    def drawn(self) -> IntArray | None: ...
    @property
    def a_pass(self) -> IntArray | None: ...
    def plan_steps(self, round: int, clients: IntArray) -> IntArray | None: ...
    def amounts(self, clients: IntArray, steps: IntArray | None = None) -> Amounts: ...


class EagerLearner(Protocol):
    """Trains updates as they begin (`models.fl.learners.learner.FederatedLearner`)."""

    def begin(
        self, round: int, version: int, clients: IntArray, steps: IntArray | None
    ) -> tuple[Sequence[int], Sequence[int]]: ...


class EagerWork:
    """Work law with the amounts of `planned` for expectations, and for each update the amounts that `learner` really processed.
    """

    eager = True

    def __init__(self, *, planned: PlannedWork, learner: EagerLearner) -> None:
        self._planned, self._learner = planned, learner

    @property
    def samples(self) -> IntArray | None:
        return self._planned.samples

    @property
    def drawn(self) -> IntArray | None:
        return self._planned.drawn

    @property
    def a_pass(self) -> IntArray | None:
        return self._planned.a_pass

    def plan_steps(self, round: int, clients: IntArray) -> IntArray | None:
        return self._planned.plan_steps(round, clients)

    def amounts(self, clients: IntArray, steps: IntArray | None = None) -> Amounts:
        return self._planned.amounts(clients, steps)

    def begin(self, round: int, version: int, clients: IntArray, steps: IntArray | None) -> tuple[Sequence[int], Sequence[int]]:
        return self._learner.begin(round, version, clients, steps)

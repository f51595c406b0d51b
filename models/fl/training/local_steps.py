"""Input of the training of several clients, beside the models from which they start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from models.fl.training.client_memory import OptimizerStates
from models.fl.training.losses import FirstPass, LossTally

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LocalSteps:
    """The steps of n clients. `LocalTrainer.train` explains the fields."""

    batches: Sequence[IntArray]
    moves: Sequence[IntArray] | None
    states: OptimizerStates | None
    tally: LossTally | None
    first: FirstPass | None
    shift: Tensor | None

    def select(self, rows: list[int]) -> LocalSteps:
        """Return the steps of the clients at `rows`, with copies of states and losses: these count once `keep` commits them."""
        states = None
        if self.states is not None:
            # Indexing by a list copies.
            states = OptimizerStates([moment[rows] for moment in self.states.moments], self.states.steps[rows])
        return LocalSteps(
            batches=[self.batches[row] for row in rows],
            moves=None if self.moves is None else [self.moves[row] for row in rows],
            states=states,
            tally=None if self.tally is None else self.tally.fresh(),
            first=None if self.first is None else self.first.fresh(rows),
            shift=None if self.shift is None else self.shift[rows],
        )

    @property
    def taken(self) -> IntArray:
        """Number of steps (n,) that each client's optimizer has taken before: 0 for all without states."""
        return np.zeros(len(self.batches), np.int64) if self.states is None else self.states.steps

    def keep(self, rows: list[int], trained: LocalSteps, moments: list[Tensor]) -> None:
        """Commit the training of the clients at `rows`: numbers of steps, moments of the optimizers, and losses.

        `trained`: their steps, as `select(rows)` returned them, with the losses of the training. `moments`: final moments of
        their optimizers, each (len(rows), parameters).
        """
        if self.states is not None:
            steps = np.array([len(batch) for batch in trained.batches], np.int64)
            self.states.keep(rows, moments, trained.taken + steps)
        if self.tally is not None and trained.tally is not None:
            self.tally.merge(trained.tally)
        if self.first is not None and trained.first is not None:
            self.first.merge(rows, trained.first)

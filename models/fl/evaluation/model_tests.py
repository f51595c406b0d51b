"""Tests of a model: its quality on the test set, and its losses and accuracies on the samples of clients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from models.fl.evaluation.probing import Probing
from models.fl.evaluation.quality import Evaluator, LocalTest, Quality, Randomness
from models.fl.learners.methods import Methods
from models.fl.learners.task import Task
from models.fl.learners.versions import Versions
from models.fl.options.names import TrainingOptions
from models.fl.store.memory import explain_out_of_memory
from models.fl.training.local_trainer import LocalTrainer
from models.fl.training.local_work import LocalWork
from netsim.core.state import State

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


class Unscored(NamedTuple):
    """Record of test samples without finite scores, because the model holds infinite numbers or its computation overflows."""

    of: int
    """Number of all test samples."""
    samples: int = 0
    """Test samples without scores, at the last evaluation."""
    since_round: int | None = None
    """First round since which every evaluation has found such samples; None if the last evaluation found none."""

    def plus(self, round: int, samples: int) -> Unscored:
        """Return the record after an evaluation at the close of `round` that found `samples` test samples without scores."""
        if not samples:
            return Unscored(self.of)
        since = round if self.since_round is None else self.since_round
        return Unscored(self.of, samples=samples, since_round=since)


class ModelTests:
    """Tests of the present model, the newest of `versions`, and of models that may replace it.

    `work` holds the training losses, and the statistics of batch normalisation if clients keep their own. `probing` computes
    losses on clients' samples.
    """

    __test__ = False  # no class of tests for pytest, in spite of its name

    def __init__(
        self,
        *,
        versions: Versions,
        work: LocalWork,
        probing: Probing,
        trainer: LocalTrainer,
        task: Task,
        streams: Randomness,
        options: TrainingOptions,
        methods: Methods,
    ) -> None:
        self._versions, self._work, self._probing, self._device = versions, work, probing, trainer.device
        self._evaluator = Evaluator(trainer=trainer, task=task, streams=streams, options=options, metrics=methods.metrics)
        self._best_loss = math.inf if options.keep == "best" else None
        """Lowest test loss so far, if only the best model is kept."""
        self.unscored = Unscored(of=len(task.dataset.test_y))
        """Test samples that the last evaluation could not score."""

    @property
    def _statistics(self) -> Mapping[int, Tensor] | None:
        """Clients' own statistics of batch normalisation, by client; None if all share those of the model."""
        return self._work.memory.statistics if self._work.local_statistics else None

    def better_model(self, new: Tensor, model: Tensor) -> Tensor:
        """Return the model that comes next: `new` (d,), or the present `model` if `new` is not the best so far.

        The present model stays only if the options keep the best model, and the test loss of `new` is not the lowest yet.
        """
        if self._best_loss is None:
            return new
        next_version = self._versions.newest + 1
        loss = self._evaluator.quality(next_version, new, batch_statistics=self._work.local_statistics).loss
        if loss < self._best_loss:
            self._best_loss = loss
            return new
        # The present model becomes the next version, under whose number the evaluator has now kept the quality of `new`.
        self._evaluator.forget()
        return model

    def take_due(self, round: int, time_s: float, last: bool) -> bool:
        """Return True if an evaluation is due now, which then counts as done.

        It is due in the first and the last round, and every `evaluate_every_rounds` rounds. With `evaluate_every_s` it is due
        instead in the first round that closes at or after each multiple of that time.
        """
        return self._evaluator.take_due(round, time_s, last)

    def quality(self, round: int) -> Quality:
        """Return the quality of the present model at the close of `round`, with the training losses since the last evaluation.

        The training losses are taken out of the tally, so that each is reported once. `unscored` is updated.
        """
        versions, work = self._versions, self._work
        with explain_out_of_memory(self._device, "testing the model"):
            quality = self._evaluator.quality(versions.newest, versions.model, batch_statistics=work.local_statistics)
        self.unscored = self.unscored.plus(round, quality.unscored)
        return quality if work.losses is None else replace(quality, training_loss=work.losses.take())

    def accuracy_of(self, model: Tensor) -> float:
        """Return the accuracy of any `model` (d,) on the test set, in [0, 1]."""
        with explain_out_of_memory(self._device, "testing the model"):
            return self._evaluator.accuracy(model, batch_statistics=self._work.local_statistics)

    def losses_of(self, clients: IntArray, round: int, samples: int | None, model: Tensor | None = None) -> FloatArray:
        """Return the mean loss (n,) of `model` (d,) on `samples` random training samples of each of `clients` (n,).

        `samples` None: on all samples of the client. `model` None: the present model.
        """
        tested = self._versions.model if model is None else model
        with explain_out_of_memory(self._device, "testing the model on clients' samples"):
            return self._probing.losses(tested, clients, round, samples, self._statistics)

    def opinions(self, local: LocalTest) -> FloatArray:
        """Return the accuracy (K,) of the present model on every client's local test set, in [0, 1].

        The sets are drawn once, from the test set: see `evaluation.draw_local_sets`.
        """
        versions = self._versions
        with explain_out_of_memory(self._device, "testing the model on clients' samples"):
            return self._evaluator.opinions(versions.newest, versions.model, local, self._statistics)

    def local_tests(self, local: LocalTest) -> IntArray:
        """Return the test samples (K, n), by number, in every client's local test set.

        Raises ValueError if none can be drawn for a client.
        """
        return self._evaluator.local_tests(local)

    def state_dict(self) -> State:
        return {"due_s": self._evaluator.due_s, "best_loss": self._best_loss, "unscored": list(self.unscored)}

    def load_state_dict(self, state: State) -> None:
        self._evaluator.resume(float(state["due_s"]))
        self._best_loss = state["best_loss"]
        self.unscored = Unscored(*state["unscored"])
        self._evaluator.forget()

"""Executors of local training: in this process, or on workers, which may also train ahead of need.

Both train the same stacks. A network that is trained client by client has stacks of one client. All others are stacked as
their results are needed, so that the sums of a stack do not depend on the number of workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.fl.training.bench import BenchRecipe
from models.fl.training.client_memory import OptimizerStates
from models.fl.training.jobs import Job
from models.fl.training.local_trainer import LocalTrainer
from models.fl.training.losses import FirstPass, LossTally
from models.fl.training.own_training import Address, OwnTraining, Result
from models.fl.training.stacks import OwnPart, Report, Stack, Vectors, split

IntArray = NDArray[np.int64]


class LossMeasures(NamedTuple):
    """Accumulators of losses during training: of all steps, and of each client's first pass; None: not measured."""

    losses: LossTally | None
    first: FirstPass | None


class TrainingRequest(NamedTuple):
    """Training requested of n clients, without their starting vectors."""

    jobs: list[Job]
    batches: list[IntArray]
    seeds: list[int]
    moves: list[IntArray] | None

    def stack(self, states: OptimizerStates | None, measured: LossMeasures) -> Stack:
        """Return the jobs as one stack. `states`: gives the steps taken so far; `measured`: says which losses are measured."""
        stack = Stack(
            clients=[job.client for job in self.jobs],
            rounds=[job.round for job in self.jobs],
            batches=self.batches,
            seeds=self.seeds,
            moves=self.moves,
            taken=None if states is None else states.steps.copy(),
            counts_losses=measured.losses is not None,
        )
        first = measured.first
        return stack if first is None else replace(stack, passes=first.steps, measure=first.measure)


class OwnTrainingRequest(NamedTuple):
    """Training requested of n clients by a user's trainer, without their starting vectors."""

    jobs: list[Job]
    shards: list[IntArray]
    batches: list[IntArray]
    addresses: list[Address]
    states: list[Any]


class Executor(Protocol):
    """An executor of local training."""

    ahead: bool
    """True if training may begin before its result is needed: see `promise`."""

    def train(
        self, asked: TrainingRequest, starts: Tensor, states: OptimizerStates | None, measured: LossMeasures, shift: Tensor | None
    ) -> Tensor:
        """Return the rows (n, d) after training from `starts` (n, d). `LocalTrainer.train` explains the other arguments."""

    def train_own(self, asked: OwnTrainingRequest, starts: Tensor) -> list[Result]:
        """Return the results of the user's own trainer from `starts` (n, d)."""

    def promise(self, asked: TrainingRequest, start: Tensor, states: OptimizerStates | None, measured: LossMeasures) -> None:
        """Begin training of one client from `start` (1, d); a later `train` of the same job uses the result."""

    def arrive(self, client: int, round: int) -> None:
        """Note that the update that `client` began in `round` was delivered: its result will be needed."""

    def forget(self, client: int, round: int) -> None:
        """Drop the promise of an update whose result will not be needed."""

    def forget_all(self) -> None:
        """Drop all promises."""

    def start_workers(self) -> AbstractContextManager[None]:
        """Return a block within which the workers run."""

    def facts(self) -> dict[str, Any] | None:
        """Return facts of the workers for the summary, or None without workers."""


class InProcess:
    """Executor in this process, which trains all jobs in one call; counterpart of `OnWorkers`, with equal results."""

    ahead = False

    def __init__(self, trainer: LocalTrainer, own: OwnTraining | None) -> None:
        self._trainer, self._own = trainer, own

    def train(
        self, asked: TrainingRequest, starts: Tensor, states: OptimizerStates | None, measured: LossMeasures, shift: Tensor | None
    ) -> Tensor:
        return self._trainer.train(starts, asked.batches, asked.seeds, asked.moves, states, *measured, shift)

    def train_own(self, asked: OwnTrainingRequest, starts: Tensor) -> list[Result]:
        assert self._own is not None
        return self._own.results(starts, asked.shards, asked.batches, asked.addresses, asked.states)

    def promise(self, asked: TrainingRequest, start: Tensor, states: OptimizerStates | None, measured: LossMeasures) -> None:
        """Do nothing: results are computed when they are needed."""

    def arrive(self, client: int, round: int) -> None:
        """Do nothing: there are no promises."""

    def forget(self, client: int, round: int) -> None:
        """Do nothing: there are no promises."""

    def forget_all(self) -> None:
        """Do nothing: there are no promises."""

    def start_workers(self) -> AbstractContextManager[None]:
        return nullcontext()

    def facts(self) -> dict[str, Any] | None:
        return None


class Ticket(Protocol):
    """A stack that was submitted to workers."""

    @property
    def report(self) -> Report | None:
        """Result of the stack; None before it is computed."""


class Workers(Protocol):
    """Workers that train stacks (`scenarios.workers.training`)."""

    def prepare(self, recipe: BenchRecipe, x: Tensor, y: Tensor, widest: int) -> None:
        """Store the parts of each worker's bench; vectors of a client have at most `widest` numbers."""

    def start_workers(self) -> AbstractContextManager[None]:
        """Start the workers, and end them after the block."""

    def submit(self, stack: Stack, starts: Vectors) -> Any:
        """Submit a stack and return its ticket; `starts` must not change afterwards."""

    def collect(self, tickets: Sequence[Any], ends: Sequence[Vectors]) -> None:
        """Wait for `tickets`, and write the trained vectors of their clients into `ends`."""

    def arrive(self, ticket: Any) -> None:
        """Note that a ticket will be needed."""

    def cancel(self, ticket: Any) -> None:
        """Drop a ticket and its result."""

    def facts(self) -> dict[str, Any]:
        """Return facts for the summary."""


@dataclass(frozen=True, slots=True)
class _Promise:
    """A stack of one job that was submitted before its result is needed."""

    job: Job
    measures: tuple[bool, bool, str]
    """Kinds of losses that it measures (`_measures`)."""
    ticket: Ticket
    moments: int


class OnWorkers:
    """Executor on workers; counterpart of `InProcess`, with equal results.

    A job is promised only where it is a stack by itself. Then its result depends on no other client's, and may be computed at
    any time.
    """

    def __init__(self, workers: Workers, recipe: BenchRecipe, trainer: LocalTrainer) -> None:
        self._workers, self._trainer = workers, trainer
        self.ahead = not trainer.vectorised and recipe.own is None
        self._promises: dict[tuple[int, int], _Promise] = {}
        self._kept_promises = 0
        """Promises whose result was used."""
        widest = trainer.parameters + trainer.buffers + (trainer.moments + 1) * trainer.parameters
        workers.prepare(recipe.portable(), *trainer.data, widest=widest * trainer.stacked)

    def train(
        self, asked: TrainingRequest, starts: Tensor, states: OptimizerStates | None, measured: LossMeasures, shift: Tensor | None
    ) -> Tensor:
        """Train each stack of `asked` as a call of its own on the workers, or take the result of a promise for it."""
        whole, out = asked.stack(states, measured), torch.empty_like(starts)
        rows_of_stacks = self._trainer.stacks(asked.batches)
        # Submit all stacks before any result is waited for.
        tickets, ends = [], []
        for rows, stack in zip(rows_of_stacks, split(rows_of_stacks, whole), strict=True):
            is_single = len(rows) == 1
            # A slice gives a view, a list a copy: the large model of a single row is not copied.
            index: slice | list[int] = slice(rows[0], rows[0] + 1) if is_single else rows
            moments = [] if states is None else [moment[rows] for moment in states.moments]
            vectors = Vectors(starts[index], moments, None if shift is None else shift[rows])
            ticket = self._redeem(asked.jobs[rows[0]], whole, shift) if is_single else None
            if ticket is None:
                ticket = self._workers.submit(stack, vectors)
            tickets.append(ticket)
            # The workers write the result of a single row into `out`; other results are copied there below.
            trained = out[index] if is_single else torch.empty_like(vectors.rows)
            ends.append(Vectors(trained, [torch.empty_like(moment) for moment in moments]))
        self._workers.collect(tickets, ends)
        for rows, ticket, end in zip(rows_of_stacks, tickets, ends, strict=True):
            if len(rows) > 1:
                out[rows] = end.rows
            self._add_results(ticket.report, rows, end, states, measured)
        return out

    def _add_results(
        self, report: Report | None, rows: list[int], end: Vectors, states: OptimizerStates | None, measured: LossMeasures
    ) -> None:
        """Add the results of a stack, whose clients are `rows` of the whole request, to the optimizer states and the losses."""
        assert report is not None
        if states is not None and report.taken is not None:
            states.keep(rows, end.moments, report.taken)
        if measured.losses is not None:
            measured.losses.merge(LossTally(total=report.total, samples=report.samples))
        if measured.first is not None and report.mean is not None and report.rms is not None:
            measured.first.mean[rows], measured.first.rms[rows] = report.mean, report.rms
        for note in report.notes:
            self._trainer.note(note)

    def train_own(self, asked: OwnTrainingRequest, starts: Tensor) -> list[Result]:
        """Train each job of `asked` as a call of its own on the workers; return the results in the order of the jobs."""
        whole = Stack(
            clients=[job.client for job in asked.jobs],
            rounds=[job.round for job in asked.jobs],
            batches=asked.batches,
            seeds=[],
            own=OwnPart(asked.shards, asked.addresses, asked.states),
        )
        # A job is a function of its fields (docs/own-trainer.md), so each may be a call by itself.
        rows_of_stacks = [[row] for row in range(len(asked.jobs))]
        tickets = [
            self._workers.submit(stack, Vectors(starts[rows], []))
            for rows, stack in zip(rows_of_stacks, split(rows_of_stacks, whole), strict=True)
        ]
        out = torch.empty_like(starts)
        self._workers.collect(tickets, [Vectors(out[row : row + 1], []) for row in range(len(out))])
        results = []
        for row, ticket in enumerate(tickets):
            assert ticket.report is not None
            (result,) = ticket.report.results
            # A report holds no row: it stands in `out`.
            results.append(replace(result, row=out[row], losses=result.losses.to(out.device)))
        return results

    # Training ahead

    def promise(self, asked: TrainingRequest, start: Tensor, states: OptimizerStates | None, measured: LossMeasures) -> None:
        """Submit the one job of `asked`; an earlier promise of the same client and round is cancelled."""
        (job,) = asked.jobs
        self.forget(job.client, job.round)
        stack = asked.stack(states, measured)
        moments = [] if states is None else states.moments
        ticket = self._workers.submit(stack, Vectors(start, moments))
        self._promises[job.client, job.round] = _Promise(job, _measures(stack), ticket, len(moments))

    def _redeem(self, job: Job, stack: Stack, shift: Tensor | None) -> Ticket | None:
        """Remove the promise of `job`, and return its ticket if it was made for the same training. Else cancel it; return None.

        `stack`: the whole request, which says which losses are measured. A training with a `shift` was never promised.
        """
        promise = self._promises.pop((job.client, job.round), None)
        if promise is None:
            return None
        if promise.job != job or promise.measures != _measures(stack) or shift is not None:
            self._workers.cancel(promise.ticket)
            return None
        self._kept_promises += 1
        return promise.ticket

    def arrive(self, client: int, round: int) -> None:
        promise = self._promises.get((client, round))
        if promise is not None:
            self._workers.arrive(promise.ticket)

    def forget(self, client: int, round: int) -> None:
        """Cancel the promise of this update, if there is one."""
        promise = self._promises.pop((client, round), None)
        if promise is not None:
            self._workers.cancel(promise.ticket)

    def forget_all(self) -> None:
        for client, round in list(self._promises):
            self.forget(client, round)

    def start_workers(self) -> AbstractContextManager[None]:
        return self._workers.start_workers()

    def facts(self) -> dict[str, Any]:
        return self._workers.facts() | {"ahead": self._kept_promises}


def _measures(stack: Stack) -> tuple[bool, bool, str]:
    """Return the kinds of losses that a stack measures. They change the order of sums, not the vectors."""
    return stack.counts_losses, stack.passes is not None, stack.measure

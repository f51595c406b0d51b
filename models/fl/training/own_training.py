"""Local training by a user's trainer: jobs in, updates out. Its answers are checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from models.errors import AnswerError
from models.fl.networks.initialisation import seed_globally
from models.fl.networks.layout import Layout
from models.fl.protocols import Optimizer, Trainer
from models.fl.store.models import ModelId
from models.fl.training.losses import FirstPass, Loss, LossTally, bound_losses

IntArray = NDArray[np.int64]
Parameters: TypeAlias = Mapping[str, Tensor]
"""Tensors of one network by their names: its parameters and its running statistics."""


@dataclass(frozen=True)
class LocalData:
    """Data of one client, and the scenario's settings of its training."""

    x: Tensor
    """Inputs (samples, ...) of the client."""
    y: Tensor
    """Classes (samples,) of the inputs."""
    batches: list[Tensor]
    """Planned local steps: for each step the numbers, in 0..samples-1, of the client's samples that it uses."""
    scores: Callable[[Parameters, Tensor], Tensor]
    """Function that returns the scores (b, classes) of the network with given parameters on inputs (b, ...); differentiable."""
    loss: Callable[[Tensor, Tensor], Tensor]
    """Function that returns the scenario's loss (b,) of scores (b, classes) and classes (b,)."""
    trained: frozenset[str]
    """Names of the trained parameters. Other parameters keep their numbers, even if different ones are returned."""
    optimizer: Optimizer
    """The scenario's optimizer, for rows of parameters. A function may ignore it."""


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """Local training of one client. The result must depend on these fields only."""

    client: int
    round: int
    """Round in which the update began. Together with the client it addresses the random draws."""
    start: ModelId
    """Id of the model from which the client starts."""
    parameters: dict[str, Tensor]
    """The received model: tensors by name, running statistics included. The trainer may change them."""
    data: LocalData
    steps: int
    """Number of planned local steps, the length of `data.batches`."""
    generator: np.random.Generator
    """Random numbers of this client and round."""
    seed: int
    """Seed of this client and round for torch's generators, which are restored after the call."""
    state: Any = None
    """State that the trainer returned for this client before (`Trained.state`); None: no state yet."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Result of the local training of one client."""

    parameters: Parameters
    """Parameters after training; missing running statistics stay as they were."""
    samples: int
    """Number of samples processed, each counted as often as it was used."""
    losses: Any = ()
    """Losses (m,) of single samples in the first pass over the client's samples; empty: not measured."""
    steps: int | None = None
    """Number of steps taken; None: as planned."""
    state: Any = None
    """State for the client's next job: None, numbers, strings, NumPy arrays, and lists and dicts of these."""


LocalTraining: TypeAlias = Callable[[Parameters, LocalData, int, np.random.Generator], tuple[Parameters, int, Any]]
"""Function that trains one client.

It receives parameters (which it may change), data, the number of steps and a generator. It returns the parameters after training,
the number of samples processed, and the losses (m,) of single samples in the first pass.
"""


class FunctionTrainer:
    """A trainer that calls `function` for one job after the other."""

    eager = False

    def __init__(self, function: LocalTraining) -> None:
        self._function = function

    def train(self, jobs: Sequence[TrainingJob]) -> Sequence[Trained]:
        return [self._train(job) for job in jobs]

    def _train(self, job: TrainingJob) -> Trained:
        """Return the result of the user's function for `job`. Raises AnswerError unless it returns three values."""
        with seed_globally(job.seed, job.data.x.device):
            answer: Any = self._function(job.parameters, job.data, job.steps, job.generator)
        if not isinstance(answer, tuple) or len(answer) != 3:
            reason = "must be parameters, the number of samples, and losses"
            raise AnswerError("local_training", "the function", type(answer).__name__, reason)
        parameters, samples, losses = answer
        return Trained(parameters=parameters, samples=samples, losses=losses)


@dataclass(frozen=True)
class Address:
    """Address of a job, and the random numbers that belong to it."""

    client: int
    round: int
    start: ModelId
    seed: int
    generator: np.random.Generator


@dataclass(frozen=True)
class Result:
    """Checked result of one job."""

    row: Tensor
    """Network (d,) after training."""
    losses: Tensor
    """(m,) of single samples in the first pass."""
    samples: int
    planned: int
    """Number of planned samples."""
    steps: int
    state: Any

    def plain(self) -> list[Any]:
        """Return the result as plain data for a checkpoint: see `from_plain`."""
        tensors = (self.row.cpu().numpy().copy(), self.losses.cpu().numpy().copy())
        return [*tensors, self.samples, self.planned, self.steps, deepcopy(self.state)]

    @classmethod
    def from_plain(cls, saved: list[Any], device: torch.device) -> Result:
        """Return the result that `plain` saved, on `device`."""
        row, losses = (torch.from_numpy(np.array(values, np.float32)).to(device) for values in saved[:2])
        samples, planned, steps = (int(count) for count in saved[2:5])
        return cls(row, losses, samples, planned, steps, deepcopy(saved[5]))


class OwnTraining:
    """Trains rows of parameters by a user's trainer, and checks its answers."""

    def __init__(
        self,
        *,
        trainer: Trainer,
        network: nn.Module,
        layout: Layout,
        loss: Loss,
        optimizer: Optimizer,
        x: Tensor,
        y: Tensor,
    ) -> None:
        self._trainer, self._network, self._layout, self._loss = trainer, network, layout, loss
        self._optimizer, self._x, self._y = optimizer, x, y
        by_function = isinstance(trainer, FunctionTrainer)
        self._role, self._method = ("local_training", "the function") if by_function else ("trainer", "train")
        self.eager = trainer.eager
        """True if jobs run when the model is sent to their clients."""

    def results(
        self, starts: Tensor, shards: list[IntArray], batches: list[IntArray], addresses: list[Address], states: list[Any]
    ) -> list[Result]:
        """Train from the rows of `starts` (n, d), and return a result for each.

        Row k is trained on the samples `shards[k]`, with the planned steps `batches[k]`, at `addresses[k]`, from `states[k]`.

        Parameters that no pattern of `learner.trained` names keep their numbers.

        Raises:
            AnswerError: the trainer returned anything but results of its jobs.
        """
        self._network.train()
        # Drop batches of one sample in networks that normalise over a batch, as in `LocalTrainer.train`: they have no variance.
        smallest_batch = 2 if self._layout.buffers or self._layout.normalisers else 1
        steps = [drawn[(drawn >= 0).sum(1) >= smallest_batch] for drawn in batches]
        jobs = [
            TrainingJob(
                client=address.client,
                round=address.round,
                start=address.start,
                parameters=self._named_tensors(start),
                data=self._data(shard, drawn),
                steps=len(drawn),
                generator=address.generator,
                seed=address.seed,
                state=state,
            )
            for address, start, shard, drawn, state in zip(addresses, starts, shards, steps, states, strict=True)
        ]
        with seed_globally(jobs[0].seed, starts.device), torch.enable_grad():
            answers = self._trainer.train(jobs)
        if not isinstance(answers, Sequence) or len(answers) != len(jobs):
            answer_text = f"{len(answers)} results" if isinstance(answers, Sequence) else type(answers).__name__
            raise self._refusal(answer_text, f"must be a list of {len(jobs)} results, one a job")
        return [self._check_answer(answer, start, drawn) for answer, start, drawn in zip(answers, starts, steps, strict=True)]

    def rows(self, results: list[Result], tally: LossTally | None, first: FirstPass | None) -> Tensor:
        """Return the rows (n, d) of `results`, and add their losses to `tally` and `first`."""
        for row, result in enumerate(results):
            if tally is not None:
                tally.add(result.losses)
            if first is not None and len(result.losses):
                values = bound_losses(result.losses).double()
                first.mean[row], first.rms[row] = float(values.mean()), float(values.square().mean().sqrt())
        return torch.stack([result.row for result in results])

    def _named_tensors(self, row: Tensor) -> dict[str, Tensor]:
        """Return copies of the tensors in `row` (d,), by name."""
        views = self._layout.views(row.clone().unsqueeze(0))
        return {name: view[0].clone() for name, view in zip(self._layout.names, views, strict=True)}

    def _data(self, shard: IntArray, steps: IntArray) -> LocalData:
        """Return the data of one client for a user's trainer.

        `shard` (m,): numbers of the client's samples, in any order. `steps` (steps, batch size): samples of each planned step,
        then -1.
        """
        samples = torch.from_numpy(shard).to(self._x.device)
        # Renumber the samples of each step: from numbers in the whole data set to places in `shard`.
        order = np.argsort(shard, kind="stable")
        batches = []
        for step in steps:
            places = order[np.searchsorted(shard, step[step >= 0], sorter=order)]
            batches.append(torch.from_numpy(places).to(self._x.device))
        return LocalData(
            x=self._x[samples],
            y=self._y[samples],
            batches=batches,
            scores=self._scores,
            loss=self._losses,
            trained=frozenset(self._layout.names[place] for place in self._layout.trained),
            optimizer=self._optimizer,
        )

    def _scores(self, parameters: Parameters, x: Tensor) -> Tensor:
        """Return `LocalData.scores`."""
        scores: Tensor = functional_call(self._network, dict(parameters), (x,))
        return scores

    def _losses(self, scores: Tensor, classes: Tensor) -> Tensor:
        """Return `LocalData.loss`."""
        return self._loss.value(scores.float(), classes)

    def _check_answer(self, answer: Any, start: Tensor, drawn: IntArray) -> Result:
        """Return the checked answer of a user's trainer to one job; raises AnswerError for any other answer."""
        if not isinstance(answer, Trained):
            raise self._refusal(type(answer).__name__, "must be a models.fl.training.own_training.Trained")
        if not isinstance(answer.parameters, Mapping):
            raise self._refusal(type(answer.parameters).__name__, "parameters must be a mapping from names to tensors")
        steps = len(drawn) if answer.steps is None else answer.steps
        for name, count in (("samples", answer.samples), ("steps", steps)):
            if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 0 <= count <= _MOST:
                raise self._refusal(count, f"{name} must be a whole number >= 0, and at most {_MOST}")
        losses = torch.as_tensor(answer.losses).detach().float().flatten().to(self._x.device)
        planned = int((drawn >= 0).sum())
        if not is_plain(answer.state):
            raise self._refusal(answer.state, "state must hold None, numbers, strings, NumPy arrays, lists and dicts only")
        row = self._row(answer.parameters, start)
        return Result(
            row=row, losses=losses, samples=int(answer.samples), planned=planned, steps=int(steps), state=answer.state
        )

    def _row(self, parameters: Parameters, start: Tensor) -> Tensor:
        """Return the row (d,) of `parameters`. Columns that are not trained keep the numbers of `start` (d,)."""
        row = start.clone()
        for place, view in enumerate(self._layout.views(row.unsqueeze(0))):
            name, shape = self._layout.names[place], tuple(self._layout.shapes[place])
            value = parameters.get(name)
            is_statistic = place >= self._layout.count
            if value is None and is_statistic:
                continue
            if not torch.is_tensor(value) or tuple(value.shape) != shape:
                received: Any = "nothing"
                if value is not None:
                    received = tuple(value.shape) if torch.is_tensor(value) else type(value).__name__
                raise self._refusal(received, f"parameter {name!r} must be a tensor of shape {shape}")
            view.copy_(value.detach().unsqueeze(0))
        if self._layout.all_move:
            return row
        return torch.where(self._layout.moves.to(row.device), row, start)

    def _refusal(self, returned: Any, reason: str) -> AnswerError:
        """Return the error about an answer of the user's trainer."""
        return AnswerError(self._role, self._method, returned, reason)


def is_plain(value: Any) -> bool:
    """Return True if a checkpoint can hold `value`.

    >>> is_plain({"rate": 0.1, "velocity": [np.zeros(3)]}), is_plain(torch.zeros(3))
    (True, False)
    """
    if isinstance(value, dict):
        return all(isinstance(key, str | int) and is_plain(entry) for key, entry in value.items())
    if isinstance(value, list | tuple):
        return all(is_plain(entry) for entry in value)
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biuf"
    return value is None or isinstance(value, bool | int | float | str)


_MOST = 2**53
"""The largest number of samples or steps of an update."""

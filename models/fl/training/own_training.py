"""Local training by a function of the user's own, one client after the other; what it returns is checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from models.fl.protocols import Optimizer
from models.fl.training.losses import FirstPass, Loss, LossTally, bound_losses

IntArray = NDArray[np.int64]
Parameters: TypeAlias = Mapping[str, Tensor]
"""Tensors of one network by their names: its parameters and its running statistics."""


@dataclass(frozen=True)
class LocalData:
    """What a function that trains a client is given of it, and of the scenario."""

    x: Tensor
    """(samples, ...) the client's inputs."""
    y: Tensor
    """(samples,) their classes."""
    batches: list[Tensor]
    """For each local step the numbers, in 0..samples-1, of the samples that time and tables count."""
    scores: Callable[[Parameters, Tensor], Tensor]
    """(b, classes) scores that the network with these parameters gives inputs (b, ...); gradients pass."""
    loss: Callable[[Tensor, Tensor], Tensor]
    """(b,) the scenario's loss of scores (b, classes) and classes (b,)."""
    trained: frozenset[str]
    """The names of the parameters that are trained; the others keep their numbers, whatever is returned."""
    optimizer: Optimizer
    """The scenario's, for rows of parameters; a function may take its own steps."""


LocalTraining: TypeAlias = Callable[[Parameters, LocalData, int, np.random.Generator], tuple[Parameters, int, Any]]
"""Given parameters (which it may change), data, the number of steps and a generator: the parameters after training, the number of
samples processed, and the losses (m,) of single samples in the first pass over the client's samples."""


class OwnTraining:
    """Trains rows of parameters by `function`. torch's global generators are seeded for each update, and put back."""

    def __init__(
        self,
        *,
        function: LocalTraining,
        network: nn.Module,
        layout: Layout,
        loss: Loss,
        optimizer: Optimizer,
        x: Tensor,
        y: Tensor,
    ) -> None:
        self._function, self._network, self._layout, self._loss = function, network, layout, loss
        self._optimizer, self._x, self._y = optimizer, x, y

    def train(
        self,
        starts: Tensor,
        shards: list[IntArray],
        batches: list[IntArray],
        seeds: list[int],
        generators: list[np.random.Generator],
        tally: LossTally | None,
        first: FirstPass | None,
    ) -> Tensor:
        """The rows (n, d) after training from `starts` (n, d); row k on the samples `shards[k]` by the steps `batches[k]`.

        What no pattern of `learner.trained` names keeps its numbers.

        Raises:
            AnswerError: the function returned something else.
        """
        out = starts.clone()
        self._network.train()
        # As in training by an optimizer: a batch of one sample has no variance.
        least = 2 if self._layout.buffers or self._layout.normalisers else 1
        for row, (shard, drawn) in enumerate(zip(shards, batches, strict=True)):
            steps = drawn[(drawn >= 0).sum(1) >= least]
            with seed_globally(seeds[row], starts.device), torch.enable_grad():
                answer = self._function(self._named(starts[row]), self._data(shard, steps), len(steps), generators[row])
            trained, losses = self._checked(answer, int((steps >= 0).sum()))
            for place, view in enumerate(self._layout.views(out[row : row + 1])):
                name = self._layout.names[place]
                if name in trained:
                    view.copy_(trained[name].detach().unsqueeze(0))
            if tally is not None:
                tally.add(losses)
            if first is not None and len(losses):
                values = bound_losses(losses).double()
                first.mean[row], first.rms[row] = float(values.mean()), float(values.square().mean().sqrt())
        if not self._layout.all_move:
            out = torch.where(self._layout.moves.to(out.device), out, starts)
        return out

    def _named(self, row: Tensor) -> dict[str, Tensor]:
        views = self._layout.views(row.clone().unsqueeze(0))
        return {name: view[0].clone() for name, view in zip(self._layout.names, views, strict=True)}

    def _data(self, shard: IntArray, steps: IntArray) -> LocalData:
        chosen = torch.from_numpy(shard).to(self._x.device)
        # Samples are numbered within the client's own, whose numbers are ascending or not.
        order = np.argsort(shard, kind="stable")
        places = [order[np.searchsorted(shard, step[step >= 0], sorter=order)] for step in steps]
        return LocalData(
            x=self._x[chosen],
            y=self._y[chosen],
            batches=[torch.from_numpy(place).to(self._x.device) for place in places],
            scores=lambda parameters, x: functional_call(self._network, dict(parameters), (x,)),
            loss=lambda scores, classes: self._loss.value(scores.float(), classes),
            trained=frozenset(self._layout.names[place] for place in self._layout.trained),
            optimizer=self._optimizer,
        )

    def _checked(self, answer: Any, samples: int) -> tuple[Parameters, Tensor]:
        if not isinstance(answer, tuple) or len(answer) != 3:
            raise _refused(type(answer).__name__, "must be parameters, the number of samples, and losses")
        parameters, processed, losses = answer
        if not isinstance(parameters, Mapping):
            raise _refused(type(parameters).__name__, "parameters must be a mapping from names to tensors")
        for place, name in enumerate(self._layout.names):
            shape = tuple(self._layout.shapes[place])
            given = parameters.get(name)
            if given is None and place >= self._layout.count:
                continue
            if not torch.is_tensor(given) or tuple(given.shape) != shape:
                found = "nothing" if given is None else tuple(given.shape) if torch.is_tensor(given) else type(given).__name__
                raise _refused(found, f"parameter {name!r} must be a tensor of shape {shape}")
        if isinstance(processed, bool) or not isinstance(processed, int | np.integer) or processed != samples:
            raise _refused(processed, f"must be the {samples} samples of data.batches, which time and tables count")
        values = torch.as_tensor(losses).detach().float().flatten().to(self._x.device)
        return parameters, values


def _refused(found: Any, reason: str) -> AnswerError:
    return AnswerError("local_training", "the function", found, reason)

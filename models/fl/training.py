"""Local training of all clients of a round in one computation.

The parameters of n copies of a network lie in one matrix (n, d), a row a client. A step computes all rows' gradients at once,
each on its own mini-batch, and updates the matrix. Clients are sorted by their number of steps, so that those still at work are
always the first rows: ragged step counts cost nothing and change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, vmap

from models.fl.losses import Loss
from models.fl.networks import HandStacked
from models.fl.optimizers import Optimizer

IntArray = NDArray[np.int64]

# Above this many numbers a sample, convolutions on a CPU are faster client by client than stacked (15 clients, batches of 20:
# 28x28x1 images take 0.7 to 0.8 times the sequential time stacked, 32x32x3 images 1.2 to 1.6 times).
_STACKED_CPU_INPUT = 1024
# Parameters, gradients and moments of the clients trained at once. On a CPU what stays in its cache is faster (300 clients of the
# 784-32-16-10 network: 20 % slower all at once than 15 to 30 at a time); a GPU wants as many as fit.
_CHUNK_BYTES = {"cpu": 8 * 2**20, "cuda": 512 * 2**20}


def draw_batches(
    part: IntArray, generator: np.random.Generator, *, batch_size: int, epochs: int, max_steps: int | None
) -> IntArray:
    """Samples of one client's local steps: every epoch a fresh permutation cut into batches, the last one short (-1: no sample).

    Returns (steps, batch_size) sample numbers; steps = epochs * ceil(len(part) / batch_size), or `max_steps` if that is fewer.
    """
    an_epoch = math.ceil(len(part) / batch_size)
    steps = an_epoch * epochs if max_steps is None else min(an_epoch * epochs, max_steps)
    out = np.full((math.ceil(steps / an_epoch), an_epoch * batch_size), -1, np.int64)
    for row in out:
        row[: len(part)] = part[generator.permutation(len(part))]
    return out.reshape(-1, batch_size)[:steps]


class LocalTrainer:
    """Trains copies of one network on mini-batches of one data set.

    A row of parameters holds `parameters` numbers in the order of `Module.parameters()` and then, as `buffers` further columns,
    the floating-point buffers (running statistics of batch normalisation), which a client trains along; such a network skips
    batches of a single sample, which have no variance.
    `vectorised` says whether several clients are trained in one computation; `reason` says why not, where they are not.
    """

    def __init__(self, *, network: nn.Module, loss: Loss, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
        self._network = network
        self._loss = loss
        self._optimizer = optimizer
        self._x, self._y = x, y
        tensors = [*network.named_parameters(), *((k, b) for k, b in network.named_buffers() if b.is_floating_point())]
        self._names = [name for name, _ in tensors]
        self._shapes = [tensor.shape for _, tensor in tensors]
        self._count = len(list(network.parameters()))
        self.parameters = sum(shape.numel() for shape in self._shapes[: self._count])
        self.buffers = sum(shape.numel() for shape in self._shapes[self._count :])
        self.reason = self._why_sequential()
        self.vectorised = self.reason is None
        row_bytes = 4 * self.parameters * (2 + optimizer.moments)
        self._chunk = max(1, _CHUNK_BYTES[x.device.type] // row_bytes) if self.vectorised else 1

    def initial(self) -> Tensor:
        """The network's present parameters and buffers as one row; shape (d,)."""
        state = self._network.state_dict()
        return torch.cat([state[name].detach().flatten() for name in self._names]).to(self._x.device, torch.float32)

    def scores(self, row: Tensor, x: Tensor) -> Tensor:
        """Scores (B, classes) of the network with the parameters of `row` (d,), as in evaluation."""
        self._network.eval()
        with torch.no_grad():
            values = [view[0] for view in self._views(row.unsqueeze(0))]
            return cast("Tensor", functional_call(self._network, dict(zip(self._names, values, strict=True)), (x,)))

    def train(self, start: Tensor, batches: Sequence[IntArray], seeds: Sequence[int]) -> Tensor:
        """Final rows (n, d) of n clients that start from the rows of `start` and take the steps of `batches`.

        `seeds`: one a client, for networks that draw random numbers themselves (dropout).
        """
        self._network.train()
        if self.buffers:
            batches = [batch[(batch >= 0).sum(1) > 1] for batch in batches]
        out = start.clone()
        order = sorted(range(len(batches)), key=lambda k: -len(batches[k]))
        for first in range(0, len(order), self._chunk):
            rows = order[first : first + self._chunk]
            if self.vectorised:
                out[rows] = self._train_chunk(out[rows], [batches[k] for k in rows])
                continue
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(torch.Generator().manual_seed(seeds[rows[0]]).get_state())
                out[rows] = self._train_chunk(out[rows], [batches[k] for k in rows])
        return out

    def _train_chunk(self, rows: Tensor, batches: list[IntArray]) -> Tensor:
        steps = np.array([len(b) for b in batches])
        samples = np.full((steps[0], len(batches), batches[0].shape[1]), -1, np.int64)
        for k, batch in enumerate(batches):
            samples[: steps[k], k] = batch
        real = samples >= 0
        weights = torch.from_numpy((real / real.sum(2, keepdims=True).clip(1)).astype(np.float32)).to(rows.device)
        # A missing sample, of weight 0, repeats its batch's first: no other client's data come near.
        chosen = torch.from_numpy(np.where(real, samples, samples[:, :, :1]).clip(0)).to(rows.device)
        theta, gradient = rows[:, : self.parameters], torch.zeros_like(rows)
        moments = [torch.zeros_like(theta) for _ in range(self._optimizer.moments)]
        compute = self._gradients()
        active = 0
        with torch.no_grad():
            for step in range(int(steps[0])):
                now = int((steps > step).sum())
                if now != active:
                    active = now
                    views, slots = self._views(rows[:active]), self._views(gradient[:active])[: self._count]
                index = chosen[step, :active]
                x = self._x.index_select(0, index.flatten()).view(*index.shape, *self._x.shape[1:])
                compute(views, slots, x, self._y[index], weights[step, :active])
                now_moments = [moment[:active] for moment in moments]
                self._optimizer.step(theta[:active], gradient[:active, : self.parameters], now_moments, step + 1)
        return rows

    def _gradients(self) -> Callable[[list[Tensor], list[Tensor], Tensor, Tensor, Tensor], None]:
        if isinstance(self._network, HandStacked):
            network = self._network
            return lambda views, slots, x, y, w: network.stacked_gradients(views, slots, x, y, w, self._loss)
        return self._stacked_gradients if self.vectorised else self._single_gradients

    def _stacked_gradients(self, views: list[Tensor], slots: list[Tensor], x: Tensor, y: Tensor, weights: Tensor) -> None:
        # The clients' losses do not depend on each other's parameters: the gradient of their sum is every client's own.
        with torch.enable_grad():
            leaves = [view.detach().requires_grad_() for view in views]
            total = (self._loss.value(self._stacked_scores(leaves, x), y) * weights).sum()
        self._store(total, leaves, slots)

    def _stacked_scores(self, leaves: list[Tensor], x: Tensor) -> Tensor:
        def one(values: dict[str, Tensor], inputs: Tensor) -> Tensor:
            return cast("Tensor", functional_call(self._network, values, (inputs,)))

        return vmap(one)(dict(zip(self._names, leaves, strict=True)), x)

    def _single_gradients(self, views: list[Tensor], slots: list[Tensor], x: Tensor, y: Tensor, weights: Tensor) -> None:
        real = weights[0] > 0
        with torch.enable_grad():
            leaves = [view[0].detach().requires_grad_() for view in views[: self._count]]
            # Buffers are given as views of the row, so that what the network writes into them stays there.
            values = [*leaves, *(view[0] for view in views[self._count :])]
            scores = functional_call(self._network, dict(zip(self._names, values, strict=True)), (x[0][real],))
            total = self._loss.value(cast("Tensor", scores), y[0][real]).mean()
        self._store(total, leaves, [slot[0] for slot in slots])

    @staticmethod
    def _store(total: Tensor, leaves: list[Tensor], slots: list[Tensor]) -> None:
        for slot, part in zip(slots, torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True), strict=True):
            slot.copy_(part)

    def _views(self, rows: Tensor) -> list[Tensor]:
        """Parameters and buffers in `rows` (n, d), each (n, *shape), without a copy."""
        parts = torch.split(rows, [shape.numel() for shape in self._shapes], 1)
        return [part.view(len(rows), *shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def _why_sequential(self) -> str | None:
        if isinstance(self._network, HandStacked):
            return None
        if any(True for _ in self._network.buffers()):
            return "the network keeps running statistics"
        convolves = any(isinstance(layer, nn.Conv2d) for layer in self._network.modules())
        if convolves and self._x.device.type == "cpu" and self._x[0].numel() > _STACKED_CPU_INPUT:
            return "convolutions of large images are faster client by client on a CPU"
        row = self.initial()
        views = self._views(torch.stack([row, row]))
        self._network.train()
        try:
            with torch.no_grad():
                self._stacked_scores(views, self._x[:1].expand(2, 2, *self._x.shape[1:]))
        except (RuntimeError, ValueError, NotImplementedError) as error:
            return f"torch.func cannot stack the network ({str(error).splitlines()[0]})"
        return None

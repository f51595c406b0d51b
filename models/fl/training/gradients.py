"""Gradients of n copies of a network at once, or of one."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from models.fl.networks.kinds import HandStacked
from models.fl.networks.layout import Layout
from models.fl.training.losses import Loss


class Gradients:
    """Computes gradients of `loss`.

    `mixed_precision`: forward and backward passes in bfloat16. `channels_last`: memory layout of images if copies are computed
    one by one.
    """

    def __init__(
        self, *, network: nn.Module, layout: Layout, loss: Loss, mixed_precision: bool, channels_last: bool, device: torch.device
    ) -> None:
        self._network, self._loss = network, loss
        self._names, self._count, self._trained = layout.names, layout.count, layout.trained
        self._mixed_precision, self._channels_last, self._kind = mixed_precision, channels_last, device.type
        self.by_hand: HandStacked | None = network if isinstance(network, HandStacked) and not mixed_precision else None
        """Network, if it computes the gradients of its copies itself; otherwise None."""

    def training(self, *, now: bool) -> None:
        """Switch the network to training or evaluation. Networks that compute gradients themselves have no such modes."""
        if self.by_hand is None:
            self._network.train(now)

    def gradients_of_copies(self, views: list[Tensor], slots: list[Tensor], x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """Write into `slots` the gradients of sum_b weights[k, b] loss(network_k(x[k, b]), y[k, b]) for each copy k of `views`.

        Gradients of parameters that are not trained need not be written. Returns the scores (n, B, classes) from which the
        gradients follow.
        """
        if self.by_hand is not None:
            return self.by_hand.stacked_gradients(views, slots, x, y, weights, self._loss)
        # The loss of a client does not depend on parameters of others, so the gradient of the sum holds every client's
        # gradient.
        with torch.enable_grad():
            leaves = self._leaves(view.detach() for view in views)
            with self.autocast():
                scores = self.scores_of_copies(leaves, x)
            total = (self._loss.value(scores.float(), y) * weights).sum()
        self._store(total, leaves, slots)
        return scores.detach()

    def scores_of_copies(self, leaves: list[Tensor], x: Tensor) -> Tensor:
        """Return the scores (n, B, classes) of the copies with parameters `leaves`, each (n, *shape), on `x` (n, B, ...)."""

        def scores_of_copy(values: dict[str, Tensor], inputs: Tensor) -> Tensor:
            return cast("Tensor", functional_call(self._network, values, (inputs,)))

        return vmap(scores_of_copy)(dict(zip(self._names, leaves, strict=True)), x)

    def scores(self, views: list[Tensor], x: Tensor) -> Tensor:
        """Return the scores (B, classes) of one copy with parameters and buffers `views`, each (*shape)."""
        if self.by_hand is not None:
            return self.by_hand.scores(views, x)
        values = dict(zip(self._names, views, strict=True))
        return cast("Tensor", functional_call(self._network, values, (self.in_channels_last(x),)))

    def gradients_of_single(self, views: list[Tensor], slots: list[Tensor], x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """Write the gradients of a single copy, for its real samples (weight > 0) only; return their scores (samples, classes).

        Counterpart of `gradients_of_copies` with n = 1. The loss is the mean over real samples, so all weights must be equal.
        """
        is_real = weights[0] > 0
        with torch.enable_grad():
            leaves = self._leaves(view[0].detach() for view in views[: self._count])
            # Buffers are views of the row, so that the network's changes of them are kept.
            values = [*leaves, *(view[0] for view in views[self._count :])]
            named = dict(zip(self._names, values, strict=True))
            inputs = self.in_channels_last(x[0][is_real])
            with self.autocast():
                scores = cast("Tensor", functional_call(self._network, named, (inputs,)))
            total = self._loss.value(scores.float(), y[0][is_real]).mean()
        self._store(total, leaves, [slot[0] for slot in slots])
        return scores.detach()

    def in_channels_last(self, x: Tensor) -> Tensor:
        """Return images (B, C, H, W) in channels-last layout, which CPUs convolve faster; unchanged without `channels_last`."""
        if not self._channels_last:
            return x
        _, channels, height, width = x.shape
        # With one channel both layouts are the same in memory, and only the strides distinguish them.
        strides = (channels * height * width, 1, channels * width, channels)
        return x.contiguous(memory_format=torch.channels_last).as_strided(x.shape, strides)

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context that sets the precision of a forward pass."""
        if not self._mixed_precision:
            return nullcontext()
        # No cache of converted weights, because every step has new weights.
        return torch.autocast(self._kind, dtype=torch.bfloat16, cache_enabled=False)

    def _leaves(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        """Return `tensors` as a list; trained ones become leaves that require gradients, in place."""
        leaves = list(tensors)
        for place in self._trained:
            leaves[place].requires_grad_()
        return leaves

    def _store(self, total: Tensor, leaves: list[Tensor], slots: list[Tensor]) -> None:
        """Write the gradients of `total` by the trained `leaves` into their `slots`."""
        trained = [leaves[place] for place in self._trained]
        parts = torch.autograd.grad(total, trained, allow_unused=True, materialize_grads=True)
        for place, part in zip(self._trained, parts, strict=True):
            slots[place].copy_(part)

"""Samples of the local steps of clients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

IntArray = NDArray[np.int64]


def draw_batches(shard: IntArray, generator: np.random.Generator, *, batch_size: int, steps: int) -> IntArray:
    """Draw the samples of one client's local steps; return their numbers (steps, batch_size), -1 for no sample.

    Every epoch is a fresh permutation of `shard`, the client's samples, cut into batches, of which the last may be short. The
    batches of fewer `steps` are the first of those of more steps.
    """
    batches_of_epoch = math.ceil(len(shard) / batch_size)
    epoch_count = math.ceil(steps / batches_of_epoch)
    # One row an epoch, filled up with -1 to whole batches.
    epochs = np.full((epoch_count, batches_of_epoch * batch_size), -1, np.int64)
    for epoch in epochs:
        epoch[: len(shard)] = shard[generator.permutation(len(shard))]
    return epochs.reshape(-1, batch_size)[:steps]


class Stacked(NamedTuple):
    """Steps of n clients side by side, the client with the most steps first."""

    steps: IntArray
    """(n,) number of steps of each client."""
    chosen: Tensor
    """(steps, n, batch) sample numbers. A missing sample, of weight 0, repeats the first of its batch: no other client's data."""
    weights: Tensor
    """(steps, n, batch) weight of each sample in the mean of its batch."""
    full: list[bool]
    """For each step, True if no client that takes it misses a sample."""
    shifts: Tensor | None = None
    """(steps, n, batch, 3) crop and flip of each sample, or None."""


def stack_batches(batches: Sequence[IntArray], moves: Sequence[IntArray] | None, device: torch.device) -> Stacked:
    """Return the steps of n clients side by side.

    `batches`: sample numbers (steps, batch) of each client, from `draw_batches`; the client with the most steps must come first.
    `moves`: crops and flips (steps, batch, 3) of each client, from `augmentation.draw_moves`; None: none.
    """
    steps = np.array([len(batch) for batch in batches])
    # Clients may have batches of different sizes: smaller ones are filled up like short batches.
    shape = (int(steps[0]), len(batches), max(batch.shape[1] for batch in batches))
    step_count, _, batch_size = shape
    samples = np.full(shape, -1, np.int64)
    for client, batch in enumerate(batches):
        samples[: steps[client], client, : batch.shape[1]] = batch
    if samples.min(initial=0) >= 0:
        # Fast path: no sample is missing.
        chosen, weights, full = samples, np.full(shape, 1 / batch_size, np.float32), [True] * step_count
    else:
        is_real = samples >= 0
        batch_sizes = is_real.sum(2)
        # A client without any sample in a step has weights of 0; any number that exists will do, so take 0.
        chosen = np.maximum(np.where(is_real, samples, samples[:, :, :1]), 0)
        weights = (is_real / np.maximum(batch_sizes, 1)[:, :, None]).astype(np.float32)
        clients_at_step = (steps > np.arange(step_count)[:, None]).sum(1)
        full = (batch_sizes.sum(1) == clients_at_step * batch_size).tolist()
    stacked = Stacked(
        steps=steps,
        chosen=torch.from_numpy(chosen).to(device),
        weights=torch.from_numpy(weights).to(device),
        full=full,
    )
    if moves is None:
        return stacked
    shifts = np.zeros((*shape, 3), np.int64)
    for client, move in enumerate(moves):
        shifts[: steps[client], client, : move.shape[1]] = move
    return stacked._replace(shifts=torch.from_numpy(shifts).to(device))

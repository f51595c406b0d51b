"""Which samples a client takes in each of its local steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

IntArray = NDArray[np.int64]


def draw_batches(
    shard: IntArray, generator: np.random.Generator, *, batch_size: int, steps: int
) -> IntArray:
    """Samples of one client's local steps: every epoch a fresh permutation cut into batches, the last one short (-1: no sample).

    Returns (steps, batch_size) sample numbers. With fewer steps they are the first ones.
    """
    an_epoch = math.ceil(len(shard) / batch_size)
    out = np.full((math.ceil(steps / an_epoch), an_epoch * batch_size), -1, np.int64)
    for row in out:
        row[: len(shard)] = shard[generator.permutation(len(shard))]
    return out.reshape(-1, batch_size)[:steps]


class Stacked(NamedTuple):
    """The steps of n clients side by side, the client with the most steps first."""

    steps: IntArray
    """(n,) how many each takes."""
    chosen: Tensor
    """(steps, n, batch) sample numbers. A missing sample, of weight 0, repeats its batch's first: no other client's data."""
    weights: Tensor
    """(steps, n, batch) each sample's weight in its batch's mean."""
    full: list[bool]
    """Of each step, whether no client that takes it misses a sample."""
    shifts: Tensor | None = None
    """(steps, n, batch, 3) how each is cropped and flipped."""


def stack_batches(batches: Sequence[IntArray], moves: Sequence[IntArray] | None, device: torch.device) -> Stacked:
    """The batches (steps, batch) of each client, as `draw_batches` gives them, and `moves` of `augmentation.draw_moves`.

    The client with the most steps comes first.
    """
    steps = np.array([len(batch) for batch in batches])
    # Clients may have batches of different sizes: what is missing to the largest is as in a short batch.
    shape = (int(steps[0]), len(batches), max(batch.shape[1] for batch in batches))
    samples = np.full(shape, -1, np.int64)
    for k, batch in enumerate(batches):
        samples[: steps[k], k, : batch.shape[1]] = batch
    if samples.min(initial=0) >= 0:
        chosen, weights, full = samples, np.full(shape, 1 / shape[2], np.float32), [True] * shape[0]
    else:
        real = samples >= 0
        held = real.sum(2)
        chosen = np.maximum(np.where(real, samples, samples[:, :, :1]), 0)
        weights = (real / np.maximum(held, 1)[:, :, None]).astype(np.float32)
        at_work = (steps > np.arange(shape[0])[:, None]).sum(1)
        full = (held.sum(1) == at_work * shape[2]).tolist()
    stacked = Stacked(steps, torch.from_numpy(chosen).to(device), torch.from_numpy(weights).to(device), full)
    if moves is None:
        return stacked
    shift = np.zeros((*shape, 3), np.int64)
    for k, move in enumerate(moves):
        shift[: steps[k], k, : move.shape[1]] = move
    return stacked._replace(shifts=torch.from_numpy(shift).to(device))

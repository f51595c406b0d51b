"""Which samples a client takes in each of its local steps."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


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

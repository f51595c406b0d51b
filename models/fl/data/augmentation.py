"""Random crops and flips of training images, drawn by client and round and applied as the batches are formed."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

IntArray = NDArray[np.int64]

PADDING = 4
"""Pixels added on every side before a crop of the original size: the common choice for 32x32 images."""


def draw_moves(generator: np.random.Generator, *, steps: int, batch_size: int) -> IntArray:
    """Draw the crop and flip of every sample of every step; shape (steps, batch_size, 3).

    The three numbers are the crop's first row and column in 0..2 `PADDING`, and 1 for a flip.
    """
    return generator.integers(0, [2 * PADDING + 1, 2 * PADDING + 1, 2], (steps, batch_size, 3))


def crop_flip(x: Tensor, moves: Tensor) -> Tensor:
    """Return images (N, C, H, W), each padded with zeros (the mean of standardised data), cropped and flipped left to right.

    `moves` (N, 3) from `draw_moves`; (PADDING, PADDING, 0) leaves an image unchanged.
    """
    count, _, height, width = x.shape
    first_row, first_column, is_flipped = (numbers[:, None] for numbers in moves.unbind(1))
    # Rows (N, H) and columns (N, W) of the padded image that each image shows.
    rows = first_row + torch.arange(height, device=x.device)
    straight = torch.arange(width, device=x.device).expand(count, -1)
    columns = first_column + torch.where(is_flipped == 1, straight.flip(1), straight)
    padded = functional.pad(x, (PADDING,) * 4)
    sample = torch.arange(count, device=x.device)[:, None, None]
    # Channels last, because all channels of a pixel are taken at once.
    return padded.permute(0, 2, 3, 1)[sample, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)

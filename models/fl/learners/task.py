"""Task of learning: samples, their division among clients, a network, and its loss."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import nn

from models.errors import ParameterError
from models.fl.data.datasets import Dataset
from models.fl.training.losses import Loss

IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task of federated learning. Raises ValueError unless every client has a sample."""

    dataset: Dataset
    partition: list[IntArray]
    """Numbers of each client's training samples."""
    network: nn.Module
    """Network, with the parameters of the first model."""
    loss: Loss

    def __post_init__(self) -> None:
        sizes = self.data_sizes
        if not len(sizes) or sizes.min() < 1:
            listed = sizes.tolist()
            raise ParameterError("partition", listed, "every client needs at least 1", shown=f" = {listed} samples")

    @cached_property
    def data_sizes(self) -> IntArray:
        """Number of samples (K,) of each client."""
        return np.array([len(shard) for shard in self.partition], np.int64)

    @cached_property
    def label_counts(self) -> IntArray:
        """Number of samples (K, labels) of each label that each client holds."""
        labels = self.dataset.train_y.numpy()
        return np.stack([np.bincount(labels[shard], minlength=self.dataset.labels) for shard in self.partition])

"""Aggregations that a minority of wrong updates moves little: median and trimmed mean by coordinate, Krum.

Every client counts once, whatever its samples; an update is first multiplied by its staleness factor. They tolerate fewer than
half (median), a share (trimmed mean) or f (Krum) of wrong updates, and cost accuracy if clients' data differ.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from models.fl.aggregation.rules import Arrivals, FloatArray, PlainUpdates
from models.fl.options.parameters import KrumParameters, TrimmedMeanParameters
from models.fl.protocols import Aggregation


class _ByValue(PlainUpdates, ABC):
    """Base class of aggregations that use the updates alone."""

    def step(self, model: Tensor, starts: Tensor, updates: Tensor, arrivals: Arrivals, factors: FloatArray) -> Tensor:
        """Return the middle (d,) of `updates` (n, d), each times its staleness factor (n,)."""
        if not (factors == 1.0).all():
            updates = updates * torch.from_numpy(factors.astype(np.float32)).to(updates.device)[:, None]
        return self.robust_mean(updates)

    @abstractmethod
    def robust_mean(self, updates: Tensor) -> Tensor:
        """Return the middle (d,) of updates (n, d), n >= 1."""


class Median(_ByValue):
    """Median of each coordinate; for an even number the mean of the two in the middle (Yin et al., ICML 2018, Definition 1).

    Example:
        >>> import torch
        >>> Median().robust_mean(torch.tensor([[1.0], [2.0], [90.0]]))
        tensor([2.])
    """

    def robust_mean(self, updates: Tensor) -> Tensor:
        ordered = updates.sort(dim=0).values
        low, high = (len(updates) - 1) // 2, len(updates) // 2
        return ordered[low].add(ordered[high]).mul_(0.5)


class TrimmedMean(_ByValue, TrimmedMeanParameters):
    """Mean of each coordinate without the floor(`share` n) largest and as many smallest values (Yin et al. 2018).

    Example:
        >>> import torch
        >>> TrimmedMean(share=0.4).robust_mean(torch.tensor([[1.0], [2.0], [90.0]]))
        tensor([2.])
    """

    def robust_mean(self, updates: Tensor) -> Tensor:
        # 1e-9: a product that is a whole number up to rounding counts as that number.
        cut = math.floor(self.share * len(updates) + 1e-9)
        return updates.sort(dim=0).values[cut : len(updates) - cut].mean(dim=0)


class Krum(_ByValue, KrumParameters):
    """Mean of the `selected` updates of least score, the sum of squared distances to the n - f - 2 nearest others.

    Blanchard, El Mhamdi, Guerraoui and Stainer, NeurIPS 2017: Krum with one selected, Multi-Krum with several. It needs n >= 2
    f + 3; of fewer updates at least the nearest other one counts. Ties go to the earlier delivery.

    Example:
        >>> import torch
        >>> Krum().robust_mean(torch.tensor([[1.0], [2.0], [2.5], [90.0]]))
        tensor([2.])
    """

    def robust_mean(self, updates: Tensor) -> Tensor:
        """Return the mean (d,) of those of `updates` (n, d) with the least scores; a single update is its own mean."""
        count = len(updates)
        if count == 1:
            return updates[0].clone()
        nearest = max(count - self.wrong - 2, 1)
        # Norms of the differences themselves: for nearly equal updates a formula by products would leave only rounding errors.
        distances = torch.stack([(updates - update).pow_(2).sum(dim=1) for update in updates])
        # The nearest of all is the update itself, at distance 0.
        nearest_distances = distances.sort(dim=1).values[:, 1 : nearest + 1]
        order = torch.argsort(nearest_distances.sum(dim=1), stable=True)
        return updates[order[: min(self.selected, count)]].mean(dim=0)


ROBUST_AGGREGATIONS: dict[str, Callable[..., Aggregation]] = {"median": Median, "trimmed-mean": TrimmedMean, "krum": Krum}

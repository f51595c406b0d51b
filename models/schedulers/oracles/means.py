"""Oracle `means`: knows the present mean of each channel and schedules the K best in rotation (Theorems 2-5 of Li et al.)."""

from __future__ import annotations

from models.schedulers.oracles.means_oracle import MeansOracle
from models.schedulers.protocols import ChosenMatcher, Truth


class Means(MeansOracle):
    """Schedules the K channels of largest present mean in rotation.

    Example:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from netsim.core.scheduling import SlotView
        >>> truth = SimpleNamespace(means=lambda round: np.array([0.2, 0.9, 0.5]))
        >>> scheduler = Means(clients=2, channels=3, truth=truth)
        >>> scheduler.assign(SlotView(1, np.ones(2, int), np.ones(2), np.random.default_rng(1)))
        array([2, 1])
    """

    def __init__(self, *, clients: int, channels: int, truth: Truth, matcher: ChosenMatcher = None) -> None:
        super().__init__(clients=clients, channels=channels, truth=truth, matcher=matcher)

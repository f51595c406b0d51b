"""Oracle `means-age`: the channels of oracle `means`, the best one to the oldest client; a stronger baseline than rotation."""

from __future__ import annotations

from models.schedulers.matchers.age_first import AgeFirst
from models.schedulers.oracles.means_oracle import MeansOracle
from models.schedulers.protocols import ChosenMatcher, Truth


class MeansAge(MeansOracle):
    """Schedules the K channels of largest present mean, matched by age (None).

    Example:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from netsim.core.scheduling import SlotView
        >>> truth = SimpleNamespace(means=lambda round: np.array([0.2, 0.9, 0.5]))
        >>> scheduler = MeansAge(clients=2, channels=3, truth=truth)
        >>> scheduler.assign(SlotView(1, np.array([5, 2]), np.ones(2), np.random.default_rng(1)))
        array([1, 2])
    """

    def __init__(self, *, clients: int, channels: int, truth: Truth, matcher: ChosenMatcher = None) -> None:
        super().__init__(clients=clients, channels=channels, truth=truth, matcher=AgeFirst() if matcher is None else matcher)

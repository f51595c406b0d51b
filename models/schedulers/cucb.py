"""CUCB: combinatorial UCB for stationary channels (Chen, Wang and Yuan 2013, Algorithm 1)."""

from __future__ import annotations

from models.detection.no_detection import NoDetection
from models.schedulers.index_policy import IndexPolicy
from models.schedulers.protocols import ChosenMatcher


class Cucb(IndexPolicy):
    """Scheduler that selects the K channels of largest mean_i + sqrt(3 ln t / (2 D_i)), D_i the observations of channel i.

    It has no detector, no forced exploration and no restart.

    Example:
        >>> import numpy as np
        >>> from netsim.core.scheduling import SlotView
        >>> scheduler = Cucb(clients=2, channels=3)
        >>> scheduler.assign(SlotView(1, np.ones(2, int), np.ones(2), np.random.default_rng(1)))
        array([1, 0])
    """

    def __init__(self, *, clients: int, channels: int, matcher: ChosenMatcher = None) -> None:
        super().__init__(clients=clients, channels=channels, detector=NoDetection, period=0, matcher=matcher)

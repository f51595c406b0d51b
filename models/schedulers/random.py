"""Random scheduling: K channels uniformly, matched at random (the baseline of Li et al., Section VI-A)."""

from __future__ import annotations

from models.schedulers.matchers.random_matching import RandomMatching
from models.schedulers.protocols import ChosenMatcher, SlotView
from models.schedulers.ranked import RankedScheduler


class Random(RankedScheduler):
    """Scheduler that draws K of N channels uniformly; the matcher (None: a random one) gets them by empirical mean, best first.

    Example:
        >>> import numpy as np
        >>> from netsim.core.scheduling import SlotView
        >>> scheduler = Random(clients=2, channels=3)
        >>> scheduler.assign(SlotView(1, np.ones(2, int), np.ones(2), np.random.default_rng(1)))
        array([0, 1])
    """

    def __init__(self, *, clients: int, channels: int, matcher: ChosenMatcher = None) -> None:
        super().__init__(clients=clients, channels=channels, matcher=RandomMatching() if matcher is None else matcher)

    def _rank(self, view: SlotView) -> list[int]:
        """Draw K distinct channels, and return them by empirical mean, best first."""
        return self._sort_by_score(view.rng.permutation(self._channels)[: self._clients].tolist())

"""Base class of the oracles of AoI regret that know the means (Li et al., eq. 14); observations do not change them."""

from __future__ import annotations

from models.schedulers.protocols import BoolArray, FloatArray, Matcher, SlotView, Truth
from models.schedulers.ranked import RankedScheduler


class MeansOracle(RankedScheduler):
    """Schedules the K channels of largest present mean; ties go to the lower channel."""

    def __init__(self, *, clients: int, channels: int, truth: Truth, matcher: Matcher | None = None) -> None:
        super().__init__(clients=clients, channels=channels, matcher=matcher)
        self._truth = truth
        self._last_means: FloatArray | None = None
        self._ranked: list[int] = []
        """Channels selected by the means of the last round, best first."""

    def show(self, good: BoolArray) -> None:
        """Ignore the states of the round: the oracle knows the means."""

    def _rank(self, view: SlotView) -> list[int]:
        """Return the K channels of largest mean in this round, best first; ties go to the lower channel (the sort is stable)."""
        means = self._truth.means(view.round)
        # `truth` returns the same array as long as the means are the same: then the ranking is, too.
        if means is not self._last_means:
            listed = means.tolist()
            self._last_means = means
            self._ranked = sorted(range(self._channels), key=listed.__getitem__, reverse=True)[: self._clients]
        return self._ranked

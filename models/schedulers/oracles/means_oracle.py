"""What the oracles of AoI regret share (Li et al., eq. 14): they know the world, and nothing that they observe changes them."""

from __future__ import annotations

from models.schedulers.protocols import BoolArray, FloatArray, Matcher, SlotView, Truth
from models.schedulers.ranked import RankedScheduler


class MeansOracle(RankedScheduler):
    """Schedules the K channels of largest present mean, equal ones: the lower first."""

    def __init__(self, *, clients: int, channels: int, truth: Truth, matcher: Matcher | None = None) -> None:
        super().__init__(clients=clients, channels=channels, matcher=matcher)
        self._truth = truth
        self._ranked: tuple[FloatArray | None, list[int]] = None, []
        """The means as they were last, and the channels by them."""

    def show(self, good: BoolArray) -> None:
        """Takes no notice: the means say all."""

    def _rank(self, view: SlotView) -> list[int]:
        means = self._truth.means(view.round)
        # The same array as long as the means are the same.
        if means is not self._ranked[0]:
            listed = means.tolist()
            self._ranked = means, sorted(range(self._channels), key=listed.__getitem__, reverse=True)[: self._clients]
        return self._ranked[1]

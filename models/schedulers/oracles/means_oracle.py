"""Base class of the oracles of AoI regret that know the means (Li et al., eq. 14); observations do not change them."""

from __future__ import annotations

from math import nan

import numpy as np

from models.schedulers.protocols import BoolArray, FloatArray, IntArray, Matcher, SlotView, Truth
from models.schedulers.ranked import RankedScheduler


class MeansOracle(RankedScheduler):
    """Schedules the K channels of largest present mean; ties go to the lower channel."""

    state_fields = ("_last_round",)

    def __init__(self, *, clients: int, channels: int, truth: Truth, matcher: Matcher | None = None) -> None:
        super().__init__(clients=clients, channels=channels, matcher=matcher)
        self._truth = truth
        self._last_round = 0
        """The last round that was scheduled; 0: none yet."""
        self._last_means: FloatArray | None = None
        self._ranked: list[int] = []
        """Channels selected by the means of the last round, best first."""

    def show(self, good: BoolArray) -> None:
        """Ignore the states of the round: the oracle knows the means."""

    def observe(self, view: SlotView, channels: IntArray, good: BoolArray) -> None:
        """Learn nothing: the oracle knows the means."""

    def means(self) -> FloatArray:
        """Return the true mean success of each channel in the last round; (N,), nan before the first."""
        return self._truth.means(self._last_round).copy() if self._last_round else np.full(self._channels, nan)

    def _rank(self, view: SlotView) -> list[int]:
        """Return the K channels of largest mean in this round, best first; ties go to the lower channel (the sort is stable)."""
        self._last_round = view.round
        means = self._truth.means(view.round)
        # `truth` returns the same array as long as the means are the same: then the ranking is, too.
        if means is not self._last_means:
            listed = means.tolist()
            self._last_means = means
            self._ranked = sorted(range(self._channels), key=listed.__getitem__, reverse=True)[: self._clients]
        return self._ranked

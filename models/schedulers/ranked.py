"""Base class of schedulers that rank K channels for a matcher, with the counts behind the empirical means.

Lists instead of arrays: a round handles a few channels, and one operation on a small array costs more than all of them in a
list.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import nan
from typing import ClassVar

import numpy as np

from models.schedulers.matchers.rotation import Rotation
from models.schedulers.protocols import BoolArray, Declared, FloatArray, IntArray, Matcher, SlotView, check_sizes
from netsim.core.state import StateFields

NEVER = -1.0
"""Score of a channel without observations: below every mean, but finite."""


class RankedScheduler(StateFields, ABC):
    """Base class of schedulers: subclasses rank K of N channels in `_rank`, and `matcher` (None: rotation) gives them to clients.

    It counts the uses and the successes of each channel.
    """

    state_fields: ClassVar[tuple[str, ...]] = ("_counts", "_wins", "matcher")
    contends = False
    """False: every client has a channel of its own."""

    def __init__(self, *, clients: int, channels: int, matcher: Matcher | None = None) -> None:
        check_sizes(clients, channels)
        self.matcher: Matcher = Rotation() if matcher is None else matcher
        self._clients, self._channels = clients, channels
        self._counts = [0] * channels
        """Transmissions over each channel since the last restart."""
        self._wins = [0] * channels
        """Transmissions among these that got through."""
        self._scores = [NEVER] * channels
        """wins / counts, by which channels are ranked; NEVER without observations."""

    @property
    def restarts(self) -> list[int]:
        """Declared changes: none."""
        return []

    @property
    def forgets(self) -> bool:
        """False: means are over the whole history."""
        return False

    def detects(self) -> bool:
        """Return True if there is a detector."""
        return self.forgets

    @property
    def declared(self) -> Sequence[Declared]:
        """Changes declared in the last `observe`: none."""
        return ()

    def assign(self, view: SlotView) -> IntArray:
        """Return the channel of each client; (K,), distinct."""
        return np.array(self.matcher.match(view, self._rank(view)), np.int64)

    def observe(self, view: SlotView, channels: IntArray, good: BoolArray) -> None:
        """Count the closed round: the `channels` (n,) that were used, and True in `good` (n,) where an update got through."""
        used, won = channels.tolist(), good.tolist()
        counts, wins, scores = self._counts, self._wins, self._scores
        for channel, success in zip(used, won, strict=True):
            count, wins_now = counts[channel] + 1, wins[channel] + success
            counts[channel], wins[channel], scores[channel] = count, wins_now, wins_now / count
        self._learn(view.round, used, won)

    def means(self) -> FloatArray:
        """Return the empirical success of each channel; (N,), nan without observations (since the last restart)."""
        return np.array([wins / count if count else nan for wins, count in zip(self._wins, self._counts, strict=True)])

    def on_load(self) -> None:
        """Recompute the scores from the restored counts."""
        self._scores = [wins / count if count else NEVER for wins, count in zip(self._wins, self._counts, strict=True)]

    def _sort_by_score(self, channels: list[int]) -> list[int]:
        """Return `channels` by empirical mean, best first; channels without observations last, equal ones in the given order."""
        return sorted(channels, key=self._scores.__getitem__, reverse=True)

    def _forget(self) -> None:
        """Drop all counts."""
        self._counts = [0] * self._channels
        self._wins = [0] * self._channels
        self._scores = [NEVER] * self._channels

    @abstractmethod
    def _rank(self, view: SlotView) -> list[int]:
        """Return K distinct channels, best first."""

    def _learn(self, round: int, used: list[int], won: list[bool]) -> None:
        """Learn more from a closed round than the counts, which hold it already; by default nothing.

        `used`: the channels; `won`: True where an update got through.
        """

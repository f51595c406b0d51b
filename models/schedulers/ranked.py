"""What schedulers share: a ranking of K channels, handed to a matcher, and the counts behind the empirical means.

Lists instead of arrays: a round handles a few channels, and an operation on a small array costs more than all of them in a list.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import nan

import numpy as np

from models.schedulers.matchers.rotation import Rotation
from models.schedulers.protocols import BoolArray, Declared, FloatArray, IntArray, Matcher, SlotView, State, check_sizes

# Ranks behind every mean, but finite.
NEVER = -1.0


class RankedScheduler(ABC):
    """Ranks K of N channels in `_rank`, lets `matcher` give them out (None: rotation), and counts what came of it."""

    contends = False

    def __init__(self, *, clients: int, channels: int, matcher: Matcher | None = None) -> None:
        check_sizes(clients, channels)
        self.matcher: Matcher = Rotation() if matcher is None else matcher
        self._clients, self._channels = clients, channels
        self._counts = [0] * channels
        self._wins = [0] * channels
        # wins / counts, NEVER where there are none: what channels are ranked by.
        self._scores = [NEVER] * channels

    @property
    def restarts(self) -> list[int]:
        """No change is looked for."""
        return []

    @property
    def forgets(self) -> bool:
        """Means are over the whole history."""
        return False

    @property
    def declared(self) -> Sequence[Declared]:
        """No change is looked for."""
        return ()

    def assign(self, view: SlotView) -> IntArray:
        """The channel of each client; (K,), distinct."""
        return np.array(self.matcher.match(view, self._rank(view)), np.int64)

    def observe(self, view: SlotView, channels: IntArray, good: BoolArray) -> None:
        """Learn from the round just closed: `channels` (n,) that were used, n <= K, and whether each let its update through."""
        used, won = channels.tolist(), good.tolist()
        counts, wins, scores = self._counts, self._wins, self._scores
        for channel, success in zip(used, won, strict=True):
            counts[channel] += 1
            wins[channel] += success
            scores[channel] = wins[channel] / counts[channel]
        self._learn(view.round, used, won)

    def means(self) -> FloatArray:
        """Empirical success of each channel; (N,), nan where it was never used (since the last restart)."""
        return np.array([w / n if n else nan for w, n in zip(self._wins, self._counts, strict=True)])

    def state_dict(self) -> State:
        return {
            "counts": np.array(self._counts, np.int64),
            "wins": np.array(self._wins, np.int64),
            "matcher": self.matcher.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        self._counts, self._wins = state["counts"].tolist(), state["wins"].tolist()
        self._scores = [w / n if n else NEVER for w, n in zip(self._wins, self._counts, strict=True)]
        self.matcher.load_state_dict(state["matcher"])

    def _by_score(self, channels: list[int]) -> list[int]:
        """`channels` by empirical mean, best first, never used ones last, equal ones as they come."""
        return sorted(channels, key=self._scores.__getitem__, reverse=True)

    def _forget(self) -> None:
        """Drop all counts."""
        self._counts = [0] * self._channels
        self._wins = [0] * self._channels
        self._scores = [NEVER] * self._channels

    @abstractmethod
    def _rank(self, view: SlotView) -> list[int]:
        """K distinct channels, best first."""

    def _learn(self, round: int, used: list[int], won: list[bool]) -> None:  # noqa: B027 - most need no more than the counts
        """What else there is to learn; the counts hold this round already."""

"""Empirical success of channels for the AoI-aware wrapper: over all history, over a window of rounds, or discounted.

Counts are transmissions over each channel, wins those that got through; a mean is wins / count.
"""

from __future__ import annotations

from collections import deque
from math import nan
from typing import NamedTuple, Protocol

import numpy as np

from models.errors import ParameterError
from models.schedulers.protocols import BoolArray, IntArray, Scheduler, State
from netsim.core.state import StateFields


class RunningMeans(Protocol):
    """Mean success of each channel, updated once a round."""

    def observe(self, channels: IntArray, good: BoolArray) -> None:
        """Take in one round: the `channels` (n,) that were used, and True in `good` (n,) where an update got through."""

    def means(self) -> list[float]:
        """Return the mean of each channel; nan without observations."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class OwnMeans(StateFields):
    """Means of the wrapped scheduler itself, which drops them when it restarts."""

    def __init__(self, *, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def observe(self, channels: IntArray, good: BoolArray) -> None:
        pass  # the scheduler observes the round itself

    def means(self) -> list[float]:
        means: list[float] = self._scheduler.means().tolist()
        return means


class DiscountedMeans(StateFields):
    """Means in which an observation of n rounds ago weighs `discount`^n; 1: the whole history counts equally."""

    state_fields = ("_counts", "_wins")

    def __init__(self, *, channels: int, discount: float) -> None:
        if not 0.0 < discount <= 1.0:
            raise ParameterError("discount", discount, "must be > 0 and <= 1")
        self._discount = discount
        self._counts = [0.0] * channels
        self._wins = [0.0] * channels

    def observe(self, channels: IntArray, good: BoolArray) -> None:
        """Discount what was observed before, then count the round: `channels` (n,) used, True in `good` (n,) for successes."""
        if self._discount < 1.0:
            discounted = [count * self._discount for count in self._counts]
            # A count that has faded to nothing is dropped: its mean would become 0 / 0.
            self._counts = [count if count > 1e-250 else 0.0 for count in discounted]
            self._wins = [wins * self._discount for wins in self._wins]
        for channel, success in zip(channels.tolist(), good.tolist(), strict=True):
            self._counts[channel] += 1.0
            self._wins[channel] += success

    def means(self) -> list[float]:
        return [wins / count if count else nan for wins, count in zip(self._wins, self._counts, strict=True)]


class _Observations(NamedTuple):
    """Outcomes of one round."""

    channels: list[int]
    good: list[bool]
    """True where an update got through."""


class WindowedMeans:
    """Means over the last `window_rounds` rounds."""

    def __init__(self, *, channels: int, window_rounds: int) -> None:
        if window_rounds < 1:
            raise ParameterError("window_rounds", window_rounds, "must be >= 1")
        self._window_rounds = window_rounds
        self._counts = [0] * channels
        self._wins = [0] * channels
        self._rounds: deque[_Observations] = deque()
        """Rounds of the window, oldest first."""

    def observe(self, channels: IntArray, good: BoolArray) -> None:
        newest = _Observations(channels.tolist(), good.tolist())
        self._rounds.append(newest)
        self._count(newest, sign=1)
        if len(self._rounds) > self._window_rounds:
            self._count(self._rounds.popleft(), sign=-1)

    def _count(self, observations: _Observations, sign: int) -> None:
        """Add the observations of a round to the counts (`sign` 1), or take them away (-1)."""
        for channel, success in zip(observations.channels, observations.good, strict=True):
            self._counts[channel] += sign
            self._wins[channel] += sign * success

    def means(self) -> list[float]:
        return [wins / count if count else nan for wins, count in zip(self._wins, self._counts, strict=True)]

    def state_dict(self) -> State:
        """Return the rounds of the window; the counts follow from them."""
        return {"rounds": [[np.array(channels, np.int64), np.array(good, np.bool_)] for channels, good in self._rounds]}

    def load_state_dict(self, state: State) -> None:
        """Observe the rounds of a saved window again."""
        self._counts, self._wins = [0] * len(self._counts), [0] * len(self._wins)
        self._rounds.clear()
        for channels, good in state["rounds"]:
            self.observe(channels, good)

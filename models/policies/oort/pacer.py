"""Oort's pacer: the preferred duration T of a round, traded against the utility that rounds bring (OSDI 2021, Section 4.3).

Paper: T in seconds, T <- T + Delta if the summed utility of rounds (t - 2W, t - W] exceeds that of (t - W, t]. Authors' code: T
is a percentile P of all clients' last durations; every W rounds, from 2W on, P rises by 5 if the two sums differ by no more
than a tenth of the earlier one, and falls by 5 if they differ by five times that sum or more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from models.policies.oort.parameters import OortParameters
from models.policies.protocols import FloatArray, State

_STEP = 5.0  # percentage points


def percentile_of(values: FloatArray, share: float) -> float:
    """Return a[min(floor(share n), n - 1)] of the ascending `values` (n,), n >= 1."""
    # 0.7 of 1460 is 1021.99999..99 in doubles: a share of a whole number of clients is meant to be that number.
    place = min(int(share * len(values) + 1e-9), len(values) - 1)
    return float(np.partition(values, place)[place])


class Pacer(ABC):
    """Base class of pacers: it keeps the utility of the last 2W rounds (W = `window`), and calls `judge` every W rounds."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._history: list[float] = []
        self._round = 0

    def observe(self, round: int, utility: float) -> None:
        """Take in the mean `utility` of the exploited clients that delivered in a round; called once a round."""
        self._history = [*self._history, utility][-2 * self._window :]
        self._round += 1
        has_two_windows = self._round >= 2 * self._window
        if has_two_windows and self._round % self._window == 0:
            before, now = sum(self._history[: self._window]), sum(self._history[self._window :])
            self.judge(before, now)

    @abstractmethod
    def judge(self, before: float, now: float) -> None:
        """Move T, given the summed utilities of the window `before` and of the window that ends `now`."""

    @abstractmethod
    def target_s(self, durations_s: FloatArray) -> float | None:
        """Return T in seconds, given all clients' durations (K,); None if there is no T."""

    @abstractmethod
    def value(self) -> float:
        """Return the number that the pacer moves, for the saved state."""

    @abstractmethod
    def move_to(self, value: float) -> None:
        """Restore the number that `value` returned."""

    def state_dict(self) -> State:
        return {"history": list(self._history), "round": self._round, "value": self.value()}

    def load_state_dict(self, state: State) -> None:
        self._history, self._round = list(state["history"]), int(state["round"])
        self.move_to(float(state["value"]))


class PercentilePacer(Pacer):
    """T by the authors' code: a percentile of all durations."""

    def __init__(self, window: int, percentile: float) -> None:
        super().__init__(window)
        self._percentile = percentile

    def judge(self, before: float, now: float) -> None:
        # A longer T where utility stays the same, a shorter one where it jumps: the thresholds of the authors' code.
        if abs(now - before) <= 0.1 * before:
            self._percentile = min(100.0, self._percentile + _STEP)
        elif abs(now - before) >= 5.0 * before:
            self._percentile = max(_STEP, self._percentile - _STEP)

    def target_s(self, durations_s: FloatArray) -> float | None:
        return None if self._percentile >= 100 else percentile_of(durations_s, self._percentile / 100)

    def value(self) -> float:
        return self._percentile

    def move_to(self, value: float) -> None:
        self._percentile = value


class SecondsPacer(Pacer):
    """T by the paper: seconds that grow."""

    def __init__(self, window: int, target_s: float, step_s: float) -> None:
        super().__init__(window)
        self._target_s, self._step_s = target_s, step_s

    def judge(self, before: float, now: float) -> None:
        # Less utility: a longer round lets slower clients of greater utility take part.
        if before > now:
            self._target_s += self._step_s

    def target_s(self, durations_s: FloatArray) -> float | None:
        return self._target_s

    def value(self) -> float:
        return self._target_s

    def move_to(self, value: float) -> None:
        self._target_s = value


class NoPacer(Pacer):
    """Null object without a T: time does not matter."""

    def judge(self, before: float, now: float) -> None:
        pass

    def target_s(self, durations_s: FloatArray) -> float | None:
        return None

    def value(self) -> float:
        return 0.0

    def move_to(self, value: float) -> None:
        pass


def make_pacer(parameters: OortParameters) -> Pacer:
    """Return the pacer that `parameters` describe."""
    if parameters.pacer == "percentile":
        return PercentilePacer(parameters.window, parameters.number("percentile"))
    if parameters.pacer == "seconds":
        assert parameters.target_s is not None
        assert parameters.step_s is not None
        return SecondsPacer(parameters.window, parameters.target_s, parameters.step_s)
    return NoPacer(parameters.window)

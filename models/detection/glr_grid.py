"""GLR test on a grid of split points: every `step`-th only, as Besson et al. 2022 thin them out in their experiments.

It differs from the test of Algorithm 2: its statistic is at most the exact one, so it declares a change no earlier, or never.
"""

from __future__ import annotations

from math import inf
from typing import Annotated

import numpy as np
from annotated_doc import Doc

from models.detection.glr import Glr
from models.detection.protocols import State
from models.errors import ParameterError


class GlrGrid(Glr):
    """Detector that declares a change when the GLR statistic over the split points `step`, 2 `step`, ... reaches the threshold.

    The threshold is that of the exact test.

    Memory and the time of an evaluation grow with D / `step`.

    Example:
        >>> detector = GlrGrid(delta=0.01, step=5)
        >>> [t for t, x in enumerate([0.0] * 40 + [1.0] * 40) if detector.update(x)][0]
        43
    """

    def __init__(
        self,
        *,
        delta: Annotated[float, Doc("Largest probability of a false alarm.")] = 0.001,
        step: Annotated[int, Doc("Observations between split points that are tried.")] = 10,
    ) -> None:
        if step < 1:
            raise ParameterError("step", step, "must be >= 1 observation")
        self._step = step
        super().__init__(delta=delta)

    def _clear(self) -> None:
        """Forget the split points."""
        self._splits = 0
        # Sums and log-likelihoods at the split points; rows beyond `_splits` are room to grow.
        self._grid = np.zeros((16, 2))

    def _extend(self, count: int, total: float, likelihood: float) -> None:
        """Store the sum and the log-likelihood of the first `count` observations if a split point lies there."""
        if count % self._step:
            return
        if self._splits == len(self._grid):
            self._grid = np.concatenate([self._grid, np.zeros_like(self._grid)])
        self._grid[self._splits] = total, likelihood
        self._splits += 1

    def _best(self, count: int, total: float) -> float:
        """Return the greatest l(1..s) + l(s+1..count) over the split points s of the grid; -inf without any."""
        from scipy.special import xlogy

        splits = self._splits
        if not splits:
            return -inf
        # The last split point may be the last observation itself; the segment behind it is empty and adds 0.
        sums, likelihoods = self._grid[:splits, 0], self._grid[:splits, 1]
        rest = count - self._step * np.arange(1.0, splits + 1.0)
        # Sums of fractions may leave [0, rest] by rounding, where xlogy is NaN.
        ones = np.clip(total - sums, 0.0, rest)
        values = likelihoods + xlogy(ones, ones) + xlogy(rest - ones, rest - ones) - xlogy(rest, rest)
        return float(values.max())

    def _path(self) -> State:
        """Return the sums and log-likelihoods at the split points, as an array."""
        return {"grid": self._grid[: self._splits].copy()}

    def _load_path(self, state: State) -> None:
        """Restore the split points, with room to grow."""
        rows = state["grid"]
        self._splits = len(rows)
        self._grid = np.concatenate([rows, np.zeros((max(16, len(rows)), 2))])

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
    """Declares a change when the GLR statistic over the split points `step`, 2 `step`, ... reaches the exact test's threshold.

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
        self._splits = 0
        # Sums and log-likelihoods at the split points; rows beyond `_splits` are room to grow.
        self._grid = np.zeros((16, 2))

    def _extend(self, count: int, total: float, likelihood: float) -> None:
        if count % self._step:
            return
        if self._splits == len(self._grid):
            self._grid = np.concatenate([self._grid, np.zeros_like(self._grid)])
        self._grid[self._splits] = total, likelihood
        self._splits += 1

    def _best(self, count: int, total: float) -> float:
        """Maximise over all split points of the grid, as arrays."""
        from scipy.special import xlogy

        splits = self._splits
        if not splits:
            return -inf
        # The last split point may be the last observation itself; the segment behind it is empty and adds 0.
        n = count - self._step * np.arange(1.0, splits + 1.0)
        ones = total - self._grid[:splits, 0]
        # Sums of fractions may leave [0, n] by rounding, where xlogy is NaN.
        ones = np.clip(ones, 0.0, n)
        values = self._grid[:splits, 1] + xlogy(ones, ones) + xlogy(n - ones, n - ones) - xlogy(n, n)
        return float(values.max())

    def _path(self) -> State:
        return {"grid": self._grid[: self._splits].copy()}

    def _load_path(self, state: State) -> None:
        rows = state["grid"]
        self._splits = len(rows)
        self._grid = np.concatenate([rows, np.zeros((max(16, len(rows)), 2))])

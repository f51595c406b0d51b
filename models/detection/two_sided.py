"""Base class of detectors that add up deviations from a mean in both directions: CUSUM and Page-Hinkley."""

from __future__ import annotations

from models.detection.protocols import check_positive
from netsim.core.state import StateFields


class TwoSidedSums(StateFields):
    """Two sums of deviations from a mean, upwards and downwards, each cut off at 0; a change is declared at `threshold`.

    A deviation counts less `drift`, so that small changes of the mean add nothing. Subclasses keep the mean in `_total` and
    `_count`, and call `_add` with the deviation of each observation.
    """

    state_fields = ("_count", "_total", "_up", "_down")

    def __init__(self, drift: float, threshold: float) -> None:
        check_positive("drift", drift, zero=True)
        check_positive("threshold", threshold)
        self._drift, self._threshold = drift, threshold
        self.reset()

    def reset(self) -> None:
        """Forget all observations."""
        self._count = 0
        self._total = self._up = self._down = 0.0

    def _add(self, deviation: float) -> bool:
        """Add the deviation of one observation to both sums; return True if one has reached the threshold."""
        self._up = max(0.0, self._up + deviation - self._drift)
        self._down = max(0.0, self._down - deviation - self._drift)
        return self._up >= self._threshold or self._down >= self._threshold

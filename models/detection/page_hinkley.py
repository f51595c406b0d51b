"""Two-sided Page-Hinkley test (Page 1954; Hinkley 1971): cumulated deviations from the running mean."""

from __future__ import annotations

from typing import Annotated

from annotated_doc import Doc

from models.detection.protocols import check_positive, check_unit
from netsim.core.state import StateFields


class PageHinkley(StateFields):
    """Detector that declares a change when the cumulated deviation from the running mean is `threshold` away from its extreme.

    Upwards this is sum_t (x_t - mean_t - drift) less its least value so far, mean_t being the mean of the first t observations;
    downwards likewise. Both are computed as sums that are cut off at 0, which is the same.

    Example:
        >>> detector = PageHinkley(drift=0.1, threshold=5.0)
        >>> [t for t, x in enumerate([0.0] * 20 + [1.0] * 20) if detector.update(x)][0]
        26
    """

    state_fields = ("_count", "_total", "_up", "_down")

    def __init__(
        self,
        *,
        drift: Annotated[float, Doc("Change of the mean that is tolerated.")] = 0.1,
        threshold: Annotated[
            float,
            Doc("Distance of the cumulated deviation from its extreme at which a change is declared."),
        ] = 20.0,
    ) -> None:
        check_positive("drift", drift, zero=True)
        check_positive("threshold", threshold)
        self._drift, self._threshold = drift, threshold
        self.reset()

    def reset(self) -> None:
        """Forget all observations."""
        self._count = 0
        self._total = self._up = self._down = 0.0

    def update(self, x: float) -> bool:
        """Take in `x` in [0, 1]. Return True if a deviation has reached its threshold. Raises ParameterError for any other x."""
        check_unit(x)
        self._count += 1
        self._total += x
        deviation = x - self._total / self._count
        self._up = max(0.0, self._up + deviation - self._drift)
        self._down = max(0.0, self._down - deviation - self._drift)
        return self._up >= self._threshold or self._down >= self._threshold

"""Two-sided Page-Hinkley test (Page 1954; Hinkley 1971): cumulated deviations from the running mean."""

from __future__ import annotations

from typing import Annotated

from annotated_doc import Doc

from models.detection.protocols import check_unit
from models.detection.two_sided import TwoSidedSums


class PageHinkley(TwoSidedSums):
    """Detector that declares a change when the cumulated deviation from the running mean is `threshold` away from its extreme.

    Upwards this is sum_t (x_t - mean_t - drift) less its least value so far, mean_t being the mean of the first t observations;
    downwards likewise. Both are computed as sums that are cut off at 0, which is the same.

    Example:
        >>> detector = PageHinkley(drift=0.1, threshold=5.0)
        >>> [t for t, x in enumerate([0.0] * 20 + [1.0] * 20) if detector.update(x)][0]
        26
    """

    def __init__(
        self,
        *,
        drift: Annotated[float, Doc("Change of the mean that is tolerated.")] = 0.1,
        threshold: Annotated[
            float,
            Doc("Distance of the cumulated deviation from its extreme at which a change is declared."),
        ] = 20.0,
    ) -> None:
        super().__init__(drift, threshold)

    def update(self, x: float) -> bool:
        """Take in `x` in [0, 1]. Return True if a deviation has reached its threshold. Raises ParameterError for any other x."""
        check_unit(x)
        self._count += 1
        self._total += x
        return self._add(x - self._total / self._count)

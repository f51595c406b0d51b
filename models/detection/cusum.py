"""Two-sided CUSUM (Page 1954) in the form of CUSUM-UCB (Liu, Lee and Shroff 2018, Algorithm 2)."""

from __future__ import annotations

from typing import Annotated

from annotated_doc import Doc

from models.detection.protocols import check_unit
from models.detection.two_sided import TwoSidedSums
from models.errors import ParameterError


class Cusum(TwoSidedSums):
    """Detector that declares a change when a one-sided sum of deviations from the first observations' mean reaches `threshold`.

    The first `warm_up` observations give the mean u. From then on up <- max(0, up + x - u - drift), and down <- max(0, down + u
    - x - drift). A mean that is estimated from few observations leads to false alarms: the method has them.

    Example:
        >>> detector = Cusum(warm_up=20, drift=0.1, threshold=5.0)
        >>> [t for t, x in enumerate([0.0] * 20 + [1.0] * 20) if detector.update(x)][0]
        25
    """

    def __init__(
        self,
        *,
        warm_up: Annotated[int, Doc("Number of first observations that give the mean.")] = 100,
        drift: Annotated[float, Doc("Change of the mean that is tolerated.")] = 0.1,
        threshold: Annotated[float, Doc("One-sided sum of deviations at which a change is declared.")] = 20.0,
    ) -> None:
        if warm_up < 1:
            raise ParameterError("warm_up", warm_up, "must be >= 1 observation")
        super().__init__(drift, threshold)
        self._warm_up = warm_up

    def update(self, x: float) -> bool:
        """Take in `x` in [0, 1]. Return True if a sum has reached its threshold. Raises ParameterError for any other x."""
        check_unit(x)
        if self._count < self._warm_up:
            self._count += 1
            self._total += x
            return False
        return self._add(x - self._total / self._warm_up)

"""Gamma and Weibull laws of durations, which many measured times follow.

As every law of `models.laws.delays` they have `quantile(u, entities)`, seconds for uniforms `u` (n,) of the clients `entities`
(n,), `mean_s(entities)`, and `constant`, True if a duration does not depend on `u`.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_doc import Doc

from models.laws.delays import FloatArray, IntArray, PerClient, check_same_clients, per_client, pick, spread

# With smaller shapes the mean is many orders of magnitude above the median, and quantiles lose their digits.
_LEAST_SHAPE, _LARGEST_SHAPE = 1e-2, 1e9
_LARGEST_SCALE_S = 1e100


class Gamma:
    """Gamma law: the sum of `shape` exponential stages if `shape` is whole.

    The quantile at u is scale_s times the inverse of the regularised incomplete gamma function P(shape, .) at u.

    Example:
        >>> import numpy as np
        >>> Gamma(mean_s=2.0, shape=4.0).quantile(np.array([0.5]), np.array([0])).round(4)
        array([1.836])
    """

    constant = False

    def __init__(
        self,
        *,
        mean_s: Annotated[PerClient, Doc("Mean in seconds.")],
        shape: Annotated[PerClient, Doc("Shape; the variance is mean_s^2 / shape. 1 is the exponential law.")],
    ) -> None:
        self._mean = per_client("mean_s", mean_s, high=_LARGEST_SCALE_S)
        self._shape = per_client("shape", shape, low=_LEAST_SHAPE, high=_LARGEST_SHAPE, unit="")
        check_same_clients(mean_s=self._mean, shape=self._shape)

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray:
        from scipy.special import gammaincinv

        shape = pick(self._shape, entities)
        return np.asarray(pick(self._mean, entities) * (gammaincinv(shape, u) / shape))

    def mean_s(self, entities: IntArray) -> FloatArray:
        return spread(self._mean, entities)


class Weibull:
    """Weibull law: scale_s times an exponential variable to the power 1/shape. Its mean is scale_s Gamma(1 + 1/shape).

    Example:
        >>> import numpy as np
        >>> law = Weibull(scale_s=2.0, shape=1.0)  # the exponential law of mean 2 s
        >>> law.quantile(np.array([0.5]), np.array([0])).round(4)
        array([1.3863])
    """

    constant = False

    def __init__(
        self,
        *,
        scale_s: Annotated[PerClient, Doc("Scale in seconds: the quantile at 1 - 1/e, some 63 %.")],
        shape: Annotated[PerClient, Doc("Shape; below 1 the tail is heavier than exponential, above 1 lighter.")],
    ) -> None:
        self._scale = per_client("scale_s", scale_s, high=_LARGEST_SCALE_S)
        self._shape = per_client("shape", shape, low=_LEAST_SHAPE, high=_LARGEST_SHAPE, unit="")
        check_same_clients(scale_s=self._scale, shape=self._shape)

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray:
        exponential = -np.log1p(-u)
        power = 1.0 / np.asarray(pick(self._shape, entities))
        return np.asarray(pick(self._scale, entities) * exponential**power)

    def mean_s(self, entities: IntArray) -> FloatArray:
        from scipy.special import gamma

        return np.asarray(spread(self._scale, entities) * gamma(1.0 + 1.0 / np.asarray(pick(self._shape, entities))))

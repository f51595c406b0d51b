"""Laws of the noise of local training: the factor of the time for a sample, drawn once an update, with mean 1.

Every law has `quantile(u, entities)`: factors at uniforms `u` (n,) in [0, 1), finite, >= 0 and not decreasing in `u`; and
`constant`, True if the factor does not depend on `u`.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.laws.delays import FloatArray, IntArray, PerClient, per_client, pick

# Uniforms are multiples of 2^-53. 0 stands for [0, 2^-53): the middle replaces it, because the normal score of 0 is -inf.
_SMALLEST_U = 2.0**-54


class Constant:
    """Factor 1: a client always takes the same time for the same number of samples.

    Example:
        >>> import numpy as np
        >>> Constant().quantile(np.array([0.1, 0.9]), np.array([0, 1]))
        array([1., 1.])
    """

    constant = True

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray:
        return np.ones(len(entities))


class LogNormal:
    """exp of a normal law with mean -sigma^2/2, so that the factor has mean 1.

    Example:
        >>> import numpy as np
        >>> LogNormal(sigma=0.5).quantile(np.array([0.1, 0.9]), np.array([0, 1])).round(3)
        array([0.465, 1.675])
    """

    def __init__(self, *, sigma: Annotated[PerClient, Doc("Standard deviation of the logarithm.")]) -> None:
        # With this limit the largest draw stays finite.
        self._sigma = per_client("sigma", sigma, high=30.0, unit="")
        self.constant = not np.any(self._sigma)

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray:
        from scipy.special import ndtri

        sigma = pick(self._sigma, entities)
        normal_scores = ndtri(np.maximum(u, _SMALLEST_U))
        return np.asarray(np.exp(sigma * (normal_scores - 0.5 * sigma)))


class Gamma:
    """Gamma law with mean 1 and variance 1/shape: 1 is the exponential law, large shapes are nearly constant.

    Example:
        >>> import numpy as np
        >>> Gamma(shape=2.0).quantile(np.array([0.1, 0.9]), np.array([0, 1])).round(3)
        array([0.266, 1.945])
    """

    constant = False

    def __init__(self, *, shape: Annotated[PerClient, Doc("Shape of the law; its variance is 1/shape.")]) -> None:
        self._shape = per_client("shape", shape, low=1e-3, high=1e9, unit="")
        if not np.all(np.greater(self._shape, 0.0)):
            raise ParameterError("shape", shape, "must be > 0")

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray:
        from scipy.special import gammaincinv

        shape = pick(self._shape, entities)
        return np.asarray(gammaincinv(shape, u) / shape)

"""Local differential privacy of model updates: a client bounds its update and adds noise before it sends it.

An update with an infinite budget is sent unchanged. A coordinate that is NaN (a diverged training) becomes 0 before it is
bounded, so that noise is sent and no error.

Laplace noise gives epsilon-LDP, Gaussian noise (epsilon, delta)-LDP. Its standard deviation is calibrated exactly (Balle and
Wang 2018, Theorem 8): the classic sqrt(2 ln(1.25/delta)) sensitivity/epsilon holds for epsilon < 1 only, and the first
participations of a schedule often spend more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.accounting import gaussian_scale
from models.errors import ParameterError

FloatArray = NDArray[np.float64]
_LARGEST = 1e38
"""Largest sensitivity: updates are clamped to 32-bit floats."""
Generators = Callable[[int], np.random.Generator]
"""Function that returns the random generator of a row, which is that of its client and round."""


class Mechanism(Protocol):
    """Mechanism that protects the updates of one aggregation."""

    guarantee: str
    """Guarantee of one participation with budget epsilon, in words."""
    protects: bool
    """True if a finite budget changes an update."""

    def protect(self, updates: Tensor, epsilon: FloatArray, generators: Generators) -> Tensor:
        """Return the updates (n, d) as the server receives them, row k under budget epsilon[k] > 0 (inf: unchanged)."""


def _check_sensitivity(sensitivity: float) -> None:
    """Raise ParameterError unless 0 < `sensitivity` <= 1e38."""
    if not 0 < sensitivity <= _LARGEST:
        raise ParameterError("mechanism.sensitivity", sensitivity, f"must be > 0 and at most {_LARGEST:g}")


def draw_laplace(size: int, scale: float, rng: np.random.Generator) -> Tensor:
    """Draw `size` centred Laplace variates of this scale, float32: the difference of two exponentials."""
    draws = rng.standard_exponential((2, size), dtype=np.float32)
    return torch.from_numpy(draws[0] - draws[1]) * scale


Noise = Callable[[int, float, np.random.Generator], Tensor]
"""Function that returns the variates of one row, from their number, the budget epsilon and a generator."""


def _laplace_noise(sensitivity: float) -> Noise:
    """Return a function that draws Laplace noise for this sensitivity."""

    def noise(size: int, epsilon: float, rng: np.random.Generator) -> Tensor:
        """Draw `size` Laplace variates of the scale that epsilon needs."""
        # The budget of a very late participation can underflow to 0: the noise is then infinite, and the server refuses the
        # update.
        scale = sensitivity / epsilon if epsilon > 0 else math.inf
        return draw_laplace(size, scale, rng)

    return noise


def _gaussian_noise(sensitivity: float, delta: float) -> Noise:
    """Return a function that draws Gaussian noise for this sensitivity. Raises ParameterError unless 0 < `delta` < 1."""
    if not 0 < delta < 1:
        raise ParameterError("mechanism.delta", delta, "must be in (0, 1)")

    def noise(size: int, epsilon: float, rng: np.random.Generator) -> Tensor:
        """Draw `size` normal variates of the deviation that (epsilon, delta) needs."""
        deviation = sensitivity * gaussian_scale(epsilon, delta)
        return torch.from_numpy(rng.standard_normal(size, dtype=np.float32)) * deviation

    return noise


def _protect(bounded: Tensor, updates: Tensor, noise: Noise, epsilon: FloatArray, generators: Generators) -> Tensor:
    """Return the bounded rows of finite budget with noise, and the other rows of `updates` unchanged."""
    released = updates.clone()
    for row in np.flatnonzero(np.isfinite(epsilon)).tolist():
        row_noise = noise(updates.shape[1], float(epsilon[row]), generators(row))
        released[row] = bounded[row] + row_noise.to(updates.device)
    return released


def _clamp(updates: Tensor, half: float) -> Tensor:
    """Return the updates (n, d) with every coordinate clamped to +-`half`; NaN becomes 0."""
    return updates.nan_to_num(nan=0.0, posinf=half, neginf=-half).clamp_(-half, half)


def _scale_down(updates: Tensor, largest: float, order: int) -> Tensor:
    """Return the updates (n, d) with rows scaled down to a norm of this `order` (1 or 2) of at most `largest`."""
    bounded = updates.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    norms = torch.linalg.vector_norm(bounded, order, dim=1, keepdim=True, dtype=torch.float64)
    factor: Tensor = (largest / norms.clamp(min=1e-300)).clamp(max=1.0)
    return bounded * factor.to(updates.dtype)


class NoMechanism:
    """Null object: updates are sent unchanged."""

    guarantee = "none: updates are sent unprotected"
    protects = False

    def protect(self, updates: Tensor, epsilon: FloatArray, generators: Generators) -> Tensor:
        return updates


class _BoundedAndNoised:
    """Mechanism that bounds an update by half the `sensitivity`, so that two differ by at most all of it, and adds noise.

    `bound(updates, half)` returns bounded updates (n, d); `noise` draws the noise of a row.
    """

    protects = True

    def __init__(self, sensitivity: float, bound: Callable[[Tensor, float], Tensor], noise: Noise) -> None:
        _check_sensitivity(sensitivity)
        self._half, self._bound, self._noise = sensitivity / 2, bound, noise

    def protect(self, updates: Tensor, epsilon: FloatArray, generators: Generators) -> Tensor:
        return _protect(self._bound(updates, self._half), updates, self._noise, epsilon, generators)


class PerCoordinate(_BoundedAndNoised):
    """Mechanism that clamps every coordinate to +-sensitivity/2 and adds Laplace(sensitivity/epsilon) to each.

    It is that of the PAUSE authors' code (eq. 5).
    """

    guarantee = "epsilon-LDP for every single coordinate of an update; d times epsilon for the vector of d coordinates"

    def __init__(self, *, sensitivity: float) -> None:
        super().__init__(sensitivity, _clamp, _laplace_noise(sensitivity))


class L1(_BoundedAndNoised):
    """Mechanism that scales an update down to L1 norm sensitivity/2 and adds Laplace(sensitivity/epsilon) to each coordinate.

    It is PAUSE's eq. 5. Any two updates are then at most `sensitivity` apart in L1 norm: the Laplace mechanism's condition for
    the whole vector.
    """

    guarantee = "epsilon-LDP for the whole update vector"

    def __init__(self, *, sensitivity: float) -> None:
        super().__init__(sensitivity, partial(_scale_down, order=1), _laplace_noise(sensitivity))


class GaussianPerCoordinate(_BoundedAndNoised):
    """Mechanism that clamps every coordinate to +-sensitivity/2 and adds normal noise, calibrated to one coordinate."""

    guarantee = "(epsilon, delta)-LDP for every single coordinate of an update; (d epsilon, d delta) for the vector of d"

    def __init__(self, *, sensitivity: float, delta: float) -> None:
        super().__init__(sensitivity, _clamp, _gaussian_noise(sensitivity, delta))


class L2(_BoundedAndNoised):
    """Mechanism that scales an update down to L2 norm sensitivity/2 and adds normal noise to each coordinate.

    Any two updates are then at most `sensitivity` apart in L2 norm: the Gaussian mechanism's condition for the whole vector.
    """

    guarantee = "(epsilon, delta)-LDP for the whole update vector"

    def __init__(self, *, sensitivity: float, delta: float) -> None:
        super().__init__(sensitivity, partial(_scale_down, order=2), _gaussian_noise(sensitivity, delta))


MECHANISMS: dict[str, Callable[..., Mechanism]] = {
    "none": NoMechanism,
    "per_coordinate": PerCoordinate,
    "l1": L1,
    "gaussian_per_coordinate": GaussianPerCoordinate,
    "l2": L2,
}
"""Mechanisms by the mode that `models.privacy.guarantee` describes."""

"""Local differential privacy of model updates: what a client does to its update before it is sent.

Every mechanism first bounds the update and then adds Laplace noise; an update with an infinite budget is sent as it is. A
coordinate that is not a number (a diverged training) becomes 0 before it is bounded, so that what is sent is noise and no error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FloatArray = NDArray[np.float64]
Generators = Callable[[int], np.random.Generator]
"""The random generator of a row: that of its client and round."""


class Mechanism(Protocol):
    """Protects the updates of one aggregation."""

    guarantee: str
    """In words, what one participation with budget epsilon is worth."""

    def protect(self, updates: Tensor, epsilon: FloatArray, generators: Generators) -> Tensor:
        """The updates (n, d) as the server receives them, row k under budget epsilon[k] > 0 (inf: unchanged)."""


def _check_sensitivity(sensitivity: float) -> None:
    if not 0 < sensitivity < math.inf:
        raise ValueError(f"mechanism.sensitivity = {sensitivity!r}: must be a finite number > 0")


def laplace(size: int, scale: float, rng: np.random.Generator) -> Tensor:
    """Centred Laplace variates of this scale, float32: the difference of two exponentials."""
    draws = rng.standard_exponential((2, size), dtype=np.float32)
    return torch.from_numpy(draws[0] - draws[1]) * scale


def _add_noise(bounded: Tensor, updates: Tensor, sensitivity: float, epsilon: FloatArray, generators: Generators) -> Tensor:
    out = updates.clone()
    for row in np.flatnonzero(np.isfinite(epsilon)).tolist():
        # A very late participation's budget can underflow to 0: the noise is then infinite, and the server refuses the update.
        scale = sensitivity / epsilon[row] if epsilon[row] > 0 else math.inf
        out[row] = bounded[row] + laplace(updates.shape[1], scale, generators(row)).to(updates.device)
    return out


class NoMechanism:
    """Updates are sent as they are."""

    guarantee = "none: updates are sent unprotected"

    def protect(self, updates: Tensor, epsilon: FloatArray, generators: Generators) -> Tensor:
        return updates


class PerCoordinate:
    """Clamp every coordinate to +-sensitivity/2, add Laplace(sensitivity/epsilon) to each (the PAUSE authors' code; eq. 5)."""

    guarantee = "epsilon-LDP for every single coordinate of an update; d times epsilon for the vector of d coordinates"

    def __init__(self, *, sensitivity: float) -> None:
        _check_sensitivity(sensitivity)
        self._sensitivity = sensitivity

    def protect(self, updates: Tensor, epsilon: FloatArray, generators: Generators) -> Tensor:
        half = self._sensitivity / 2
        bounded = updates.nan_to_num(nan=0.0, posinf=half, neginf=-half).clamp_(-half, half)
        return _add_noise(bounded, updates, self._sensitivity, epsilon, generators)


class L1:
    """Scale an update down to L1 norm sensitivity/2, add Laplace(sensitivity/epsilon) to each coordinate (PAUSE eq. 5).

    Any two updates are then at most `sensitivity` apart in L1 norm: the Laplace mechanism's condition for the whole vector.
    """

    guarantee = "epsilon-LDP for the whole update vector"

    def __init__(self, *, sensitivity: float) -> None:
        _check_sensitivity(sensitivity)
        self._sensitivity = sensitivity

    def protect(self, updates: Tensor, epsilon: FloatArray, generators: Generators) -> Tensor:
        bounded = updates.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        norms = bounded.abs().sum(1, keepdim=True, dtype=torch.float64)
        factor = (self._sensitivity / 2 / norms.clamp(min=1e-300)).clamp(max=1.0)
        return _add_noise(bounded * factor.to(updates.dtype), updates, self._sensitivity, epsilon, generators)

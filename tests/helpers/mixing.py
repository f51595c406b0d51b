"""Spectral figures of mixing weights."""

from __future__ import annotations

import numpy as np

from models.peers.mixing import Mixing


def second_modulus(mixing: Mixing) -> float:
    """Return the second largest modulus of the eigenvalues of W, by which disagreement shrinks a round."""
    return float(np.sort(np.abs(np.linalg.eigvals(mixing.matrix())))[-2])


def keeps_mean(mixing: Mixing) -> bool:
    """Return True if the columns of W sum to 1, so that mixing keeps the mean of all models."""
    return bool(np.allclose(mixing.matrix().sum(axis=0), 1.0, rtol=0, atol=1e-9))

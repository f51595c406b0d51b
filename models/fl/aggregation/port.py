"""The aggregation of Port: by staleness, and by the direction of an update relative to the server's movement since it started.

Su and Li, "How Asynchronous Can Federated Learning Be?", IWQoS 2022. The weight of an update is proportional to n_k [w_s (cos_k
+ 1)/2 + w_t b/(s_k + b)], normalised to sum 1: cos_k between the update and the server's movement since the version that it
started from, s_k its staleness, b the bound. (The authors' code compares with the model of two versions before, whatever the
staleness, and only if it is above 1.)
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from models.fl.aggregation.rules import Arrivals, FloatArray, PlainUpdates, sum_weighted
from models.fl.options.parameters import PortParameters


class Port(PortParameters, PlainUpdates):
    """Aggregation with weights by staleness and direction; the cosine with a vector of zeros, such as no movement, is 0.

    Example:
        >>> import numpy as np
        >>> arrivals = Arrivals(np.array([1, 1]), np.array([0, 10]), None, lambda: np.random.default_rng(1))
        >>> Port().weights(np.zeros(2), arrivals)
        array([0.6, 0.4])
    """

    def step(self, model: Tensor, starts: Tensor, updates: Tensor, arrivals: Arrivals, factors: FloatArray) -> Tensor:
        """Return the weighted sum (d,) of `updates` (n, d), each times its staleness factor as well."""
        # The server's own versions, if clients received something else (compressed models).
        origins = starts if arrivals.origins is None else arrivals.origins()
        movements = model - origins
        weights = self.weights(cosines(updates, movements), arrivals)
        return sum_weighted(weights * factors, updates)

    def weights(self, cosine: FloatArray, arrivals: Arrivals) -> FloatArray:
        """Return the weight of each update (n,); they sum to 1. `cosine` (n,), in [-1, 1]."""
        freshness = self.bound / (arrivals.staleness + self.bound)
        raw = arrivals.sizes * (self.similarity * (cosine + 1.0) / 2.0 + self.freshness * freshness)
        return np.asarray(raw / raw.sum(), np.float64)


def cosines(first: Tensor, second: Tensor) -> FloatArray:
    """Return the cosines (n,) between the rows of `first` and `second` (n, d), 0 if one of them is all zeros."""
    # In 64 bits, because the sums have many terms, and rows may be very long or nearly zero.
    rows, other_rows = first.double(), second.double()
    norms = rows.norm(dim=1) * other_rows.norm(dim=1)
    products = (rows * other_rows).sum(dim=1)
    quotients = products / norms.clamp_min(torch.finfo(torch.float64).tiny)
    cosine = torch.where(norms > 0.0, quotients, torch.zeros_like(norms))
    # Rounding may leave the range of cosines.
    return np.asarray(cosine.clamp(-1.0, 1.0).cpu().numpy(), np.float64)

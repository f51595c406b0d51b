"""The aggregation of REFL: late updates count by their age, and by how far they go from the fresh ones.

Abdelmoniem, Sahu, Canini and Fahmy, "REFL: Resource-Efficient Federated Learning", EuroSys 2023. A fresh update has the weight 1,
one of staleness s (1 - beta) / (s + 1) + beta (1 - exp(-L_k / L_max)), and all are made to sum to 1. L_k = |ubar - ubar_k|^2 /
|ubar|^2, ubar the mean of the fresh updates and ubar_k that mean with update k folded in; L_max is the greatest of the late ones.
(The authors' code divides the exponent by 10: `scale`.) As the paper's formula is recalled.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from models.fl.aggregation.rules import Arrivals, FloatArray, IntArray, PlainUpdates, weighted
from models.fl.parameters import ReflParameters


class Refl(ReflParameters, PlainUpdates):
    """Weights as above; without a fresh update, and where no late one goes from them at all, age alone counts."""

    def step(self, model: Tensor, starts: Tensor, updates: Tensor, arrivals: Arrivals, factors: FloatArray) -> Tensor:
        weights = self.weights(deviations(updates, arrivals.staleness), arrivals.staleness)
        return weighted(weights * factors, updates)

    def weights(self, deviation: FloatArray, staleness: IntArray) -> FloatArray:
        """(n,) each update's weight; they sum to 1. `deviation` (n,) is L_k times any factor, 0 of the fresh."""
        greatest = float(deviation.max())
        away = 1.0 - np.exp(-deviation / greatest / self.scale) if greatest > 0.0 else np.zeros(len(deviation))
        raw = np.where(staleness == 0, 1.0, (1.0 - self.beta) / (staleness + 1.0) + self.beta * away)
        return np.asarray(raw / raw.sum(), np.float64)


def deviations(updates: Tensor, staleness: IntArray) -> FloatArray:
    """(n,) how far each late one of `updates` (n, d) goes from the mean of the fresh, squared; 0 of the fresh, or without any.

    To fold an update into the mean of n others moves it by 1/(n + 1) of the distance between them: what is the same for all late
    ones, as |ubar| is, cancels in L_k / L_max.
    """
    found: FloatArray = np.zeros(len(staleness))
    fresh, late = np.flatnonzero(staleness == 0).tolist(), np.flatnonzero(staleness > 0).tolist()
    if fresh and late:
        # In 64 bits: squares of many numbers, which may be small.
        away = updates[late].double() - updates[fresh].double().mean(0)
        found[late] = away.square().sum(1).cpu().numpy()
    return found

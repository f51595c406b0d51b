"""The aggregation of REFL: late updates count by their age, and by their deviation from the fresh ones.

Abdelmoniem, Sahu, Canini and Fahmy, "REFL: Resource-Efficient Federated Learning", EuroSys 2023. A fresh update has weight 1,
one of staleness s (1 - beta) / (s + 1) + beta (1 - exp(-L_k / L_max)), and all are normalised to sum 1. L_k is |ubar - ubar_k|^2
over |ubar|^2, ubar the mean of the fresh updates and ubar_k that mean with update k included; L_max is the greatest of the late
ones. (The authors' code divides the exponent by 10: `scale`.) The formula is the paper's as recalled.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from models.fl.aggregation.rules import Arrivals, FloatArray, IntArray, PlainUpdates, sum_weighted
from models.fl.options.parameters import ReflParameters


class Refl(ReflParameters, PlainUpdates):
    """Aggregation with weights by age and deviation; age alone counts without a fresh update, or if no late one deviates.

    Example:
        >>> import numpy as np
        >>> Refl().weights(np.array([0.0, 1.0, 4.0]), np.array([0, 1, 2])).round(3)
        array([0.543, 0.219, 0.238])
    """

    def step(self, model: Tensor, starts: Tensor, updates: Tensor, arrivals: Arrivals, factors: FloatArray) -> Tensor:
        """Return the weighted sum (d,) of `updates` (n, d), each times its staleness factor as well."""
        weights = self.weights(deviations(updates, arrivals.staleness), arrivals.staleness)
        return sum_weighted(weights * factors, updates)

    def weights(self, deviation: FloatArray, staleness: IntArray) -> FloatArray:
        """Return the weight of each update (n,); they sum to 1. `deviation` (n,) is L_k times any factor, 0 for fresh updates."""
        greatest = float(deviation.max())
        boost = 1.0 - np.exp(-deviation / greatest / self.scale) if greatest > 0.0 else np.zeros(len(deviation))
        of_late = (1.0 - self.beta) / (staleness + 1.0) + self.beta * boost
        weights = np.where(staleness == 0, 1.0, of_late)
        return np.asarray(weights / weights.sum(), np.float64)


def deviations(updates: Tensor, staleness: IntArray) -> FloatArray:
    """Return the squared distance (n,) of each late update from the mean of the fresh ones; 0 for fresh updates.

    `updates`: (n, d). REFL measures how far a late update moves the mean of the m fresh ones, relative to the norm of the mean:
    by 1 / (m + 1) of the distance. Both factors are the same for all late updates and cancel in L_k / L_max.
    """
    distances: FloatArray = np.zeros(len(staleness))
    fresh, late = np.flatnonzero(staleness == 0).tolist(), np.flatnonzero(staleness > 0).tolist()
    if fresh and late:
        # In 64 bits, because many squares, some of them small, are added.
        differences = updates[late].double() - updates[fresh].double().mean(0)
        distances[late] = differences.square().sum(1).cpu().numpy()
    return distances

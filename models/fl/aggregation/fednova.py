"""FedNova: updates are divided by how far their local steps went, so that who takes more steps does not pull the model its way.

Wang, Liu, Liang, Joshi and Poor, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", NeurIPS
2020. Delta_k is -eta times the gradients weighted by a_k (eq. 5); w <- w + tau_eff sum of p_k Delta_k / |a_k|_1 (eq. 6), p_k the
shares of samples of the delivered. tau_eff is the sum of p_k |a_k|_1, and of p_k tau_k with a proximal term, as in the authors'
code (`distoptim/FedNova.py`), which counts momentum and a proximal term together twice; here |a_k|_1 follows both at once.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from models.fl.aggregation.rules import Arrivals, FloatArray, PlainUpdates, weighted
from models.fl.demands import LocalSteps
from models.fl.parameters import FedNovaParameters


def accumulated(local: LocalSteps) -> FloatArray:
    """|a_k|_1 (n,): the sum of the absolute weights that the gradients of an update's steps have in it, in multiples of the rate.

    The weight of the gradient of a step follows by letting it alone be 1 and all others 0: the parameters go by it, the velocity
    keeps `momentum` of it, and a proximal term draws them back.
    """
    away, velocity = 1.0, 1.0
    weights = [0.0]
    for _ in range(int(local.taken.max(initial=0))):
        weights.append(abs(away))
        velocity = local.momentum * velocity - local.rate * local.proximal * away
        away += velocity
    return np.cumsum(weights)[local.taken]


class FedNova(FedNovaParameters, PlainUpdates):
    """tau_eff sum of p_k Delta_k / |a_k|_1. Updates without a step are left out; running statistics are averaged."""

    def step(self, model: Tensor, starts: Tensor, updates: Tensor, arrivals: Arrivals, factors: FloatArray) -> Tensor:
        local = arrivals.needed_steps()
        stepped = local.taken > 0
        if not stepped.any():
            return torch.zeros_like(model)
        shares = np.where(stepped, arrivals.sizes, 0) / arrivals.sizes[stepped].sum()
        norms = np.where(stepped, accumulated(local), 1.0)
        effective = float(shares @ (local.taken if local.proximal else norms))
        step = weighted(effective * shares / norms, updates)
        width = arrivals.parameters_of(updates)
        step[width:] = weighted(shares, updates[:, width:])
        return step

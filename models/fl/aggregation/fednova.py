"""FedNova: updates are divided by the length of their local steps, so that clients with more steps do not dominate the model.

Wang, Liu, Liang, Joshi and Poor, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
NeurIPS 2020. Delta_k is -eta times the gradients weighted by a_k (eq. 5); w <- w + tau_eff sum of p_k Delta_k / |a_k|_1 (eq.
6), p_k the shares of samples among the delivered updates. tau_eff is the sum of p_k |a_k|_1, and of p_k tau_k with a proximal
term, as in the authors' code (`distoptim/FedNova.py`), which counts momentum and a proximal term together twice; here |a_k|_1
follows both at once.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from models.fl.aggregation.rules import Arrivals, FloatArray, PlainUpdates, sum_weighted
from models.fl.options.demands import LocalSteps
from models.fl.options.parameters import FedNovaParameters


def sum_weights(local: LocalSteps) -> FloatArray:
    """Return |a_k|_1 (n,), the sum of the absolute weights of the gradients in each update, in multiples of the rate.

    The weight of one gradient is found by a recursion: with this gradient 1 and all others 0, it is the distance that the
    parameters have moved at the end. The velocity keeps `momentum` of it, and a proximal term draws the parameters back.
    """
    moved, velocity = 1.0, 1.0
    weights = [0.0]  # of no gradient; then of the last gradient, of the one before it, and so on
    for _ in range(int(local.taken.max(initial=0))):
        weights.append(abs(moved))
        velocity = local.momentum * velocity - local.rate * local.proximal * moved
        moved += velocity
    # Entry tau of the cumulative sums belongs to the last tau gradients.
    return np.cumsum(weights)[local.taken]


class FedNova(FedNovaParameters, PlainUpdates):
    """Aggregation to the step tau_eff sum of p_k Delta_k / |a_k|_1.

    Updates without a local step are left out; running statistics are averaged.

    Example:
        >>> FedNova().demands.report_bytes
        8
    """

    def step(self, model: Tensor, starts: Tensor, updates: Tensor, arrivals: Arrivals, factors: FloatArray) -> Tensor:
        """Return the step (d,) of the model (eq. 6): tau_eff times the mean of `updates` (n, d), each divided by its |a_k|_1.

        Zero if no client took a local step. `starts` and the staleness `factors` are not used.
        """
        local = arrivals.require_steps()
        has_steps = local.taken > 0
        if not has_steps.any():
            return torch.zeros_like(model)
        shares = np.where(has_steps, arrivals.sizes, 0) / arrivals.sizes[has_steps].sum()  # p_k
        norms = np.where(has_steps, sum_weights(local), 1.0)  # |a_k|_1; the 1 stands for updates whose share is 0
        effective_steps = float(shares @ (local.taken if local.proximal else norms))  # tau_eff
        step = sum_weighted(effective_steps * shares / norms, updates)
        # The columns after the parameters are running statistics: average them, whatever the number of steps.
        width = arrivals.count_parameters(updates)
        step[width:] = sum_weighted(shares, updates[:, width:])
        return step

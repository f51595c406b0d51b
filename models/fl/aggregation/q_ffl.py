"""q-FFL by q-FedAvg: clients with a large loss count more, so that the losses of clients become more equal.

Li, Sanjabi, Beirami and Smith, "Fair Resource Allocation in Federated Learning", ICLR 2020, Algorithm 2. F_k is the loss of
client k on all its samples at the received model w, L = 1/eta, z_k = L (w - w_k): w <- w - sum of F_k^q z_k / sum of (q
F_k^(q-1) |z_k|^2 + L F_k^q). Clients are not weighted by samples; with q = 0, or if all losses are 0, it is their mean. As in
the authors' code, 1e-10 is added to F_k.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from models.fl.aggregation.rules import Arrivals, FloatArray, PlainUpdates, sum_weighted
from models.fl.options.parameters import QFflParameters

_LEAST_LOSS = 1e-10
"""Number that is added to every loss."""


class QFfl(QFflParameters, PlainUpdates):
    """Aggregation to the sum of F_k^q Delta_k over the sum of q L F_k^(q-1) |Delta_k|^2 + F_k^q, Delta_k = w_k - w.

    It is the paper's step, with numerator and denominator divided by L. A client that computed no loss, because it took no
    step, is left out. Running statistics are averaged, weighted by F_k^q.

    Example:
        >>> QFfl(q=2.0).demands.loss
        'received'
    """

    def step(self, model: Tensor, starts: Tensor, updates: Tensor, arrivals: Arrivals, factors: FloatArray) -> Tensor:
        """Return the step (d,) of the model from `updates` (n, d); staleness factors are not used."""
        reported = arrivals.require_losses()
        losses = reported + _LEAST_LOSS
        known = np.isfinite(losses)
        if not known.any():
            return torch.zeros_like(model)
        if not (reported[known] > 0).any():
            # All losses are 0: take the mean.
            return sum_weighted(known / known.sum(), updates)
        # Losses are divided by the largest, and the whole fraction by its q-th power, so that no power overflows.
        largest = float(losses[known].max())
        relative = np.where(known, losses, 0.0) / largest
        powers = np.where(known, relative**self.q, 0.0)
        # F_k^(q-1). Entries without a loss are set to 1 first, because 0 has no negative power.
        positive = np.where(known, relative, 1.0)
        lower_powers = np.where(known, positive ** (self.q - 1.0), 0.0) / largest
        width = arrivals.count_parameters(updates)
        squared_norms = updates[:, :width].double().square().sum(1).cpu().numpy()
        rate = arrivals.require_steps().rate  # 1/L
        denominator = (self.q / rate * lower_powers * squared_norms + powers).sum()
        step = sum_weighted(powers / denominator, updates)
        step[width:] = sum_weighted(powers / powers.sum(), updates[:, width:])
        return step

"""q-FFL by q-FedAvg: clients with a large loss count more, so that losses come out more alike.

Li, Sanjabi, Beirami and Smith, "Fair Resource Allocation in Federated Learning", ICLR 2020, Algorithm 2. F_k is the loss of
client k on all its samples at the received model w, L = 1/eta, z_k = L (w - w_k): w <- w - sum of F_k^q z_k / sum of
(q F_k^(q-1) |z_k|^2 + L F_k^q). Clients are not weighted by samples; with q = 0, or where all losses are 0, it is their mean. The
authors' code adds 1e-10 to F_k, as is done here.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from models.fl.aggregation.rules import Arrivals, FloatArray, PlainUpdates, weighted
from models.fl.parameters import QFflParameters

_LEAST_LOSS = 1e-10


class QFfl(QFflParameters, PlainUpdates):
    """F_k^q Delta_k over the sum of q L F_k^(q-1) |Delta_k|^2 + F_k^q: the above, divided by L.

    A client that computed no loss, as it took no step, is left out. Running statistics are averaged, weighted by F_k^q.
    """

    def step(self, model: Tensor, starts: Tensor, updates: Tensor, arrivals: Arrivals, factors: FloatArray) -> Tensor:
        losses = arrivals.needed_losses() + _LEAST_LOSS
        known = np.isfinite(losses)
        if not known.any():
            return torch.zeros_like(model)
        if not (arrivals.needed_losses()[known] > 0).any():
            return weighted(known / known.sum(), updates)
        # Of the largest loss, and the whole fraction by its q-th power: no power of a loss can then be too large.
        largest = float(losses[known].max())
        share = np.where(known, losses, 0.0) / largest
        powers = np.where(known, share**self.q, 0.0)
        below = np.where(known, np.where(known, share, 1.0) ** (self.q - 1.0), 0.0) / largest
        width = arrivals.parameters_of(updates)
        squares = updates[:, :width].double().square().sum(1).cpu().numpy()
        total = (self.q / arrivals.needed_steps().rate * below * squares + powers).sum()
        step = weighted(powers / total, updates)
        step[width:] = weighted(powers / powers.sum(), updates[:, width:])
        return step

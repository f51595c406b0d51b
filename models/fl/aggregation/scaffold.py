"""SCAFFOLD: control variates remove the drift of clients from their gradients.

Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML
2020, Algorithm 1. A client with control variate c_k steps by y <- y - eta (g_k(y) - c_k + c) (line 10), ends with c_k+ = c_k -
c + (x - y)/(tau eta) (line 12, option II; option I: with the gradient over all its samples at x), and sends y - x and c_k+ -
c_k. The server takes the unweighted mean of the former, times its own rate (`server_optimizer.learning_rate`), and c <- c +
(1/K) sum of the latter (lines 16 and 17). All c start at 0.

The steps must be those of plain sgd: with momentum or a proximal term (x - y)/(tau eta) is not the mean of the gradients.
Weight decay is part of the objective whose gradients are meant.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from models.fl.aggregation.rules import Equal
from models.fl.options.demands import LocalSteps
from models.fl.options.parameters import ScaffoldParameters
from models.fl.protocols import Correction


class ControlVariates:
    """Correction of local steps by control variates c_k and their mean c. `models.fl.protocols.Correction` explains it."""

    keeps = True
    pull = 0.0
    on_server = 0.0

    def shift(self, own: Tensor, mean: Tensor) -> Tensor:
        """Return c - c_k, which is added to the gradients of clients; `own` (n, d): c_k, `mean` (d,): c."""
        return mean - own

    def new_vectors(self, own: Tensor, mean: Tensor, moved: Tensor, local: LocalSteps, gradients: Tensor | None) -> Tensor:
        """Return c_k+ (n, d): `gradients` with option I, else c_k - c + (x - y)/(tau eta), with `moved` (n, d) = y - x."""
        if gradients is not None:
            return gradients
        has_steps = local.taken > 0
        # 1/(tau eta) of each client.
        per_step = np.divide(1.0, local.taken * local.rate, out=np.zeros(len(local.taken)), where=has_steps)
        mean_steps = moved * torch.from_numpy(per_step.astype(np.float32)).to(moved.device)[:, None]
        # A client without steps keeps its control variate.
        is_renewed = torch.from_numpy(has_steps).to(moved.device)[:, None]
        return torch.where(is_renewed, own - mean - mean_steps, own)


class Scaffold(ScaffoldParameters, Equal):
    """Aggregation to the mean of the delivered updates, each trained with its client's control variate.

    Example:
        >>> Scaffold().demands.steps
        'plain'
    """

    correction: Correction = ControlVariates()

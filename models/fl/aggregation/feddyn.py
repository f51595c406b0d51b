"""FedDyn: a linear and a quadratic term, different for each client, align the optima of clients with the common optimum.

Acar, Zhao, Matas, Mattina, Whatmough and Saligrama, "Federated Learning Based on Dynamic Regularization", ICLR 2021, Algorithm
1. A client minimises F_k(theta) - <g_k, theta> + (alpha/2) |theta - w|^2, then g_k <- g_k - alpha (theta_k - w). The server: h
<- h - (alpha/K) sum over the delivered of (theta_k - w); w <- mean of theta_k - h/alpha. Here g_k = -alpha H_k, H_k the sum of
a client's updates so far, as in the authors' code, so that h/alpha is minus the mean of H_k over all K clients. The code
divides alpha by K times a client's share of the data; here it is the same for all, as in the paper. The code reports the
accuracy of the mean of theta_k; here the accuracy is always that of w.
"""

from __future__ import annotations

from torch import Tensor

from models.fl.aggregation.rules import Equal
from models.fl.options.demands import LocalSteps
from models.fl.options.parameters import FedDynParameters


class DynamicRegularisation:
    """Correction of local steps by H_k, the sum of a client's delivered updates. `models.fl.protocols.Correction` explains it."""

    keeps = True
    on_server = 1.0

    def __init__(self, *, alpha: float) -> None:
        self.pull = alpha

    def shift(self, own: Tensor, mean: Tensor) -> Tensor:
        """Return alpha H_k = -g_k, which is added to the gradients of clients; `own` (n, d): H_k."""
        return own * self.pull

    def new_vectors(self, own: Tensor, mean: Tensor, moved: Tensor, local: LocalSteps, gradients: Tensor | None) -> Tensor:
        """Return H_k (n, d) after the updates `moved` (n, d)."""
        return own + moved


class FedDyn(FedDynParameters, Equal):
    """Aggregation that adds the mean of H_k over all clients to the mean of the delivered updates.

    Example:
        >>> FedDyn(alpha=0.1).correction.pull
        0.1
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.correction = DynamicRegularisation(alpha=self.alpha)

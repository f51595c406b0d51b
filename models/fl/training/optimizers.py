"""Local optimisers on matrices with one row for each client; their steps are those of torch.optim on one client."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.fl.options.parameters import AdamParameters, SgdParameters

IntArray = NDArray[np.int64]


class Sgd(SgdParameters):
    """Stochastic gradient descent with momentum (no dampening) and weight decay added to the gradient.

    Example:
        >>> import numpy as np
        >>> import torch
        >>> theta, gradient = torch.ones(1, 2), torch.tensor([[1.0, -1.0]])
        >>> Sgd(learning_rate=0.1).step(theta, gradient, [], np.array([1]))
        >>> theta
        tensor([[0.9000, 1.1000]])
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.moments = 1 if self.momentum else 0
        self.rate: float | None = self.learning_rate

    def step(self, theta: Tensor, gradient: Tensor, moments: Sequence[Tensor], counts: IntArray) -> None:
        if self.weight_decay:
            gradient.add_(theta, alpha=self.weight_decay)
        if self.momentum:
            gradient = moments[0].mul_(self.momentum).add_(gradient)
        theta.sub_(gradient, alpha=self.learning_rate)


class Adam(AdamParameters):
    """Adam (Kingma and Ba 2015), weight decay added to the gradient.

    Example:
        >>> import numpy as np
        >>> import torch
        >>> theta, gradient = torch.ones(1, 2), torch.tensor([[1.0, -1.0]])
        >>> Adam(learning_rate=0.1).step(theta, gradient, [torch.zeros(1, 2), torch.zeros(1, 2)], np.array([1]))
        >>> theta
        tensor([[0.9000, 1.1000]])
    """

    moments = 2
    rate: float | None = None
    momentum = 0.0

    def step(self, theta: Tensor, gradient: Tensor, moments: Sequence[Tensor], counts: IntArray) -> None:
        """Take one step of each client: `theta` and `moments` are changed in place, and `gradient` is overwritten."""
        if self.weight_decay:
            gradient.add_(theta, alpha=self.weight_decay)
        first, second = moments
        first.lerp_(gradient, 1 - self.beta1)
        second.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        steps: NDArray[np.float64] = counts.astype(np.float64)
        # Both moments start at zero: divide by 1 - beta^steps, which corrects the bias.
        scale = second.sqrt().div_(_column(np.sqrt(1 - self.beta2**steps), theta)).add_(self.epsilon)
        rate = _column(self.learning_rate / (1 - self.beta1**steps), theta)
        theta.sub_(torch.mul(first, rate, out=gradient).div_(scale))


def _column(values: NDArray[np.float64], like: Tensor) -> Tensor:
    """Return one number for each row (n, 1), on the device and with the precision of `like`."""
    return torch.from_numpy(values).to(like.device, like.dtype).unsqueeze(1)


OPTIMIZERS = {"sgd": Sgd, "adam": Adam}

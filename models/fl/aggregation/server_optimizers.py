"""Server optimizers: `step(delta)` turns an aggregated step `delta` (d,) into the step (d,) of the model.

Each keeps its state from one aggregation to the next.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from models.fl.options.parameters import (
    FedAdagradParameters,
    FedAdamParameters,
    FedAvgMParameters,
    FedYogiParameters,
    Parameters,
    ServerSgdParameters,
)
from models.fl.protocols import ServerOptimizer
from netsim.core.state import State


class ServerSgd(ServerSgdParameters):
    """Step learning_rate * delta; with rate 1 the model moves to the clients' mean (FedAvg).

    Example:
        >>> import torch
        >>> ServerSgd(learning_rate=0.5).step(torch.tensor([2.0]))
        tensor([1.])
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rate: float | None = self.learning_rate

    def step(self, delta: Tensor) -> Tensor:
        return delta if self.learning_rate == 1 else delta * self.learning_rate

    def state_dict(self) -> State:
        """Return an empty state."""
        return {}

    def load_state_dict(self, state: State, device: torch.device) -> None:
        """Do nothing: there is no state."""


class _WithMoments(Parameters):
    """Base class of optimizers that keep vectors (d,) from step to step; none before the first step."""

    rate: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._moments: dict[str, Tensor] = {}

    def state_dict(self) -> State:
        """Return copies of the vectors as arrays, by name."""
        return {name: moment.cpu().numpy().copy() for name, moment in self._moments.items()}

    def load_state_dict(self, state: State, device: torch.device) -> None:
        """Restore the vectors on `device`."""
        self._moments = {name: torch.from_numpy(np.array(moment, np.float32)).to(device) for name, moment in state.items()}


class FedAvgM(_WithMoments, FedAvgMParameters):
    """v <- momentum v + delta, step learning_rate v (Hsu, Qi and Brown 2019).

    Example:
        >>> import torch
        >>> optimizer = FedAvgM(momentum=0.5)
        >>> optimizer.step(torch.tensor([2.0])), optimizer.step(torch.tensor([2.0]))
        (tensor([2.]), tensor([3.]))
    """

    def step(self, delta: Tensor) -> Tensor:
        velocity = self._moments.get("velocity")
        if velocity is None:
            # A copy, because the caller's step is changed later.
            velocity = delta.clone()
            self._moments["velocity"] = velocity
        else:
            velocity.mul_(self.momentum).add_(delta)
        return velocity * self.learning_rate


class _Adaptive(_WithMoments):
    """Base class: m <- beta1 m + (1 - beta1) delta, v by the method, step learning_rate m / (sqrt(v) + tau).

    Reddi et al. 2021, Algorithm 2: no correction of the bias of the first steps; m starts at 0, v at tau^2.
    """

    learning_rate: float
    beta1: float
    tau: float

    @abstractmethod
    def second(self, before: Tensor, delta: Tensor) -> Tensor:
        """Return v (d,) after the step `delta` (d,); `before` may be changed in place."""

    def step(self, delta: Tensor) -> Tensor:
        """Update both moments by `delta` (d,), and return the step (d,) of the model."""
        if not self._moments:
            self._moments = {"first": torch.zeros_like(delta), "second": torch.full_like(delta, self.tau**2)}
        first = self._moments["first"].lerp_(delta, 1 - self.beta1)
        second = self.second(self._moments["second"], delta)
        self._moments["second"] = second
        return first.div(second.sqrt().add_(self.tau)).mul_(self.learning_rate)


class FedAdam(FedAdamParameters, _Adaptive):
    """v <- beta2 v + (1 - beta2) delta^2 (Reddi et al. 2021, Algorithm 2).

    Example:
        >>> import torch
        >>> FedAdam(learning_rate=0.1).step(torch.tensor([2.0, -2.0])).round(decimals=3)
        tensor([ 0.1000, -0.1000])
    """

    def second(self, before: Tensor, delta: Tensor) -> Tensor:
        return before.mul_(self.beta2).addcmul_(delta, delta, value=1 - self.beta2)


class FedAdagrad(FedAdagradParameters, _Adaptive):
    """v <- v + delta^2 (Reddi et al. 2021, Algorithm 2).

    Example:
        >>> import torch
        >>> FedAdagrad(learning_rate=0.1).step(torch.tensor([2.0, -2.0])).round(decimals=3)
        tensor([ 0.1000, -0.1000])
    """

    def second(self, before: Tensor, delta: Tensor) -> Tensor:
        return before.addcmul_(delta, delta)


class FedYogi(FedYogiParameters, _Adaptive):
    """v <- v - (1 - beta2) delta^2 sign(v - delta^2) (Reddi et al. 2021, Algorithm 2).

    Example:
        >>> import torch
        >>> FedYogi(learning_rate=0.1).step(torch.tensor([2.0, -2.0])).round(decimals=3)
        tensor([ 0.1000, -0.1000])
    """

    def second(self, before: Tensor, delta: Tensor) -> Tensor:
        square = delta.square()
        direction = before.sub(square).sign_()
        return before.addcmul_(square, direction, value=-(1 - self.beta2))


SERVER_OPTIMIZERS: dict[str, Callable[..., ServerOptimizer]] = {
    "sgd": ServerSgd,
    "fedavgm": FedAvgM,
    "fedadagrad": FedAdagrad,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
}

"""Marginal contribution of each client to the model, from the last update that the server has of it.

Channel study, Section V (after Jiang et al. 2023): C_i = (1 - cos(grad_i, grad_-i)) err(D^_i; w_-i). The server keeps each
client's last delivered gradient and model, because it cannot see a client whose upload failed, and a small validation set for
each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.errors import ParameterError
from models.fl.evaluation.quality import Randomness, draw_local_sets, measure
from models.fl.learners.task import Task
from models.fl.options.names import TrainingOptions
from models.fl.training.local_trainer import LocalTrainer
from netsim.core.state import State

MOST_SAMPLES = 10**6
"""Largest number of samples of a client: more would repeat the same ones, in a list for each client."""

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
ErrorOf = Callable[[Tensor, int], float]
"""Function that returns the share of client i's validation set that the model (d,) classifies wrongly."""


class Contributions:
    """Marginal contributions of K clients.

    grad_-i and w_-i are the means over the other clients, weighted by the previous zeta = C / sum C (equal at first): the
    leave-one-out means (grad_all - zeta_i grad_i)/(1 - zeta_i) of the study's eq. 41 and 42. A gradient is minus a delivered
    update: its scale does not matter. A client that has delivered nothing gets the mean contribution of the others; while fewer
    than two have delivered, all contributions are 1.
    """

    def __init__(self, *, clients: int, parameters: int, error_of: ErrorOf) -> None:
        self._clients, self._parameters = clients, parameters
        self._error_of = error_of
        self._updates: dict[int, Tensor] = {}
        """Last delivered update of each client, its parameters only."""
        self._models: dict[int, Tensor] = {}
        """Model after training of each client's last delivered update."""
        self._values: FloatArray = np.ones(clients)
        """(K,) C_i as last computed."""
        self._changed = False
        """True if an update was delivered since the values were computed."""

    def record(self, clients: IntArray, updates: Tensor, models: Tensor) -> None:
        """Store delivered updates and models (n, d), in place of the clients' last ones; updates without running statistics."""
        for row, client in enumerate(clients.tolist()):
            self._updates[client] = updates[row, : self._parameters].clone()
            self._models[client] = models[row].clone()
        self._changed = self._changed or len(clients) > 0

    def contribution(self) -> FloatArray:
        """Return each client's C_i >= 0 (K,), computed at the first call after a delivery, by K evaluations on small sets."""
        # A single client has no others to compare with.
        if self._changed and len(self._updates) > 1:
            self._values = self._compute()
        self._changed = False
        return self._values.copy()

    def _compute(self) -> FloatArray:
        """Return the contributions (K,) from the stored updates and models, by the formula at the head of this file."""
        known = sorted(self._updates)
        updates = torch.stack([self._updates[client] for client in known])
        models = torch.stack([self._models[client] for client in known])
        zeta = self._values[known]
        contributions = np.empty(len(known))
        for row, client in enumerate(known):
            is_other = np.arange(len(known)) != row
            # Weights of the other clients; equal if all their zeta are 0.
            shares = np.where(is_other, zeta, 0.0)
            if not shares.sum() > 0:
                shares = is_other.astype(np.float64)
            weights = torch.from_numpy((shares / shares.sum()).astype(np.float32)).to(updates.device)
            mean_of_others = weights @ updates
            norms = float(updates[row].norm() * mean_of_others.norm())
            # An update of zeros has no direction; it counts as orthogonal to the mean.
            cosine = float(updates[row] @ mean_of_others) / norms if norms > 0 else 0.0
            contributions[row] = max(0.0, 1.0 - cosine) * self._error_of(weights @ models, client)
        # Clients that have delivered nothing get the mean.
        values = np.full(self._clients, contributions.mean())
        values[known] = contributions
        return values

    def state_dict(self) -> State:
        """Return the last update and model of each client that has delivered, and the contributions computed from them."""
        known = sorted(self._updates)
        return {
            "clients": known,
            "updates": [self._updates[client].cpu().numpy().copy() for client in known],
            "models": [self._models[client].cpu().numpy().copy() for client in known],
            "values": self._values.copy(),
            "changed": self._changed,
        }

    def load_state_dict(self, state: State, device: torch.device) -> None:
        """Restore what `state_dict` returned, with float32 tensors on `device`."""

        def tensors(arrays: list[Any]) -> dict[int, Tensor]:
            """Return saved arrays as tensors on the device, by client."""
            loaded = (torch.from_numpy(np.array(array, np.float32)).to(device) for array in arrays)
            return dict(zip(state["clients"], loaded, strict=True))

        self._updates, self._models = tensors(state["updates"]), tensors(state["models"])
        self._values, self._changed = np.array(state["values"], np.float64), bool(state["changed"])


def make_contributions(
    *, trainer: LocalTrainer, task: Task, streams: Randomness, options: TrainingOptions
) -> Contributions | None:
    """Return the meter of contributions; None if `contribution_samples` is 0.

    It tests models on that number of validation samples for each client, with labels in the proportions of its training data.

    Raises:
        ParameterError: there is no validation set, or it holds none of a client's labels.
    """
    samples, batch_statistics = options.contribution_samples, options.batch_statistics == "local"
    if not samples:
        return None
    dataset = task.dataset
    if not len(dataset.validation_y):
        raise ParameterError("contribution_samples", samples, "there are no validation samples; set data.validation_samples")
    if samples > MOST_SAMPLES:
        raise ParameterError("contribution_samples", samples, f"must be at most {MOST_SAMPLES:,} a client")
    labels, generator = dataset.validation_y.numpy(), streams.generator("contribution-samples")
    try:
        sets = draw_local_sets(labels, task.label_counts, "own", samples=samples, generator=generator)
    except ValueError as error:
        raise ParameterError("contribution_samples", samples, f"among the validation samples, {error}") from error
    x = dataset.validation_x.to(trainer.device)
    y = dataset.targets(dataset.validation_y).to(trainer.device)

    def error_of(model: Tensor, client: int) -> float:
        """Return the share of the client's validation samples that the model classifies wrongly."""
        rows = torch.from_numpy(sets[client]).to(y.device)
        is_right = measure(trainer, model, x[rows], y[rows], task.loss, batch_statistics).is_right
        return 1.0 - float(is_right.mean())

    return Contributions(clients=len(sets), parameters=trainer.parameters, error_of=error_of)

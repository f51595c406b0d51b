"""Corrections of the gradients of local training, and the vectors that clients and the server keep for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from models.fl.options.demands import LocalSteps
from models.fl.protocols import Correction
from models.fl.training.client_vectors import ClientVectors
from netsim.core.state import State


class Corrections:
    """Vectors of `correction`: one for each of all `clients`, and their mean on the server.

    Both change together, on delivery of the update that carries the change, so that the mean is always exact. Clients without a
    delivery have zeros, which take no memory.
    """

    def __init__(self, *, correction: Correction, clients: int, numbers: int, most_bytes: int, device: torch.device) -> None:
        self._correction, self._clients = correction, clients
        self.keeps = correction.keeps
        """True if the method keeps vectors; otherwise only the states may be called."""
        self._own = ClientVectors(most_bytes=most_bytes)
        self.mean = torch.zeros(numbers, device=device)
        """Mean (d,) of the vectors of all clients."""

    def vectors_of(self, clients: Sequence[int]) -> Tensor:
        """Return the vectors (n, d) of these clients."""
        rows = self.mean.new_zeros(len(clients), len(self.mean))
        self._own.add_to(rows, clients)
        return rows

    def shift(self, own: Tensor) -> Tensor:
        """Return the term that is added to every gradient (n, d) of clients with the vectors `own` (n, d)."""
        return self._correction.shift(own, self.mean)

    def new_vectors(self, own: Tensor, moved: Tensor, local: LocalSteps, gradients: Tensor | None) -> Tensor:
        """Return the new vectors (n, d) of clients after training; `protocols.Correction.new_vectors` explains the arguments."""
        return self._correction.new_vectors(own, self.mean, moved, local, gradients)

    def deliver(self, clients: Sequence[int], own: Tensor, new: Tensor) -> None:
        """Replace the vectors `own` (n, d) of `clients`, each client once, by `new` (n, d): their updates have arrived.

        Vectors stay unchanged if the new ones are not finite.
        """
        is_finite = new.isfinite().all(1)
        changed = [client for client, finite in zip(clients, is_finite.tolist(), strict=True) if finite]
        # The mean over all clients moves by the sum of these changes, divided by the number of all clients.
        self.mean += (new[is_finite] - own[is_finite]).sum(0) / self._clients
        self._own.keep(changed, new[is_finite])

    def add_to(self, step: Tensor, columns: slice | Tensor) -> None:
        """Add the server's part of the correction to `columns` of its `step`, in place."""
        if self._correction.on_server:
            step[columns] += self._correction.on_server * self.mean

    def state_dict(self) -> State:
        return {"own": self._own.state_dict(), "mean": self.mean.cpu().numpy().copy()} if self.keeps else {}

    def load_state_dict(self, state: State, device: torch.device) -> None:
        if self.keeps:
            self._own.load_state_dict(state["own"], device)
            self.mean = torch.from_numpy(np.array(state["mean"], np.float32)).to(device)

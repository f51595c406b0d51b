"""What every client keeps from one participation to the next: its statistics of batch normalisation, its optimizer's state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.fl.training.client_vectors import check_bytes

IntArray = NDArray[np.int64]


@dataclass
class OptimizerStates:
    """The optimizers' states of n clients: `moments`, each (n, parameters), and the `steps` (n,) that each has taken so far."""

    moments: list[Tensor]
    steps: IntArray

    def keep(self, rows: list[int], moments: list[Tensor], steps: IntArray) -> None:
        """The clients at `rows` ended with `moments`, each (rows, parameters), after `steps` (rows,)."""
        for whole, moment in zip(self.moments, moments, strict=True):
            whole[rows] = moment
        self.steps[rows] = steps


class Kept(NamedTuple):
    """One client's own state; empty where it has none of a kind."""

    statistics: Tensor
    """(buffers,) running statistics."""
    moments: Tensor
    """(moments, parameters) of its optimizer."""
    steps: int
    """Steps that its optimizer has taken."""

    def is_finite(self) -> bool:
        """Whether a client can go on from it: not after a training that diverged."""
        return bool(self.statistics.isfinite().all()) and bool(self.moments.isfinite().all())


class ClientMemory:
    """By client what it kept last; `statistics` and `optimizer` say of what. A client that never took part starts without memory.

    What a client kept goes on with the updates that were delivered: an update that was lost or aborted is never computed, and
    its client goes on as if it had not trained. States of optimizers may take `most_bytes`.
    """

    def __init__(self, *, statistics: bool, optimizer: bool, most_bytes: int) -> None:
        self.keeps_statistics, self.keeps_optimizer = statistics, optimizer
        self._most_bytes = most_bytes
        self._kept: dict[int, Kept] = {}

    @property
    def keeps(self) -> bool:
        """Whether clients keep anything at all."""
        return self.keeps_statistics or self.keeps_optimizer

    @property
    def statistics(self) -> dict[int, Tensor]:
        """Running statistics of those clients that have their own."""
        return {client: kept.statistics for client, kept in self._kept.items()} if self.keeps_statistics else {}

    def copy(self) -> ClientMemory:
        """The same, to go on from without changing this one."""
        other = ClientMemory(statistics=self.keeps_statistics, optimizer=self.keeps_optimizer, most_bytes=self._most_bytes)
        other._kept = dict(self._kept)
        return other

    def recall_statistics(self, clients: Sequence[int], rows: Tensor) -> None:
        """Write their own statistics into `rows` (n, buffers), where clients have any."""
        if not self.keeps_statistics:
            return
        for row, client in zip(rows, clients, strict=True):
            if client in self._kept:
                row.copy_(self._kept[client].statistics)

    def recall_optimizers(self, clients: Sequence[int], *, moments: int, like: Tensor) -> OptimizerStates | None:
        """States of these clients' optimizers, of so many `moments` shaped `like` (n, parameters); None: all start without
        memory."""
        if not self.keeps_optimizer:
            return None
        states = OptimizerStates([torch.zeros_like(like) for _ in range(moments)], np.zeros(len(clients), np.int64))
        for row, client in enumerate(clients):
            kept = self._kept.get(client)
            if kept is not None:
                states.steps[row] = kept.steps
                for moment, value in zip(states.moments, kept.moments, strict=True):
                    moment[row] = value
        return states

    def keep(self, clients: Sequence[int], statistics: Tensor, states: OptimizerStates | None) -> None:
        """Clients, each once, ended with these `statistics` (n, buffers) and optimizer states; what is not finite is dropped.

        Raises:
            MemoryError: the states of all optimizers take more than `most_bytes`.
        """
        if not self.keeps:
            return
        for row, client in enumerate(clients):
            kept = Kept(
                statistics[row].clone() if self.keeps_statistics else statistics.new_zeros(0),
                statistics.new_zeros(0) if states is None else torch.stack([moment[row] for moment in states.moments]),
                0 if states is None else int(states.steps[row]),
            )
            if kept.is_finite():
                self._kept[client] = kept
        if states is not None:
            check_bytes(len(self._kept), len(states.moments) * states.moments[0].shape[1], self._most_bytes)

    def state_dict(self) -> dict[str, Any]:
        return {
            "clients": list(self._kept),
            "statistics": [kept.statistics.cpu().numpy().copy() for kept in self._kept.values()],
            "moments": [kept.moments.cpu().numpy().copy() for kept in self._kept.values()],
            "steps": [kept.steps for kept in self._kept.values()],
        }

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        def tensors(name: str) -> list[Tensor]:
            return [torch.from_numpy(np.array(row, np.float32)).to(device) for row in state[name]]

        rows = zip(tensors("statistics"), tensors("moments"), map(int, state["steps"]), strict=True)
        self._kept = {int(client): Kept(*row) for client, row in zip(state["clients"], rows, strict=True)}

"""State of every client that is kept from one job to the next: batch-normalisation statistics, optimizer state, and state of a
user's trainer.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.fl.training.client_vectors import check_bytes
from models.fl.training.jobs import StateId
from netsim.core.state import State

IntArray = NDArray[np.int64]


@dataclass
class OptimizerStates:
    """Optimizer states of n clients: `moments`, each (n, parameters), and the number of `steps` (n,) so far."""

    moments: list[Tensor]
    steps: IntArray

    def keep(self, rows: list[int], moments: list[Tensor], steps: IntArray) -> None:
        """Store the final `moments`, each (rows, parameters), and `steps` (rows,) of the clients at `rows`."""
        for whole, moment in zip(self.moments, moments, strict=True):
            whole[rows] = moment
        self.steps[rows] = steps


class ClientState(NamedTuple):
    """State of one client; fields are empty without a state of their kind."""

    statistics: Tensor
    """Running statistics (buffers,)."""
    moments: Tensor
    """Moments (moments, parameters) of the optimizer."""
    steps: int
    """Number of steps that the optimizer has taken."""
    own: Any = None
    """State that the user's trainer returned for the client."""
    round: int = 0
    """Round of the job that made this state."""

    def is_finite(self) -> bool:
        """Return True if all numbers are finite: after a training that diverged, a client cannot continue from the state."""
        return bool(self.statistics.isfinite().all()) and bool(self.moments.isfinite().all())


class ClientMemory:
    """Last state of each client. `statistics`, `optimizer` and `own` select its kinds. A client starts without a state.

    A state counts once the update that came with it is delivered. An update that is lost or aborted is never computed, and its
    client goes on as if it had not trained. States of optimizers may take `most_bytes`.
    """

    def __init__(self, *, statistics: bool, optimizer: bool, own: bool, most_bytes: int) -> None:
        self.keeps_statistics, self.keeps_optimizer, self.keeps_own = statistics, optimizer, own
        self._most_bytes = most_bytes
        self._kept: dict[int, ClientState] = {}

    @property
    def keeps(self) -> bool:
        """True if clients keep any state."""
        return self.keeps_statistics or self.keeps_optimizer or self.keeps_own

    def state_ids(self, clients: Sequence[int], rounds: Sequence[int]) -> list[StateId]:
        """Return the ids of the states from which jobs of `clients`, begun in `rounds`, continue, if all are computed in this
        order. A second job of a client continues from the state after its first.
        """
        last_round: dict[int, int] = {}
        """Round of each client's last job in the list so far."""
        ids = []
        for client, round in zip(clients, rounds, strict=True):
            kept = self._kept.get(client)
            kept_round = 0 if kept is None else kept.round
            ids.append(StateId(client, last_round.get(client, kept_round)))
            last_round[client] = round
        return ids

    def recall_own(self, clients: Sequence[int]) -> list[Any]:
        """Return the states that the user's trainer returned last for these clients; None for a client without a state."""
        return [self._kept[client].own if client in self._kept else None for client in clients]

    def keep_own(self, clients: Sequence[int], rounds: Sequence[int], states: Sequence[Any]) -> None:
        """Keep the states that the user's trainer returned for `clients`, beside their other states."""
        nothing = torch.zeros(0)
        for client, round, state in zip(clients, rounds, states, strict=True):
            before = self._kept.get(client, ClientState(statistics=nothing, moments=nothing, steps=0))
            self._kept[client] = before._replace(own=state, round=round)

    @property
    def statistics(self) -> dict[int, Tensor]:
        """Running statistics of clients that have their own, by client."""
        return {client: kept.statistics for client, kept in self._kept.items() if len(kept.statistics)}

    def copy(self) -> ClientMemory:
        """Return a copy that can be changed independently."""
        other = ClientMemory(
            statistics=self.keeps_statistics, optimizer=self.keeps_optimizer, own=self.keeps_own, most_bytes=self._most_bytes
        )
        other._kept = dict(self._kept)
        return other

    def recall_statistics(self, clients: Sequence[int], rows: Tensor) -> None:
        """Write the statistics of these clients into `rows` (n, buffers); rows of clients without their own stay."""
        if not self.keeps_statistics:
            return
        for row, client in zip(rows, clients, strict=True):
            if client in self._kept:
                row.copy_(self._kept[client].statistics)

    def recall_optimizers(self, clients: Sequence[int], *, moments: int, like: Tensor) -> OptimizerStates | None:
        """Return the optimizer states of these clients, with a number of `moments` shaped `like` (n, parameters); None if all
        start without memory. A client without a state has zeros.
        """
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

    def keep(self, clients: Sequence[int], rounds: Sequence[int], statistics: Tensor, states: OptimizerStates | None) -> None:
        """Keep `statistics` (n, buffers) and optimizer states of `clients` after their jobs of `rounds`; each client once.

        States that are not finite are dropped.

        Raises:
            MemoryError: the states of all optimizers take more than `most_bytes`.
        """
        if not self.keeps:
            return
        nothing = statistics.new_zeros(0)
        for row, client in enumerate(clients):
            moments, steps = nothing, 0
            if states is not None:
                moments, steps = torch.stack([moment[row] for moment in states.moments]), int(states.steps[row])
            # The state of the user's trainer is kept by `keep_own`, and stays.
            own = self._kept[client].own if client in self._kept else None
            new = ClientState(
                statistics=statistics[row].clone() if self.keeps_statistics else nothing,
                moments=moments,
                steps=steps,
                own=own,
                round=rounds[row],
            )
            if new.is_finite():
                self._kept[client] = new
        if states is not None:
            numbers = len(states.moments) * states.moments[0].shape[1]
            check_bytes(len(self._kept), numbers, self._most_bytes)

    def state_dict(self) -> State:
        """Return the fields of all kept states, a list for each field; `clients` names the client of each entry."""
        states = self._kept.values()
        return {
            "clients": list(self._kept),
            "statistics": [state.statistics.cpu().numpy().copy() for state in states],
            "moments": [state.moments.cpu().numpy().copy() for state in states],
            "steps": [state.steps for state in states],
            "own": [deepcopy(state.own) for state in states],
            "rounds": [state.round for state in states],
        }

    def load_state_dict(self, state: State, device: torch.device) -> None:
        """Replace the states of all clients by those of `state`, with float32 tensors on `device`."""

        def tensors(name: str) -> list[Tensor]:
            """Return the rows of the entry `name` as tensors."""
            return [torch.from_numpy(np.array(row, np.float32)).to(device) for row in state[name]]

        clients, steps, rounds = (map(int, state[name]) for name in ("clients", "steps", "rounds"))
        # In the order of the fields of `ClientState`.
        fields = zip(tensors("statistics"), tensors("moments"), steps, deepcopy(state["own"]), rounds, strict=True)
        self._kept = {client: ClientState(*values) for client, values in zip(clients, fields, strict=True)}

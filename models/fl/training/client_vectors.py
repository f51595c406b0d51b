"""Vectors, as long as an update, that clients keep between participations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from netsim.core.state import State


def check_bytes(clients: int, numbers: int, most_bytes: int) -> None:
    """Raise MemoryError if `clients` vectors of `numbers` 32-bit numbers take more than `most_bytes`."""
    needed = 4 * clients * numbers
    if needed > most_bytes:
        raise MemoryError(
            f"client_state_bytes = {most_bytes}: the vectors that {clients} clients keep, of {numbers} numbers each, take "
            f"{needed} bytes; raise it, or use a smaller network or fewer clients"
        )


class ClientVectors:
    """A vector for each client, zeros before its first delivery: numbers that compression left out, or a correction of
    gradients.

    Vectors change with delivered updates only: an update that is lost, late or aborted is never computed, and its client keeps
    its vector. They take 4 d bytes for each client with a delivery, here and in a checkpoint, and at most `most_bytes`.
    """

    def __init__(self, *, most_bytes: int) -> None:
        self._vectors: dict[int, Tensor] = {}
        self._most_bytes = most_bytes

    def copy(self) -> ClientVectors:
        """Return a copy that can be changed independently."""
        other = ClientVectors(most_bytes=self._most_bytes)
        other._vectors = dict(self._vectors)
        return other

    def add_to(self, rows: Tensor, clients: Sequence[int]) -> None:
        """Add the vectors of these clients to `rows` (n, d), in place."""
        for row, client in zip(rows, clients, strict=True):
            vector = self._vectors.get(client)
            if vector is not None:
                row.add_(vector)

    def keep(self, clients: Sequence[int], vectors: Tensor) -> None:
        """Store `vectors` (n, d) of these clients, each client once. Vectors that are not finite are dropped.

        Raises:
            MemoryError: the vectors take more than `most_bytes`.
        """
        for row, client, is_finite in zip(vectors, clients, vectors.isfinite().all(1).tolist(), strict=True):
            if is_finite:
                self._vectors[client] = row.clone()
        check_bytes(len(self._vectors), vectors.shape[1], self._most_bytes)

    def state_dict(self) -> State:
        return {"clients": list(self._vectors), "vectors": [vector.cpu().numpy().copy() for vector in self._vectors.values()]}

    def load_state_dict(self, state: State, device: torch.device) -> None:
        rows = [torch.from_numpy(np.array(row, np.float32)).to(device) for row in state["vectors"]]
        self._vectors = dict(zip(map(int, state["clients"]), rows, strict=True))

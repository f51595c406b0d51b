"""A vector for each client that it keeps from participation to participation, as long as an update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def check_bytes(clients: int, numbers: int, most_bytes: int) -> None:
    """Raise MemoryError where `clients` vectors of so many 32-bit `numbers` take more than `most_bytes`."""
    takes = 4 * clients * numbers
    if takes > most_bytes:
        raise MemoryError(
            f"client_state_bytes = {most_bytes}: the vectors that {clients} clients keep, of {numbers} numbers each, take "
            f"{takes} bytes; raise it, or use a smaller network or fewer clients"
        )


class ClientVectors:
    """A vector for each client, zeros before its first delivery: what compression left out, or what corrects gradients.

    They go on with the updates that are delivered: one that is lost, late or aborted is never computed, and its client goes on
    from what it had before. They take 4 d bytes for each client of which one was delivered, here and in a checkpoint, and
    `most_bytes` in all.
    """

    def __init__(self, *, most_bytes: int) -> None:
        self._vectors: dict[int, Tensor] = {}
        self._most_bytes = most_bytes

    def copy(self) -> ClientVectors:
        """The same, to go on from without changing this one."""
        other = ClientVectors(most_bytes=self._most_bytes)
        other._vectors = dict(self._vectors)
        return other

    def add_to(self, rows: Tensor, clients: Sequence[int]) -> None:
        """Add the vectors of these clients to `rows` (n, d)."""
        for row, client in zip(rows, clients, strict=True):
            vector = self._vectors.get(client)
            if vector is not None:
                row.add_(vector)

    def keep(self, clients: Sequence[int], vectors: Tensor) -> None:
        """These clients, each once, go on from `vectors` (n, d); what is not finite is dropped.

        Raises:
            MemoryError: there are more than `most_bytes` of them.
        """
        for row, client, usable in zip(vectors, clients, vectors.isfinite().all(1).tolist(), strict=True):
            if usable:
                self._vectors[client] = row.clone()
        check_bytes(len(self._vectors), vectors.shape[1], self._most_bytes)

    def state_dict(self) -> dict[str, Any]:
        return {"clients": list(self._vectors), "vectors": [vector.cpu().numpy().copy() for vector in self._vectors.values()]}

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        rows = [torch.from_numpy(np.array(row, np.float32)).to(device) for row in state["vectors"]]
        self._vectors = dict(zip(map(int, state["clients"]), rows, strict=True))

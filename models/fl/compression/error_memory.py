"""What compression has left out of each client's updates so far, to be added to its next one (error feedback)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


class ErrorMemory:
    """By client what was left out, d numbers; nothing for a client of which no update was delivered.

    It goes on with the updates that are delivered: one that is lost, late or aborted is never computed, and its client goes on
    with what it had left out before. It takes 4 d bytes for each client of which one was delivered, here and in a checkpoint.
    """

    def __init__(self) -> None:
        self._left: dict[int, Tensor] = {}

    def copy(self) -> ErrorMemory:
        """The same, to go on from without changing this one."""
        other = ErrorMemory()
        other._left = dict(self._left)
        return other

    def add_to(self, rows: Tensor, clients: Sequence[int]) -> None:
        """Add what these clients left out to their updates `rows` (n, d)."""
        for row, client in zip(rows, clients, strict=True):
            left = self._left.get(client)
            if left is not None:
                row.add_(left)

    def keep(self, clients: Sequence[int], left: Tensor) -> None:
        """These clients, each once, have left out `left` (n, d); what is not finite is dropped."""
        for row, client, usable in zip(left, clients, left.isfinite().all(1).tolist(), strict=True):
            if usable:
                self._left[client] = row.clone()

    def state_dict(self) -> dict[str, Any]:
        return {"clients": list(self._left), "left": [left.cpu().numpy().copy() for left in self._left.values()]}

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        rows = [torch.from_numpy(np.array(row, np.float32)).to(device) for row in state["left"]]
        self._left = dict(zip(map(int, state["clients"]), rows, strict=True))

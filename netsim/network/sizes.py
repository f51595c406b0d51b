"""How many bytes the messages between server and clients have: one number for all clients, or one for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from netsim.core.errors import ParameterError

if TYPE_CHECKING:
    from netsim.core.protocols import IntArray


class Sizes:
    """Sizes in whole bytes: of the model as each client is sent it, and of the update as it is sent back.

    `down`, `up`: a number for all clients, or (K,). Raises ValueError for a negative size.
    """

    __slots__ = ("_down_each", "_up_each", "down", "up")

    def __init__(self, *, down: int | IntArray = 0, up: int | IntArray = 0) -> None:
        for name, size in (("down", down), ("up", up)):
            if np.min(size) < 0:
                raise ParameterError(name, np.min(size).item(), "must be >= 0 bytes")
        self.down = down
        self.up = up
        self._down_each = down if isinstance(down, np.ndarray) else None
        self._up_each = up if isinstance(up, np.ndarray) else None

    def of_model(self, client: int) -> int:
        """Bytes of the model on its way to `client`."""
        return self.down if self._down_each is None else int(self._down_each[client])  # type: ignore[return-value]

    def of_update(self, client: int) -> int:
        """Bytes of the update on its way from `client`."""
        return self.up if self._up_each is None else int(self._up_each[client])  # type: ignore[return-value]

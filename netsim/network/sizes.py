"""Sizes of the messages between server and clients, bytes: one number for all clients, or one for each."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from netsim.core.errors import ParameterError

if TYPE_CHECKING:
    from netsim.core.protocols import IntArray


class Sizes:
    """Sizes in whole bytes of the model sent to each client (`down`) and of the update sent back (`up`): a number for all
    clients, or (K,).

    `carried`: sizes of all messages (down, up) for carriers, which move bytes over shared links; None: those of each client.
    Raises ValueError for a negative size.
    """

    __slots__ = ("carried", "down", "up")

    def __init__(
        self, *, down: int | IntArray = 0, up: int | IntArray = 0, carried: tuple[int | None, int | None] = (None, None)
    ) -> None:
        for name, size in (("down", down), ("up", up)):
            if np.min(size) < 0:
                raise ParameterError(name, np.min(size).item(), "must be >= 0 bytes")
        self.down = down
        self.up = up
        self.carried = carried

    def model_sizes(self, clients: int) -> Sequence[int]:
        """Return the bytes [K] of the model sent to each of K `clients`."""
        return _expand(self.down, clients)

    def update_sizes(self, clients: int) -> Sequence[int]:
        """Return the bytes [K] of the update sent by each of K `clients`."""
        return _expand(self.up, clients)


def _expand(size: int | IntArray, clients: int) -> Sequence[int]:
    """Return `size` as a sequence with an entry for each of `clients`."""
    # An array of the standard library is as fast to read as a list, at a fifth of the size.
    if isinstance(size, np.ndarray):
        return array("q", size.astype(np.int64).tobytes())
    return [size] * clients

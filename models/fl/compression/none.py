"""No compression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from models.fl.compression.bits import NUMBER, Generators, whole_bytes

if TYPE_CHECKING:
    from torch import Tensor


class NoCompression:
    """Null object: numbers are sent unchanged, 4 bytes each.

    Example:
        >>> NoCompression().message_bytes([1000])
        4000
    """

    exact = True
    error_feedback = False
    whole_models = True
    needs_vote = False
    ratio: float | None = None

    def message_bytes(self, tensors: Sequence[int]) -> int:
        """Return the bytes of a message; `tensors`: numbers of each tensor."""
        return whole_bytes(NUMBER * sum(tensors))

    def compress(self, rows: Tensor, tensors: Sequence[int], generators: Generators) -> Tensor:
        """Return `rows` themselves."""
        return rows

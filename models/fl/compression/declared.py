"""A declared ratio of compression, for studies in which nothing is trained and there are no values to compress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from annotated_doc import Doc

from models.errors import ParameterError
from models.fl.compression.bits import NUMBER, Generators, check_share, share_of, whole_bytes

if TYPE_CHECKING:
    from torch import Tensor


class Declared:
    """Compression of a message to a share of its bytes, in studies in which nothing is trained.

    Example:
        >>> Declared(ratio=0.25).message_bytes([1000])
        1000
    """

    exact = False
    error_feedback = False
    whole_models = True
    needs_vote = False

    def __init__(
        self,
        *,
        ratio: Annotated[float, Doc("Bytes of a compressed message over those of a plain one, in (0, 1]; rounded up.")],
    ) -> None:
        check_share("ratio", ratio)
        self.ratio: float | None = ratio
        self._share = ratio

    def message_bytes(self, tensors: Sequence[int]) -> int:
        """Return the share of the bytes of a plain message; `tensors`: numbers of each tensor."""
        return share_of(self._share, whole_bytes(NUMBER * sum(tensors)))

    def compress(self, rows: Tensor, tensors: Sequence[int], generators: Generators) -> Tensor:
        """Raise ParameterError: there are no values to compress."""
        raise ParameterError("ratio", self.ratio, "a declared ratio compresses no values")

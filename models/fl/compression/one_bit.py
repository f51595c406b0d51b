"""One bit for every number, which chooses one of two means.

Seide, Fu, Droppo, Li and Yu, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of
Speech DNNs", Interspeech 2014. The paper has the two means of each column of a weight matrix; here they are those of the whole
update.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from annotated_doc import Doc

from models.fl.compression.bits import NUMBER, Generators, whole_bytes

if TYPE_CHECKING:
    from torch import Tensor


class OneBit:
    """Compression by two means (1-bit SGD): that of the numbers >= 0 replaces them, that of the negative ones those.

    A message holds one bit for each number, and the two means in 32 bits each.

    Example:
        >>> OneBit().message_bytes([1000])
        133
    """

    exact = False
    whole_models = False
    needs_vote = False
    ratio: float | None = None

    def __init__(
        self, *, error_feedback: Annotated[bool, Doc("True: add the remainder to the client's next update.")] = True
    ) -> None:
        self.error_feedback = error_feedback

    def message_bytes(self, tensors: Sequence[int]) -> int:
        """Return the bytes of a message; `tensors`: numbers of each tensor."""
        return whole_bytes(sum(tensors) + 2 * NUMBER)

    def compress(self, rows: Tensor, tensors: Sequence[int], generators: Generators) -> Tensor:
        """Return `rows` (n, d) with every number replaced by one of the two means of its row."""
        not_negative = rows >= 0
        counts = not_negative.sum(1, keepdim=True)
        upper_mean = rows.clamp(min=0.0).sum(1, keepdim=True) / counts.clamp(min=1)
        lower_mean = rows.clamp(max=0.0).sum(1, keepdim=True) / (rows.shape[1] - counts).clamp(min=1)
        return upper_mean.where(not_negative, lower_mean)

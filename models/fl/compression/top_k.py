"""The k largest numbers of an update (Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory", NeurIPS 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_doc import Doc

from models.errors import ParameterError
from models.fl.compression.bits import NUMBER, Generators, check_share, count_kept, position_bits, whole_bytes

if TYPE_CHECKING:
    from torch import Tensor

Positions = Literal["indices", "bitmap", "shorter"]


class TopK:
    """Compression that sends the k = max(1, ceil(share d)) numbers of largest magnitude out of d, 32 bits each.

    Ties go to the first numbers.

    Example:
        >>> TopK(share=0.1).message_bytes([1000])
        525
    """

    exact = False
    whole_models = False
    needs_vote = False
    ratio: float | None = None

    def __init__(
        self,
        *,
        share: Annotated[float, Doc("Share of the numbers that are sent, in (0, 1]; the number sent is rounded up.")],
        error_feedback: Annotated[
            bool, Doc("True: add numbers that are not sent to the client's next update (Seide et al. 2014); false: drop them.")
        ] = True,
        positions: Annotated[
            Positions,
            Doc(
                "Encoding of the positions of the sent numbers. indices: ceil(log2 d) bits for each; bitmap: one bit for each of "
                "the d; shorter: the shorter of these two."
            ),
        ] = "indices",
    ) -> None:
        check_share("share", share)
        if positions not in ("indices", "bitmap", "shorter"):
            raise ParameterError("positions", positions, "must be indices, bitmap or shorter")
        self.error_feedback = error_feedback
        self._share, self._positions = share, positions

    def message_bytes(self, tensors: Sequence[int]) -> int:
        """Return the bytes of a message, the positions of the sent numbers included; `tensors`: numbers of each tensor."""
        numbers = sum(tensors)
        kept = count_kept(self._share, numbers)
        return whole_bytes(NUMBER * kept + position_bits(self._positions, kept, numbers))

    def compress(self, rows: Tensor, tensors: Sequence[int], generators: Generators) -> Tensor:
        """Return `rows` (n, d) with 0 in place of the numbers that are not sent."""
        kept = count_kept(self._share, rows.shape[1])
        sizes = rows.abs()
        smallest_kept = sizes.topk(kept, dim=1).values[:, -1:]
        # `topk` does not document its choice among equal numbers: keep the first of them.
        larger, tied = sizes > smallest_kept, sizes == smallest_kept
        places_for_ties = kept - larger.sum(1, keepdim=True)
        is_kept = larger | (tied & (tied.cumsum(1) <= places_for_ties))
        return rows.masked_fill(~is_kept, 0.0)

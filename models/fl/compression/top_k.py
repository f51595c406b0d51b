"""The k largest numbers of an update (Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory", NeurIPS 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_doc import Doc

from models.errors import ParameterError
from models.fl.compression.bits import NUMBER, Generators, check_share, index_bits, kept_of, whole_bytes

if TYPE_CHECKING:
    from torch import Tensor

Positions = Literal["indices", "bitmap", "shorter"]


class TopK:
    """The k = max(1, ceil(share d)) numbers of largest magnitude out of d, 32 bits each; of equal ones those that come first."""

    exact = False
    whole_models = False
    needs_vote = False
    ratio: float | None = None

    def __init__(
        self,
        *,
        share: Annotated[float, Doc("Share of the numbers that are sent, in (0, 1]; the number sent is rounded up.")],
        error_feedback: Annotated[
            bool, Doc("What is not sent is added to the client's next update (Seide et al. 2014); false: it is dropped.")
        ] = True,
        positions: Annotated[
            Positions,
            Doc(
                "How it is told which numbers are sent. indices: ceil(log2 d) bits for each; bitmap: one bit for each of the d; "
                "shorter: whichever takes less."
            ),
        ] = "indices",
    ) -> None:
        check_share("share", share)
        if positions not in ("indices", "bitmap", "shorter"):
            raise ParameterError("positions", positions, "must be indices, bitmap or shorter")
        self.error_feedback = error_feedback
        self._share, self._positions = share, positions

    def message_bytes(self, tensors: Sequence[int]) -> int:
        numbers = sum(tensors)
        kept = kept_of(self._share, numbers)
        indices, bitmap = kept * index_bits(numbers), numbers
        positions = {"indices": indices, "bitmap": bitmap, "shorter": min(indices, bitmap)}[self._positions]
        return whole_bytes(NUMBER * kept + positions)

    def compress(self, rows: Tensor, tensors: Sequence[int], generators: Generators) -> Tensor:
        kept = kept_of(self._share, rows.shape[1])
        sizes = rows.abs()
        least = sizes.topk(kept, dim=1).values[:, -1:]
        # `topk` does not say which of several equal numbers it takes.
        above, equal = sizes > least, sizes == least
        free = kept - above.sum(1, keepdim=True)
        return rows.masked_fill(~(above | (equal & (equal.cumsum(1) <= free))), 0.0)

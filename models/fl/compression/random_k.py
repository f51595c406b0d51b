"""k random numbers of an update (Stich, Cordonnier and Jaggi, NeurIPS 2018; Wangni et al., NeurIPS 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.fl.compression.bits import NUMBER, Generators, check_share, count_kept, position_bits, whole_bytes

if TYPE_CHECKING:
    from torch import Tensor

Positions = Literal["seed", "indices", "bitmap", "shorter"]
_SEED = 64
"""Bits of a seed."""


class RandomK:
    """Compression that sends k = max(1, ceil(share d)) numbers out of d, every set of k equally likely, 32 bits each.

    Example:
        >>> RandomK(share=0.1).message_bytes([1000])
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
        scaled: Annotated[
            bool | None,
            Doc("True: send numbers times d/k, so that their mean is the update. Absent: true without error_feedback."),
        ] = None,
        error_feedback: Annotated[bool, Doc("True: add the numbers that are not sent to the client's next update.")] = False,
        positions: Annotated[
            Positions,
            Doc(
                "Encoding of the positions of the sent numbers. indices: ceil(log2 d) bits for each; bitmap: one bit for each of "
                "the d; shorter: the shorter of these two; seed: the 64 bits of the seed from which they were drawn."
            ),
        ] = "indices",
    ) -> None:
        check_share("share", share)
        if positions not in ("seed", "indices", "bitmap", "shorter"):
            raise ParameterError("positions", positions, "must be seed, indices, bitmap or shorter")
        if scaled and error_feedback:
            reason = "with error_feedback the numbers left out would grow from round to round; leave one of them out"
            raise ParameterError("scaled", scaled, reason)
        self.error_feedback = error_feedback
        self._share, self._positions = share, positions
        self._scaled = not error_feedback if scaled is None else scaled

    def message_bytes(self, tensors: Sequence[int]) -> int:
        """Return the bytes of a message, the positions of the sent numbers included; `tensors`: numbers of each tensor."""
        numbers = sum(tensors)
        kept = count_kept(self._share, numbers)
        positions = _SEED if self._positions == "seed" else position_bits(self._positions, kept, numbers)
        return whole_bytes(NUMBER * kept + positions)

    def compress(self, rows: Tensor, tensors: Sequence[int], generators: Generators) -> Tensor:
        """Return `rows` (n, d) with k random numbers of each row kept, times d/k if `scaled`, and all others set to 0.

        `generators(i)`: random numbers of row i.
        """
        numbers = rows.shape[1]
        kept = count_kept(self._share, numbers)
        is_sent = np.zeros(rows.shape, np.bool_)
        for row in range(len(rows)):
            places = generators(row).choice(numbers, kept, replace=False, shuffle=False)
            is_sent[row, places] = True
        sent = rows.masked_fill(rows.new_tensor(~is_sent).bool(), 0.0)
        return sent * (numbers / kept) if self._scaled else sent

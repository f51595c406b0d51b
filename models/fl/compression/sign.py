"""One bit for every number: its sign.

Bernstein et al., "signSGD", ICML 2018; with a scale and error feedback EF-signSGD, Karimireddy et al., ICML 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.fl.compression.bits import NUMBER, Generators, whole_bytes

if TYPE_CHECKING:
    from torch import Tensor


NEEDS_VOTE = "signs have no magnitude: set aggregation.kind = 'majority-vote', or compression.scale = 'mean'"
"""Reason for which messages that only a vote can aggregate are refused without one."""


class Sign:
    """Compression to the signs of an update, one bit each; the sign of a zero is drawn, because a bit has no third value.

    Without a scale they are votes, and need the aggregation majority-vote.

    Example:
        >>> Sign().message_bytes([1000])
        125
    """

    exact = False
    whole_models = False
    ratio: float | None = None

    def __init__(
        self,
        *,
        scale: Annotated[
            Literal["none", "mean"],
            Doc("none: the signs alone; mean: times the mean magnitude of the update, in 32 further bits (EF-signSGD)."),
        ] = "none",
        error_feedback: Annotated[
            bool | None,
            Doc("True: add the remainder to the client's next update; with scale mean only. Absent: true with scale mean."),
        ] = None,
    ) -> None:
        if scale not in ("none", "mean"):
            raise ParameterError("scale", scale, "must be none or mean")
        if error_feedback and scale == "none":
            reason = "a sign alone does not show how much is left out; set scale = 'mean', or leave it out"
            raise ParameterError("error_feedback", error_feedback, reason)
        self.needs_vote = scale == "none"
        self.error_feedback = scale == "mean" if error_feedback is None else error_feedback

    def message_bytes(self, tensors: Sequence[int]) -> int:
        """Return the bytes of a message; `tensors`: numbers of each tensor."""
        scale_bits = 0 if self.needs_vote else NUMBER
        return whole_bytes(sum(tensors) + scale_bits)

    def compress(self, rows: Tensor, tensors: Sequence[int], generators: Generators) -> Tensor:
        """Return the signs of `rows` (n, d), 1 or -1, with scale "mean" times the mean magnitude of each row."""
        signs = rows.sign()
        is_zero = signs == 0
        # A row without zeros needs no draws.
        for row in is_zero.any(1).nonzero().flatten().tolist():
            # 0 or 1 for every number becomes -1 or 1, the sign of a number that is 0.
            drawn = generators(row).integers(0, 2, rows.shape[1], dtype=np.int8)
            signs[row] = signs[row].where(~is_zero[row], rows.new_tensor(2.0 * drawn - 1.0))
        return signs if self.needs_vote else signs * rows.abs().mean(1, keepdim=True)

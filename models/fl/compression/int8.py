"""One byte for every number: 256 equal steps between the least and the largest number of each tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.fl.compression.bits import NUMBER, Generators, whole_bytes

if TYPE_CHECKING:
    from torch import Tensor

_STEPS = 255


class Int8:
    """Compression that rounds each number to low + q step, q in 0..255; low and low + 255 step are its tensor's extremes.

    A message holds one byte for each number and, for each tensor, low and step, 32 bits each.

    Example:
        >>> Int8().message_bytes([1000, 10])
        1026
    """

    exact = False
    error_feedback = False
    whole_models = True
    needs_vote = False
    ratio: float | None = None

    def __init__(
        self,
        *,
        rounding: Annotated[
            Literal["stochastic", "nearest"],
            Doc("stochastic: round up or down at random, so that the mean is the number itself; nearest: to the nearer step."),
        ] = "stochastic",
    ) -> None:
        if rounding not in ("stochastic", "nearest"):
            raise ParameterError("rounding", rounding, "must be stochastic or nearest")
        self._stochastic = rounding == "stochastic"

    def message_bytes(self, tensors: Sequence[int]) -> int:
        """Return the bytes of a message; `tensors`: numbers of each tensor."""
        return whole_bytes(sum(8 * numbers + 2 * NUMBER for numbers in tensors))

    def compress(self, rows: Tensor, tensors: Sequence[int], generators: Generators) -> Tensor:
        """Return `rows` (n, d) with every number rounded to a step of its tensor."""
        shape, out = rows.shape, rows.clone()
        # A number is rounded up if its distance from the step below exceeds its threshold.
        if self._stochastic:
            uniforms = [generators(row).random(shape[1], dtype=np.float32) for row in range(shape[0])]
            all_thresholds = rows.new_tensor(np.stack(uniforms))
        else:
            all_thresholds = rows.new_full(shape, 0.5)
        first = 0
        for numbers in tensors:
            columns = slice(first, first + numbers)
            first += numbers
            values, thresholds = out[:, columns], all_thresholds[:, columns]
            low, high = values.aminmax(dim=1, keepdim=True)
            step = (high - low) / _STEPS
            # If all numbers of a tensor are equal, the step is 0 and the division has no value.
            exact_steps = (values - low) / step.masked_fill(step == 0, 1.0)
            steps_below = exact_steps.floor()
            is_rounded_up = thresholds < exact_steps - steps_below
            steps = (steps_below + is_rounded_up).clamp_(max=_STEPS)
            # `values` is a view of `out`.
            values.copy_(low + steps * step)
        return out

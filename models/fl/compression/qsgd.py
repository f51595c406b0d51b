"""Quantised numbers of a vector of known norm (Alistarh, Grubic, Li, Tomioka and Vojnovic, "QSGD", NeurIPS 2017, Section 3.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.fl.compression.bits import NUMBER, Generators, symbol_bits, whole_bytes

if TYPE_CHECKING:
    from torch import Tensor


_SMALLEST_NORM = 1e-32
"""Least norm: 2^20 levels over a smaller one are beyond float32."""


class Qsgd:
    """Compression that rounds each number x_i of a vector x to |x| sign(x_i) l/s, |x| the Euclidean norm.

    l is one of the two whole numbers next to s |x_i|/|x|, drawn so that the mean is x_i. A message holds the norm |x| in 32
    bits, and for each of the d numbers its level, one of 2 s + 1, in ceil(log2(2 s + 1)) bits, without the paper's entropy
    coding.

    Example:
        >>> Qsgd(levels=1).message_bytes([1000])
        254
    """

    exact = False
    error_feedback = False
    whole_models = True
    needs_vote = False
    ratio: float | None = None

    def __init__(
        self,
        *,
        levels: Annotated[int, Doc("s, the number of levels above 0; as many are below.")],
        bucket: Annotated[int | None, Doc("Numbers that share a norm; absent: all.")] = None,
    ) -> None:
        if not 1 <= levels < 2**20:
            raise ParameterError("levels", levels, "must be >= 1 and < 2^20: float32 holds no finer ones")
        if bucket is not None and bucket < 1:
            raise ParameterError("bucket", bucket, "must be >= 1")
        self._levels, self._bucket = levels, bucket

    def message_bytes(self, tensors: Sequence[int]) -> int:
        """Return the bytes of a message; `tensors`: numbers of each tensor."""
        numbers = sum(tensors)
        norms = 1 if self._bucket is None else math.ceil(numbers / self._bucket)
        return whole_bytes(NUMBER * norms + numbers * symbol_bits(2 * self._levels + 1))

    def compress(self, rows: Tensor, tensors: Sequence[int], generators: Generators) -> Tensor:
        """Return `rows` (n, d) rounded to levels, bucket by bucket; a bucket may hold parts of several tensors.

        Row i reads d numbers of `generators(i)`, whatever the size of a bucket.
        """
        clients, numbers = rows.shape
        uniforms = rows.new_tensor(np.stack([generators(row).random(numbers, dtype=np.float32) for row in range(clients)]))
        bucket = numbers if self._bucket is None else self._bucket
        missing = -numbers % bucket
        if missing:
            # Fill the last bucket with zeros, which do not change its norm.
            filled_rows, filled_uniforms = rows.new_zeros(2, clients, numbers + missing)
            filled_rows[:, :numbers], filled_uniforms[:, :numbers] = rows, uniforms
            rows, uniforms = filled_rows, filled_uniforms
        # One row for each bucket.
        sent = _quantise(rows.reshape(-1, bucket), uniforms.reshape(-1, bucket), self._levels)
        return sent.reshape(clients, -1)[:, :numbers]


def _quantise(values: Tensor, uniforms: Tensor, levels: int) -> Tensor:
    """Return `values` (n, d) rounded to `levels` equal steps between 0 and each row's norm, with their signs.

    A value is rounded up if its entry of `uniforms` (n, d), in [0, 1), is below its distance from the lower level, so that the
    mean is the value itself.
    """
    norms = values.double().square().sum(1, keepdim=True).sqrt().to(values.dtype)
    # Rows of zeros stay zeros; so do rows whose norm is too small for float32 to divide the levels by.
    divisors = norms.masked_fill(norms < _SMALLEST_NORM, 1.0)
    exact_level = values.abs() * (levels / divisors)
    lower_level = exact_level.floor()
    is_rounded_up = uniforms < exact_level - lower_level
    level = (lower_level + is_rounded_up).clamp(max=levels)
    return level * values.sign() * (norms / levels)

"""Sizes of messages in bits and bytes, as whole numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np

from models.errors import ParameterError

NUMBER = 32
"""Bits of one trained number: float32."""
Generators: TypeAlias = Callable[[int], np.random.Generator]
"""Function that returns the random generator of a row, which is that of its message."""


def whole_bytes(bits: int) -> int:
    """Return the number of bytes that hold `bits` bits, rounded up."""
    return (bits + 7) // 8


def symbol_bits(symbols: int) -> int:
    """Return ceil(log2 `symbols`), the bits of one symbol, or position, out of `symbols` different ones."""
    return (symbols - 1).bit_length()


def position_bits(encoding: Literal["indices", "bitmap", "shorter"], kept: int, numbers: int) -> int:
    """Return the bits that encode which `kept` of `numbers` numbers are sent.

    indices: the position of each; bitmap: one bit for each number, sent or not; shorter: the shorter of these two.
    """
    indices, bitmap = kept * symbol_bits(numbers), numbers
    return {"indices": indices, "bitmap": bitmap, "shorter": min(indices, bitmap)}[encoding]


def share_of(share: float, whole: int) -> int:
    """Return ceil(share * whole) of the share as it is written: 0.07 of 100 is 7, although its binary fraction is larger."""
    return math.ceil(Fraction(str(share)) * whole)


def count_kept(share: float, numbers: int) -> int:
    """Return max(1, ceil(share * numbers)), the number of numbers that a share keeps."""
    return max(1, share_of(share, numbers))


def check_share(name: str, share: float) -> None:
    """Raise ParameterError unless 0 < `share` <= 1."""
    if not 0 < share <= 1:
        raise ParameterError(name, share, "must be > 0 and <= 1")

"""Sizes of messages in bits and bytes, in whole numbers throughout."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from models.errors import ParameterError

NUMBER = 32
"""Bits of one number as it is trained: float32."""
Generators: TypeAlias = Callable[[int], np.random.Generator]
"""The random generator of a row: that of its message."""


def whole_bytes(bits: int) -> int:
    """The bytes that hold so many bits."""
    return -(-bits // 8)


def index_bits(numbers: int) -> int:
    """ceil(log2 `numbers`): bits that tell one of so many positions from the others."""
    return (numbers - 1).bit_length()


def symbol_bits(symbols: int) -> int:
    """ceil(log2 `symbols`): bits of one of so many symbols."""
    return (symbols - 1).bit_length()


def share_of(share: float, whole: int) -> int:
    """ceil(share * whole), of the share as it is written: 0.07 of 100 is 7, whatever its binary fraction."""
    return math.ceil(Fraction(str(share)) * whole)


def kept_of(share: float, numbers: int) -> int:
    """How many of so many numbers a share keeps: max(1, ceil(share * numbers))."""
    return max(1, share_of(share, numbers))


def check_share(name: str, share: float) -> None:
    """Raise ParameterError unless 0 < share <= 1."""
    if not 0 < share <= 1:
        raise ParameterError(name, share, "must be > 0 and <= 1")

"""Sinks of the rows of attempts: one row at a time, or many as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from netsim.core.rows import UpdateRow


class Block(Protocol):
    """Rows of several attempts, as columns."""

    def __len__(self) -> int: ...

    def column(self, name: str) -> Any:
        """(n,) the column `name` of `UpdateRow`: an array, NaN for null, or a list with None for it."""

    def words(self, name: str) -> tuple[NDArray[np.int64], Sequence[str]] | None:
        """Of a column of words, the place (n,) of each among words that may be in it, -1: null; None: it is another column."""

    def append_tables(self, others: Sequence[Any]) -> Block:
        """These rows, and then those of `others`, blocks of the same kind."""

    def piece(self, first: int, last: int) -> Block:
        """Its rows from `first` up to `last`, not included."""

    def rows(self) -> list[UpdateRow]:
        """Each by itself."""


class AttemptTable(Protocol):
    """Takes rows of attempts."""

    def append(self, row: tuple[Any, ...]) -> None:
        """One row: the values of the columns that were asked for, in their order."""

    def extend(self, block: Block) -> None:
        """Several rows, of which those columns are read."""


class NoTable:
    """Keeps nothing."""

    def append(self, row: tuple[Any, ...]) -> None:
        return None

    def extend(self, block: Block) -> None:
        return None

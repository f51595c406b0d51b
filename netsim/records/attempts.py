"""Tables of the rows of attempts, as servers fill them: one row at a time, or many as columns."""

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
        """Return the column `name` (n,) of `UpdateRow`: an array with NaN for null, or a list with None for null."""

    def text_column(self, name: str) -> tuple[NDArray[np.int64], Sequence[str]] | None:
        """Return the column `name` as indices (n,), -1 for null, and the list of texts that they index; None if it holds no
        text.
        """

    def append_tables(self, others: Sequence[Any]) -> Block:
        """Return these rows followed by those of `others`, blocks of the same kind."""

    def piece(self, first: int, last: int) -> Block:
        """Return the rows from `first` up to `last`, not included."""

    def rows(self) -> list[UpdateRow]:
        """Return the rows as objects."""


class AttemptTable(Protocol):
    """Takes rows of attempts."""

    def append(self, row: tuple[Any, ...]) -> None:
        """Add one row: the values of the chosen columns, in their order."""

    def extend(self, block: Block) -> None:
        """Add several rows, of which the chosen columns are read."""


class NoTable:
    """Null object: keeps no rows."""

    def append(self, row: tuple[Any, ...]) -> None:
        """Do nothing."""

    def extend(self, block: Block) -> None:
        """Do nothing."""

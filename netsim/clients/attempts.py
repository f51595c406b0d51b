"""The attempts of a round, of which whoever works on all of them reads columns."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from netsim.clients.update import Update
    from netsim.core.protocols import IntArray


class Attempts(Protocol):
    """So many attempts, each at its place."""

    @property
    def updates(self) -> Sequence[Update]:
        """The updates, where each is an object of its own; nothing where there are columns only."""

    def __len__(self) -> int: ...

    def column(self, name: str) -> Any:
        """(n,) what the attribute `name` of an update says of each: an array or a list, None for what is not known."""

    def order_of_end(self) -> IntArray:
        """Return the places (n,) of the attempts in the order in which they ended; those in flight come anywhere."""


class Single(list["Update"]):
    """Updates that are objects of their own."""

    @property
    def updates(self) -> Sequence[Update]:
        return self

    def column(self, name: str) -> list[Any]:
        """As of `Attempts`."""
        return list(map(attrgetter(name), self))

    def order_of_end(self) -> IntArray:
        return np.argsort([update.end_number for update in self], kind="stable")


class Ended:
    """Attempts that have ended, some of them before the run was taken up from a saved state."""

    updates = ()

    def __init__(self, ends: Sequence[Any]) -> None:
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

    def column(self, name: str) -> list[Any]:
        """As of `Attempts`."""
        return list(map(attrgetter(name), self._ends))

    def order_of_end(self) -> IntArray:
        """Return the places as they are: `ends` come in that order."""
        return np.arange(len(self._ends))

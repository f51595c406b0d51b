"""The attempts of a round as columns, for code that works on many attempts at once.

Attempts simulated as arrays have a third form, `netsim.clients.vectorised.columns.Selected`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from netsim.clients.update import Update
    from netsim.core.protocols import IntArray


class Attempts(Protocol):
    """Attempts of a round. A place is the index of an attempt among them."""

    @property
    def updates(self) -> Sequence[Update]:
        """Updates as objects; empty if the attempts are stored as columns only."""

    def __len__(self) -> int: ...

    def column(self, name: str) -> Any:
        """Return the attribute `name` of each update (n,): an array, or a list with None for what is not known."""

    def order_of_end(self) -> IntArray:
        """Return the places (n,) of the attempts in the order of their ends; attempts in flight stand anywhere."""


class ObjectAttempts(list["Update"]):
    """Attempts whose updates are objects: a list of the updates themselves."""

    @property
    def updates(self) -> Sequence[Update]:
        return self

    def column(self, name: str) -> list[Any]:
        """Return the attribute `name` of each update."""
        return list(map(attrgetter(name), self))

    def order_of_end(self) -> IntArray:
        """Return the places (n,) by `end_number`; attempts in flight (-1) come first."""
        return np.argsort([update.end_number for update in self], kind="stable")


class EndedAttempts:
    """Ended attempts in the order of their ends. `ends`: objects with the attributes of an update.

    They need not be updates: those that ended before the run was resumed were restored from a saved state.
    """

    updates = ()
    """Empty: no caller may act on these attempts."""

    def __init__(self, ends: Sequence[object]) -> None:
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

    def column(self, name: str) -> list[Any]:
        """Return the attribute `name` of each attempt."""
        return list(map(attrgetter(name), self._ends))

    def order_of_end(self) -> IntArray:
        """Return 0 .. n - 1: `ends` are already in the order of ends."""
        return np.arange(len(self._ends))

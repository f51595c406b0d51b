"""The server as its clients and their updates see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from netsim.clients.update import Update
    from netsim.core.closing import Closing
    from netsim.core.protocols import IntArray


class Serving(Protocol):
    """The server, as far as its clients look at it."""

    @property
    def takes_all(self) -> bool:
        """True if the server takes every update, whichever round it was begun in."""

    @property
    def closing(self) -> Closing | None:
        """The closing of the round that has opened, where it follows from the round's own ends; None: the server goes by more."""

    def takes(self, update: Update) -> bool:
        """Return True if the server still takes `update`, which has arrived; otherwise it is late."""

    def channels(self, clients: IntArray) -> list[int] | None:
        """Return the sub-channels of attempts that `clients` (n,) begin now; None: none are assigned."""


class TakesAll:
    """A server that takes every update and assigns nothing: that of probes, and of clients before they have another."""

    takes_all = True
    closing: Closing | None = None

    def takes(self, update: Update) -> bool:
        return True

    def channels(self, clients: IntArray) -> list[int] | None:
        return None

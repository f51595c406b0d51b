"""The interface of the server that clients and their updates use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from netsim.clients.update import Update
    from netsim.core.closing import Closing
    from netsim.core.protocols import IntArray


class Serving(Protocol):
    """The part of a server that clients use."""

    @property
    def takes_all(self) -> bool:
        """True if the server takes updates of every round."""

    @property
    def tiered(self) -> bool:
        """True if edges coordinate clients: attempts name the edge that began them."""

    @property
    def closing(self) -> Closing | None:
        """Closing rule of the open round, if the close depends only on ends of the round's attempts; otherwise None."""

    def takes(self, update: Update) -> bool:
        """Return True if the server still takes `update`, which has arrived; otherwise it is late."""

    def channels(self, clients: IntArray) -> list[int] | None:
        """Assign sub-channels to attempts that `clients` (n,) begin now, and return them (n,); None if none are assigned."""


class TakesAll:
    """A server that takes every update and assigns no sub-channels. Probes use it, and clients before their server is set."""

    takes_all = True
    tiered = False
    closing: Closing | None = None

    def takes(self, update: Update) -> bool:
        """Return True: no update is late."""
        return True

    def channels(self, clients: IntArray) -> list[int] | None:
        """Return None: no sub-channels are assigned."""
        return None

"""The server of a pool whose clients belong to several coordinators (the server, or edges)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netsim.clients.pool import ClientPool
    from netsim.clients.update import Update
    from netsim.core.closing import Closing
    from netsim.core.protocols import IntArray
    from netsim.servers.tiers.members import Members


class Coordinators:
    """Server of a pool with several coordinators: passes each update to the coordinator that began its attempt.

    `views`: the members of each coordinator by its name; None: of the server.
    """

    tiered = True
    closing: Closing | None = None

    def __init__(self, pool: ClientPool) -> None:
        self.pool = pool
        self.views: dict[str | None, Members] = {}
        pool.serve(self)
        pool.follow(self._on_end)
        pool.watchers.append(self._call_watchers)

    @property
    def takes_all(self) -> bool:
        """True if every coordinator takes updates of all its rounds."""
        return all(view.serving.takes_all for view in self.views.values())

    def takes(self, update: Update) -> bool:
        """Return True if the coordinator of `update` takes it. An update that began at another edge is never late: no round here
        waits for it.
        """
        return update.handed_over or self.views[update.edge].serving.takes(update)

    def channels(self, clients: IntArray) -> list[int] | None:
        """Return None: trees assign no sub-channels."""

    def _on_end(self, update: Update) -> None:
        """Pass the end of an attempt to the coordinator that began it."""
        self.views[update.edge].on_end(update)

    def _call_watchers(self) -> None:
        """Call the listeners of all coordinators to moves by scripts."""
        for view in self.views.values():
            for watch in list(view.watchers):
                watch()

"""The server of a pool whose clients belong to several coordinators."""

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
        pool.watchers.append(self._tell_watchers)

    @property
    def takes_all(self) -> bool:
        return all(view.serving.takes_all for view in self.views.values())

    def takes(self, update: Update) -> bool:
        # No round waits for an update that was begun at another edge, and none is too late for it.
        return update.handed_over or self.views[update.edge].serving.takes(update)

    def channels(self, clients: IntArray) -> list[int] | None:
        return None

    def _on_end(self, update: Update) -> None:
        self.views[update.edge].on_end(update)

    def _tell_watchers(self) -> None:
        for view in self.views.values():
            for watch in list(view.watchers):
                watch()

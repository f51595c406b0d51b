"""Waiting until enough clients are available for a round to begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from netsim.servers.rounds.loop import NobodyLeftError
from netsim.servers.rounds.waking import Waking

if TYPE_CHECKING:
    from netsim.clients.served import ServedClients
    from netsim.core.clock import Process
    from netsim.core.protocols import BoolArray

_EVER = float("inf")


class Presence:
    """Waits until enough clients are available."""

    def __init__(self, pool: ServedClients) -> None:
        self._pool = pool
        self._waking = Waking(pool.clock)

    def wait_for(self, selectable: Callable[[], BoolArray], candidates: BoolArray | None, count: int) -> Process[BoolArray]:
        """Wait until at least `count` of the `candidates` are selectable, and return True (K,) for those that are.

        `selectable`: returns True (K,) for clients that are selectable now. `candidates`: True (K,) for clients that count; None:
        all do. Raises NobodyLeftError if fewer than `count` can ever be selectable.
        """
        pool, waking, before = self._pool, self._waking, None
        while True:
            present = _restrict(selectable(), candidates)
            if np.count_nonzero(present) >= count:
                break
            before = present
            next_s = float(pool.availability.next_change_s.min())
            nothing_changes = next_s == _EVER and not pool.under_way
            if nothing_changes or np.count_nonzero(_restrict(pool.ever_selectable(), candidates)) < count:
                raise NobodyLeftError
            # Time passes now, and attempts in flight may end meanwhile.
            pool.go_by_events()
            waking.wake_at(next_s)
            # Wait for the next client that comes or goes, or the next end of an attempt.
            pool.followers.append(waking.wake)
            pool.watchers.append(waking.wake)
            yield waking.event()
            pool.watchers.remove(waking.wake)
            pool.followers.remove(waking.wake)
        if before is not None:
            # The round opens because of the clients that have come since the last look; the first of them stands for all.
            returned = np.flatnonzero(present & ~before)
            first_returned = int(returned[0]) if len(returned) else None
            pool.causes.note_return(first_returned)
        return present


def _restrict(clients: BoolArray, candidates: BoolArray | None) -> BoolArray:
    """Return True (K,) for `clients` (K,) that are among the `candidates` (K,); None: all clients are."""
    return clients if candidates is None else clients & candidates

"""Waiting until enough clients are available for a round to begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from netsim.servers.loop import NobodyLeftError
from netsim.servers.waking import Waking

if TYPE_CHECKING:
    from netsim.clients.pool import ClientPool
    from netsim.core.clock import Process
    from netsim.core.protocols import BoolArray

_EVER = float("inf")


class Presence:
    """Waits until enough clients are available."""

    def __init__(self, pool: ClientPool) -> None:
        self._pool = pool
        self._waking = Waking(pool.clock)

    def wait_for(self, able: Callable[[], BoolArray], among: BoolArray | None, need: int) -> Process[BoolArray]:
        """Wait until `able()` (K,) is True for `need` clients of `among` (K,; None: all); return its value.

        Raises NobodyLeftError if that can never be.
        """
        pool, waking, before = self._pool, self._waking, None
        while int(np.count_nonzero(now_able := _restrict(able(), among))) < need:
            before = now_able
            next_s = float(pool.availability.next_change_s.min())
            nothing_moves = next_s == _EVER and not pool.under_way
            if nothing_moves or int(np.count_nonzero(_restrict(pool.ever_selectable(), among))) < need:
                raise NobodyLeftError
            pool.go_by_events()
            waking.wake_at(next_s)
            # Wait for the next client that comes or goes, or the next end of an attempt.
            pool.followers.append(waking.wake)
            pool.watchers.append(waking.wake)
            yield waking.event()
            pool.watchers.remove(waking.wake)
            pool.followers.remove(waking.wake)
        if before is not None:
            back = np.flatnonzero(now_able & ~before)
            pool.causes.note_return(int(back[0]) if len(back) else None)
        return now_able


def _restrict(able: BoolArray, among: BoolArray | None) -> BoolArray:
    return able if among is None else able & among

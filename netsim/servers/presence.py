"""Waiting until enough clients are there for a round to begin."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import numpy as np
from simpy.events import Event

from netsim.core.clock import LAST
from netsim.servers.loop import NobodyLeftError

if TYPE_CHECKING:
    from netsim.clients.pool import ClientPool
    from netsim.core.protocols import BoolArray

_EVER = float("inf")


class Presence:
    """Waiting until enough clients are there."""

    def __init__(self, pool: ClientPool) -> None:
        self._pool = pool
        self._woken: Event | None = None
        self._wake_s = -1.0

    def until(self, able: Callable[[], BoolArray], among: BoolArray | None, need: int) -> Generator[Any, Any, BoolArray]:
        """Until `need` clients of `among` (K,; None: all) are `able` () -> (K,), which is returned; raises NobodyLeftError."""
        pool = self._pool
        while int(np.count_nonzero(now_able := _those(able(), among))) < need:
            next_s = float(pool.availability.next_change_s.min())
            nothing_moves = next_s == _EVER and not pool.under_way
            if nothing_moves or int(np.count_nonzero(_those(pool.ever_selectable(), among))) < need:
                raise NobodyLeftError
            # Whoever waits for somebody is told of each attempt at its time.
            pool.whole_rounds.release()
            self._woken = pool.clock.event()
            if next_s < _EVER and next_s != self._wake_s:
                self._wake_s = next_s
                # After everything else of that instant, so that it does not matter since when this call has been on the clock.
                pool.clock.call_at(next_s, self.wake, priority=LAST)
            pool.followers.append(self.wake)
            pool.watchers.append(self.wake)
            yield self._woken
            pool.watchers.remove(self.wake)
            pool.followers.remove(self.wake)
        return now_able

    def wake(self, payload: object = None) -> None:
        """Somebody has come or gone, or an attempt has ended."""
        woken, self._woken = self._woken, None
        if woken is not None:
            woken.succeed()


def _those(able: BoolArray, among: BoolArray | None) -> BoolArray:
    return able if among is None else able & among

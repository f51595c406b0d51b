"""A presence by hand: some clients are away for one stretch of time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netsim.core.protocols import Availability, Draws, State


class Away(Availability):
    """`who` are away over [`from_s`, `to_s`), everybody else is always there."""

    def __init__(self, *, clients: int, who: Sequence[int], from_s: float = 0.0, to_s: float = 1e9):
        self._who, self._from_s, self._to_s = np.array(who, np.int64), from_s, to_s
        self.on = np.ones(clients, np.bool_)
        self.next_change_s = np.full(clients, np.inf)
        self._show(0.0)

    def _show(self, now_s: float) -> None:
        self.on[self._who] = not self._from_s <= now_s < self._to_s
        following = [time_s for time_s in (self._from_s, self._to_s) if time_s > now_s]
        self.next_change_s[self._who] = min(following, default=np.inf)

    def advance(self, now_s: float, draws: Draws) -> None:
        self._show(now_s)
        self._now_s = now_s

    def state_dict(self) -> State:
        return {"now_s": self._now_s}

    def load_state_dict(self, state: State) -> None:
        self._show(state["now_s"])

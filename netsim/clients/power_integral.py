"""The integral of power over time, by state: fed by changes of power as they happen, and by nothing that is computed from it.

A change of w watts at time t adds w (T - t) joules up to any later T. So two sums for each state tell the energy at every T, and
a change costs two additions, whoever it is of and however many clients there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray, State

IDLE, RECEIVE, COMPUTE, SEND = range(4)
"""States of a client; idle: present or absent, and in no phase of an update."""


class PowerIntegral:
    """Joules drawn by all clients in each of the four states."""

    __slots__ = ("_planned", "offset_j", "watts")

    def __init__(self) -> None:
        self.watts = [0.0, 0.0, 0.0, 0.0]
        """What is drawn in each state now."""
        self.offset_j = [0.0, 0.0, 0.0, 0.0]
        """What `watts` times the time tells too much."""
        self._planned: list[tuple[int, FloatArray, FloatArray]] = []
        """(state, ends (n,), watts (n,)) of what has begun and ends at a time known beforehand."""

    def change(self, state: int, watts: float, time_s: float) -> None:
        """From `time_s` on so many watts more, or fewer, are drawn in `state`."""
        self.watts[state] += watts
        self.offset_j[state] += watts * time_s

    def changes(self, state: int, watts: FloatArray, times_s: FloatArray) -> None:
        """As `change`, of several clients (n,)."""
        self.watts[state] += float(watts.sum())
        self.offset_j[state] += float((watts * times_s).sum())

    def plan(self, state: int, watts: FloatArray, start_s: FloatArray, end_s: FloatArray) -> None:
        """So many watts (n,) are drawn in `state` from `start_s` (n,), none later than now, to `end_s` (n,)."""
        self.changes(state, watts, start_s)
        self._planned.append((state, end_s, watts))

    def joules(self, now_s: float) -> list[float]:
        """The energy of each state up to `now_s`, which no change is later than."""
        waiting = []
        for state, end_s, watts in self._planned:
            over = end_s <= now_s
            self.changes(state, -watts[over], end_s[over])
            if not over.all():
                waiting.append((state, end_s[~over], watts[~over]))
        self._planned = waiting
        return [watts * now_s - offset for watts, offset in zip(self.watts, self.offset_j, strict=True)]

    def state_dict(self) -> State:
        """The two sums, and what is planned."""
        planned = [[state, end_s.copy(), watts.copy()] for state, end_s, watts in self._planned]
        return {"watts": list(self.watts), "offset_j": list(self.offset_j), "planned": planned}

    def load_state_dict(self, state: State) -> None:
        self.watts, self.offset_j = list(state["watts"]), list(state["offset_j"])
        self._planned = [(one, np.array(end_s), np.array(watts)) for one, end_s, watts in state["planned"]]

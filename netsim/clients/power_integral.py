"""The integral of power over time, by state: fed by changes of power as they happen, and by nothing that is computed from it.

A change of w watts at time t adds w (T - t) joules up to any later T. So two sums for each state tell the energy at every T, and
a change costs two additions, whoever it is of and however many clients there are. Times count from the last time it was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray, State

IDLE, RECEIVING, COMPUTING, SENDING = range(4)
"""States of a client; idle: present or absent, and in no phase of an update."""


class PowerIntegral:
    """Joules drawn by all clients in each of the four states."""

    __slots__ = ("_joules", "_planned", "anchor_s", "offset_j", "watts")

    def __init__(self) -> None:
        self.watts = [0.0, 0.0, 0.0, 0.0]
        """What is drawn in each state now."""
        self.offset_j = [0.0, 0.0, 0.0, 0.0]
        """What `watts` times the time since `anchor_s` tells too much."""
        self.anchor_s = 0.0
        self._joules = [0.0, 0.0, 0.0, 0.0]
        """Up to `anchor_s`."""
        self._planned: list[tuple[int, FloatArray, FloatArray]] = []
        """(state, watts (n,), times (n,)) of changes that are known before they come."""

    def change(self, state: int, watts: float, time_s: float) -> None:
        """From `time_s` on so many watts more, or fewer, are drawn in `state`."""
        self.watts[state] += watts
        self.offset_j[state] += watts * (time_s - self.anchor_s)

    def changes(self, state: int, watts: FloatArray, times_s: FloatArray) -> None:
        """As `change`, of several clients (n,)."""
        self.watts[state] += float(watts.sum())
        self.offset_j[state] += float((watts * (times_s - self.anchor_s)).sum())

    def plan(self, state: int, watts: FloatArray, start_s: FloatArray, end_s: FloatArray) -> None:
        """So many watts (n,) more are drawn in `state` from `start_s` (n,) to `end_s` (n,), which may lie ahead."""
        self._planned += [(state, watts, start_s), (state, -watts, end_s)]

    def pulse(self, state: int, joules: float) -> None:
        """So much was drawn at once."""
        self._joules[state] += joules

    def joules(self, now_s: float) -> list[float]:
        """The energy of each state up to `now_s`; earlier changes may still be told later."""
        waiting = []
        for state, watts, times_s in self._planned:
            due = times_s <= now_s
            self.changes(state, watts[due], times_s[due])
            if not due.all():
                waiting.append((state, watts[~due], times_s[~due]))
        self._planned = waiting
        elapsed_s = now_s - self.anchor_s
        for state, (watts_now, offset) in enumerate(zip(self.watts, self.offset_j, strict=True)):
            self._joules[state] += watts_now * elapsed_s - offset
            self.offset_j[state] = 0.0
        self.anchor_s = now_s
        return list(self._joules)

    def state_dict(self) -> State:
        """The sums, and what is planned."""
        sums = {"watts": list(self.watts), "offset_j": list(self.offset_j), "joules": list(self._joules)}
        planned = [[state, watts.copy(), times_s.copy()] for state, watts, times_s in self._planned]
        return {**sums, "anchor_s": self.anchor_s, "planned": planned}

    def load_state_dict(self, state: State) -> None:
        # In place: whoever changes power often holds the lists.
        for values, name in ((self.watts, "watts"), (self.offset_j, "offset_j"), (self._joules, "joules")):
            values[:] = state[name]
        self.anchor_s = state["anchor_s"]
        self._planned = [(one, np.array(watts), np.array(times_s)) for one, watts, times_s in state["planned"]]


class Besides:
    """What tests of the model, opinions and messages drew, as those account for it who know how long they last."""

    def __init__(self) -> None:
        self.joules = [0.0] * 4
        """By state, of all that is over, and of all that lasts no time."""
        self._lasting: list[tuple[int, FloatArray, FloatArray, FloatArray]] = []

    def add(self, state: int, watts: FloatArray, start_s: FloatArray, end_s: FloatArray) -> None:
        """So many watts (n,) are drawn in `state` from `start_s` (n,) to `end_s` (n,)."""
        self._lasting.append((state, watts, start_s, end_s))

    def up_to(self, now_s: float) -> list[float]:
        """The energy of each state up to `now_s`, no earlier than asked for before."""
        found, lasting = list(self.joules), []
        for one in self._lasting:
            state, watts, start_s, end_s = one
            joules = float((watts * (np.clip(now_s, start_s, end_s) - start_s)).sum())
            found[state] += joules
            if (end_s > now_s).any():
                lasting.append(one)
            else:
                self.joules[state] += joules
        self._lasting = lasting
        return found

    def state_dict(self) -> State:
        """What is over, and what is not."""
        return {"joules": list(self.joules), "lasting": [[state, *(x.copy() for x in rest)] for state, *rest in self._lasting]}

    def load_state_dict(self, state: State) -> None:
        self.joules = list(state["joules"])
        self._lasting = [(one, w.copy(), start_s.copy(), end_s.copy()) for one, w, start_s, end_s in state["lasting"]]

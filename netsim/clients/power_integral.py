"""The integral of power over time, by state: fed by changes of power as they happen, and by nothing that is computed from it.

A change of w watts at time t adds w (T - t) joules up to any later T. So two sums for each state tell the energy at every T,
whichever client a change is of, and however many there are. Times count from the last time it was read.

What is told between two readings is kept, and summed exactly (`math.fsum`) by the next: the sums do not depend on the order in
which changes were told, so that attempts may tell theirs one by one as they happen, or all together.
"""

from __future__ import annotations

import math
from collections import Counter
from math import fsum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray, State

IDLE, RECEIVING, COMPUTING, SENDING = range(4)
"""States of a client; idle: present or absent, and in no phase of an update."""


class PowerIntegral:
    """Joules drawn by all clients in each of the four states."""

    __slots__ = ("_joules", "_planned", "anchor_s", "offset_j", "told_j", "told_w", "watts")

    def __init__(self) -> None:
        self.watts = [0.0, 0.0, 0.0, 0.0]
        """Watts drawn in each state now."""
        self.offset_j = [0.0, 0.0, 0.0, 0.0]
        """Joules by which `watts` times the time since `anchor_s` is too much."""
        self.told_w: list[list[float]] = [[], [], [], []]
        """By state, changes of `watts` since it was last read."""
        self.told_j: list[list[float]] = [[], [], [], []]
        """By state, what each of them adds to `offset_j`."""
        self.anchor_s = 0.0
        self._joules = [0.0, 0.0, 0.0, 0.0]
        """Joules up to `anchor_s`."""
        self._planned: list[tuple[int, FloatArray, FloatArray]] = []
        """(state, watts (n,), times (n,)) of changes that are known before they come."""

    def change(self, state: int, watts: float, time_s: float) -> None:
        """From `time_s` on so many watts more, or fewer, are drawn in `state`."""
        self.told_w[state].append(watts)
        self.told_j[state].append(watts * (time_s - self.anchor_s))

    def changes(self, state: int, watts: FloatArray, times_s: FloatArray) -> None:
        """Add changes of several clients (n,)."""
        self.watts[state] += float(watts.sum())
        self.offset_j[state] += float((watts * (times_s - self.anchor_s)).sum())

    def plan(self, state: int, watts: FloatArray, start_s: FloatArray, end_s: FloatArray) -> None:
        """Add `watts` (n,) in `state` from `start_s` (n,) to `end_s` (n,), which may lie ahead."""
        self._planned += [(state, watts, start_s), (state, -watts, end_s)]

    def pulse(self, state: int, joules: float) -> None:
        """Add energy that was drawn at one instant."""
        self._joules[state] += joules

    def joules(self, now_s: float) -> list[float]:
        """Return the energy of each state up to `now_s`; earlier changes may still be reported later."""
        for sums, reported in ((self.watts, self.told_w), (self.offset_j, self.told_j)):
            for state, changes in enumerate(reported):
                sums[state] += fsum(changes)
                changes.clear()
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
        told = {"told_w": list(map(_sort_terms, self.told_w)), "told_j": list(map(_sort_terms, self.told_j))}
        return {**sums, **told, "anchor_s": self.anchor_s, "planned": planned}

    def load_state_dict(self, state: State) -> None:
        # In place: `Energy`, which changes power often, holds the lists.
        for values, name in ((self.watts, "watts"), (self.offset_j, "offset_j"), (self._joules, "joules")):
            values[:] = state[name]
        for told, name in ((self.told_w, "told_w"), (self.told_j, "told_j")):
            for those, saved in zip(told, state[name], strict=True):
                those[:] = saved
        self.anchor_s = state["anchor_s"]
        self._planned = [(one, np.array(watts), np.array(times_s)) for one, watts, times_s in state["planned"]]


class Spent:
    """Energy of attempts in their phases, by the length of each phase.

    Summed as of `PowerIntegral`.
    """

    __slots__ = ("attempts_j", "displaced_j", "idle_j", "phases_j")

    def __init__(self) -> None:
        self.phases_j: list[list[float]] = [[], [], [], []]
        """By state, of phases that were told since it was last read."""
        self.displaced_j: list[float] = []
        """Energy that their clients would have drawn in these phases, had they been idle."""
        self.attempts_j = [0.0] * 4
        """By state, up to then."""
        self.idle_j = 0.0
        """Likewise, of idle energy that was not drawn."""

    def settle(self) -> None:
        """Add up what was told."""
        for state, phases in enumerate(self.phases_j):
            self.attempts_j[state] += fsum(phases)
            phases.clear()
        self.idle_j += fsum(self.displaced_j)
        self.displaced_j.clear()

    def state_dict(self) -> State:
        """The sums, and what is not yet in them."""
        told = {"phases_j": list(map(_sort_terms, self.phases_j)), "displaced_j": _sort_terms(self.displaced_j)}
        return {**told, "attempts_j": list(self.attempts_j), "idle_j": self.idle_j}

    def load_state_dict(self, state: State) -> None:
        # In place, as of `PowerIntegral`.
        for those, saved in zip(self.phases_j, state["phases_j"], strict=True):
            those[:] = saved
        self.displaced_j[:] = state["displaced_j"]
        self.attempts_j, self.idle_j = list(state["attempts_j"]), state["idle_j"]


def _sort_terms(told: list[float]) -> list[float]:
    """Numbers of the same sum, whatever the order in which they were told: ascending, without those that cancel."""
    times: Counter[float] = Counter()
    for number in told:
        times[abs(number)] += 1 if number > 0 else -1
    return sorted(math.copysign(size, count) for size, count in times.items() if size for _ in range(abs(count)))


class Besides:
    """Energy of tests of the model, opinions and messages, by their length."""

    def __init__(self) -> None:
        self.joules = [0.0] * 4
        """By state, of all that is over, and of all that lasts no time."""
        self._lasting: list[tuple[int, FloatArray, FloatArray, FloatArray]] = []

    def add(self, state: int, watts: FloatArray, start_s: FloatArray, end_s: FloatArray) -> None:
        """Add `watts` (n,) drawn in `state` from `start_s` (n,) to `end_s` (n,)."""
        self._lasting.append((state, watts, start_s, end_s))

    def joules_until(self, now_s: float) -> list[float]:
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
        """Return what is over, and what is not."""
        return {"joules": list(self.joules), "lasting": [[state, *(x.copy() for x in rest)] for state, *rest in self._lasting]}

    def load_state_dict(self, state: State) -> None:
        self.joules = list(state["joules"])
        self._lasting = [(one, w.copy(), start_s.copy(), end_s.copy()) for one, w, start_s, end_s in state["lasting"]]

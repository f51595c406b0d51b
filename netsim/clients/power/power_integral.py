"""The integral of power over time, by state. It sees changes of power only, so that it is an independent check of the energy
summed over attempts.

A change of w watts at time t adds w (T - t) = w T - w t joules up to any later T. So two sums for each state, of w and of w t,
give the energy at every T, whatever the number of changes and clients. Times count from the last reading (`anchor_s`).

Changes reported between two readings are kept, and the next reading sums them exactly (`math.fsum`). So the sums do not depend
on the order of reports: attempts may report changes one by one as they happen, or all together.
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
"""States of a client. Idle: in no phase of an update, present or absent."""


class PowerIntegral:
    """Joules drawn by all clients in each of the four states."""

    __slots__ = ("_joules", "_planned", "anchor_s", "offset_j", "pending_j", "pending_w", "watts")

    def __init__(self) -> None:
        self.watts = [0.0, 0.0, 0.0, 0.0]
        """Watts drawn in each state now."""
        self.offset_j = [0.0, 0.0, 0.0, 0.0]
        """Joules to subtract from `watts` times the time since `anchor_s`."""
        self.pending_w: list[list[float]] = [[], [], [], []]
        """Changes of `watts` since the last reading, by state."""
        self.pending_j: list[list[float]] = [[], [], [], []]
        """Contribution of each of these changes to `offset_j`, by state."""
        self.anchor_s = 0.0
        """Time of the last reading."""
        self._joules = [0.0, 0.0, 0.0, 0.0]
        """Joules up to `anchor_s`."""
        self._planned: list[tuple[int, FloatArray, FloatArray]] = []
        """Changes known before they happen: (state, watts (n,), times (n,))."""

    def change(self, state: int, watts: float, time_s: float) -> None:
        """Add `watts` (negative: subtract) to the power drawn in `state` from `time_s` on."""
        self.pending_w[state].append(watts)
        self.pending_j[state].append(watts * (time_s - self.anchor_s))

    def add_changes(self, state: int, watts: FloatArray, times_s: FloatArray) -> None:
        """Add a change of each of several clients: `watts` (n,) from `times_s` (n,) on.

        Unlike changes reported by `change`, these are summed at once, so they must come in the same order in every run.
        """
        self.watts[state] += float(watts.sum())
        self.offset_j[state] += float((watts * (times_s - self.anchor_s)).sum())

    def plan(self, state: int, watts: FloatArray, start_s: FloatArray, end_s: FloatArray) -> None:
        """Add `watts` (n,) in `state` from `start_s` (n,) to `end_s` (n,), which may lie ahead."""
        self._planned += [(state, watts, start_s), (state, -watts, end_s)]

    def pulse(self, state: int, joules: float) -> None:
        """Add `joules` that were drawn at one instant."""
        self._joules[state] += joules

    def joules(self, now_s: float) -> list[float]:
        """Return the joules of each state up to `now_s`, which becomes the anchor. Changes before it may still be reported."""
        # First the changes that were reported, then those that were planned and have come.
        for sums, reported in ((self.watts, self.pending_w), (self.offset_j, self.pending_j)):
            for state, changes in enumerate(reported):
                sums[state] += fsum(changes)
                changes.clear()
        still_planned = []
        for state, watts, times_s in self._planned:
            due = times_s <= now_s
            self.add_changes(state, watts[due], times_s[due])
            if not due.all():
                still_planned.append((state, watts[~due], times_s[~due]))
        self._planned = still_planned
        # Close the piece since the last reading, and count from now on: products with small times lose fewer digits.
        elapsed_s = now_s - self.anchor_s
        for state, (watts_now, offset) in enumerate(zip(self.watts, self.offset_j, strict=True)):
            self._joules[state] += watts_now * elapsed_s - offset
            self.offset_j[state] = 0.0
        self.anchor_s = now_s
        return list(self._joules)

    def state_dict(self) -> State:
        """Return the sums and the planned changes."""
        sums = {"watts": list(self.watts), "offset_j": list(self.offset_j), "joules": list(self._joules)}
        planned = [[state, watts.copy(), times_s.copy()] for state, watts, times_s in self._planned]
        pending = {"told_w": list(map(_sort_terms, self.pending_w)), "told_j": list(map(_sort_terms, self.pending_j))}
        return {**sums, **pending, "anchor_s": self.anchor_s, "planned": planned}

    def load_state_dict(self, state: State) -> None:
        """Restore the sums, the changes reported since the last reading, and those planned for later."""
        # Change the lists in place: `Energy` holds references to them for speed.
        for values, name in ((self.watts, "watts"), (self.offset_j, "offset_j"), (self._joules, "joules")):
            values[:] = state[name]
        for pending, name in ((self.pending_w, "told_w"), (self.pending_j, "told_j")):
            for changes, saved_changes in zip(pending, state[name], strict=True):
                changes[:] = saved_changes
        self.anchor_s = state["anchor_s"]
        self._planned = [(power_state, np.array(watts), np.array(times_s)) for power_state, watts, times_s in state["planned"]]


class PhaseEnergy:
    """Energy of attempts in their phases: power times the length of each phase, summed exactly as in `PowerIntegral`."""

    __slots__ = ("attempts_j", "displaced_j", "idle_j", "phases_j")

    def __init__(self) -> None:
        self.phases_j: list[list[float]] = [[], [], [], []]
        """Energies of phases reported since the last reading, by state."""
        self.displaced_j: list[float] = []
        """Energy that the clients would have drawn in these phases if idle."""
        self.attempts_j = [0.0] * 4
        """Sums up to the last reading, by state."""
        self.idle_j = 0.0
        """Idle energy displaced by phases, up to the last reading."""

    def settle(self) -> None:
        """Add the reported energies to the sums."""
        for state, phases in enumerate(self.phases_j):
            self.attempts_j[state] += fsum(phases)
            phases.clear()
        self.idle_j += fsum(self.displaced_j)
        self.displaced_j.clear()

    def state_dict(self) -> State:
        """Return the sums, and energies not yet added to them."""
        pending = {"phases_j": list(map(_sort_terms, self.phases_j)), "displaced_j": _sort_terms(self.displaced_j)}
        return {**pending, "attempts_j": list(self.attempts_j), "idle_j": self.idle_j}

    def load_state_dict(self, state: State) -> None:
        # Change the lists in place, as in `PowerIntegral`.
        for energies, saved_energies in zip(self.phases_j, state["phases_j"], strict=True):
            energies[:] = saved_energies
        self.displaced_j[:] = state["displaced_j"]
        self.attempts_j, self.idle_j = list(state["attempts_j"]), state["idle_j"]


def _sort_terms(terms: list[float]) -> list[float]:
    """Return `terms` ascending, without zeros and pairs that cancel, so that a saved state does not depend on their order."""
    # Number of positive terms of each size, less that of negative ones.
    surplus: Counter[float] = Counter()
    for term in terms:
        if term:
            surplus[abs(term)] += 1 if term > 0 else -1
    left_over: list[float] = []
    for size, count in surplus.items():
        left_over += [math.copysign(size, count)] * abs(count)
    return sorted(left_over)


class ActivityEnergy:
    """Energy of tests of the model, opinions and messages: power times their length."""

    def __init__(self) -> None:
        self.joules = [0.0] * 4
        """Joules of activities that are over, by state; includes activities without length."""
        self._lasting: list[tuple[int, FloatArray, FloatArray, FloatArray]] = []
        """Activities under way when they were last read: (state, watts (n,), start times (n,), end times (n,))."""

    def add(self, state: int, watts: FloatArray, start_s: FloatArray, end_s: FloatArray) -> None:
        """Add `watts` (n,) drawn in `state` from `start_s` (n,) to `end_s` (n,)."""
        self._lasting.append((state, watts, start_s, end_s))

    def joules_until(self, now_s: float) -> list[float]:
        """Return the joules of each state up to `now_s`, which must not decrease from call to call."""
        total, lasting = list(self.joules), []
        for activity in self._lasting:
            state, watts, start_s, end_s = activity
            joules = float((watts * (np.clip(now_s, start_s, end_s) - start_s)).sum())
            total[state] += joules
            if (end_s > now_s).any():
                lasting.append(activity)
            else:
                self.joules[state] += joules
        self._lasting = lasting
        return total

    def state_dict(self) -> State:
        """Return sums of finished activities, and activities under way."""
        lasting = [[state, watts.copy(), start_s.copy(), end_s.copy()] for state, watts, start_s, end_s in self._lasting]
        return {"joules": list(self.joules), "lasting": lasting}

    def load_state_dict(self, state: State) -> None:
        self.joules = list(state["joules"])
        self._lasting = [
            (power_state, watts.copy(), start_s.copy(), end_s.copy()) for power_state, watts, start_s, end_s in state["lasting"]
        ]

"""The batteries of all clients as arrays: charge, time until empty, and readiness for selection.

While the powers that charge and drain a battery stay the same, its charge is a straight line, up to the capacity. So the times at
which it crosses the threshold and at which it is empty are known. Only batteries that reach such a time, or change, are computed.

A client whose battery ran empty is off: it draws nothing until the battery is charged to the threshold. A client is ready from
the instant at which its charge rises to the threshold until the instant at which it falls to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from netsim.core.errors import ParameterError

if TYPE_CHECKING:
    from netsim.core.protocols import BoolArray, FloatArray, IntArray, State

_EVER = float("inf")
_SAVED = ("level_j", "since_s", "slope_w", "cross_s", "empty_s", "draw_w", "charging", "ready", "dead")


class Batteries:
    """One battery for each client; all arguments have shape (K,).

    `capacity_j`: capacity in joules. `initial`: share of it that is charged at time 0. `threshold`: share from which on a
    client may be selected. `charge_w`: power of the charger. `draw_w`: power that each client draws at time 0. `charging`: True
    for clients at a charger at time 0. Raises ValueError for a capacity that is not > 0 and finite, shares out of [0, 1] (the
    threshold: above 0), and a `charge_w` that is negative or infinite.
    """

    def __init__(
        self,
        *,
        capacity_j: FloatArray,
        initial: FloatArray,
        threshold: FloatArray,
        charge_w: FloatArray,
        draw_w: FloatArray,
        charging: BoolArray,
    ) -> None:
        _check("capacity_j", capacity_j, (capacity_j > 0) & (capacity_j < _EVER), "must be > 0 joules and finite")
        _check("initial", initial, (initial >= 0) & (initial <= 1), "must be a share, 0 to 1")
        why = "must be a share above 0, up to 1: a client that ran empty stays off until its battery is charged to it"
        _check("threshold", threshold, (threshold > 0) & (threshold <= 1), why)
        _check("charge_w", charge_w, (charge_w >= 0) & (charge_w < _EVER), "must be >= 0 watts and finite")
        clients = len(capacity_j)
        self.capacity_j = capacity_j
        self.threshold_j: FloatArray = threshold * capacity_j
        self.charge_w = charge_w
        self.level_j: FloatArray = initial * capacity_j
        """Charge (K,) in joules at `since_s`."""
        self.since_s: FloatArray = np.zeros(clients)
        """Time (K,) of each client's last change, in seconds."""
        self.slope_w: FloatArray = np.zeros(clients)
        """Slope (K,) of each charge from `since_s` on, in watts; a full battery gains nothing."""
        self.cross_s: FloatArray = np.full(clients, _EVER)
        """Time (K,) at which the charge meets the threshold; inf: not before the next change."""
        self.empty_s: FloatArray = np.full(clients, _EVER)
        """Time (K,) at which the battery will be empty; inf: not before the next change."""
        self.draw_w: FloatArray = draw_w.copy()
        """Power (K,) that each client draws while it is on, in watts."""
        self.charging: BoolArray = charging.copy()
        """True (K,) for clients at a charger."""
        self.ready: BoolArray = np.zeros(clients, np.bool_)
        """True (K,) for clients with enough charge to be selected."""
        self.dead: BoolArray = self.level_j <= 0
        """True (K,) for clients that ran empty and are off."""
        self.ran_empty = 0
        """Number of times that a battery ran empty so far."""
        self._on_dead: Callable[[IntArray, FloatArray], None] = lambda clients, times_s: None
        self._begin_pieces(np.arange(clients), np.zeros(clients))

    def listen(self, on_dead: Callable[[IntArray, FloatArray], None]) -> None:
        """Set the callback for clients (n,) that went off, or on again, with the times (n,)."""
        self._on_dead = on_dead

    @property
    def next_s(self) -> FloatArray:
        """Time (K,) of each battery's next event (empty or threshold met), if nothing changes before."""
        return np.minimum(self.cross_s, self.empty_s)

    def charge_j(self, clients: IntArray, time_s: float | FloatArray) -> FloatArray:
        """Return the charges (n,) of `clients` (n,) in joules at `time_s`: one time, or (n,).

        It must not lie after the next event of a client, up to which its charge is linear.
        """
        # Rounding may lead a little below empty, or above full.
        gained = self.slope_w[clients] * (time_s - self.since_s[clients])
        return np.clip(self.level_j[clients] + gained, 0.0, self.capacity_j[clients])

    def advance(self, now_s: float) -> None:
        """Process all battery events up to `now_s`."""
        due = np.flatnonzero(self.next_s <= now_s)
        while due.size:
            self._process_next_events(due)
            # The next event of a battery may be due, too.
            due = np.flatnonzero(self.next_s <= now_s)

    def change(
        self,
        clients: IntArray,
        times_s: FloatArray,
        *,
        draw_w: FloatArray | None = None,
        charging: BoolArray | None = None,
        taken_j: FloatArray | None = None,
    ) -> None:
        """Change power, charging, or charge (by `taken_j` at once) of distinct `clients` (n,) from `times_s` (n,) on.

        A time must not lie before an earlier change of the same client.
        """
        # Events before the change belong to the old line, also one at the very time of the change.
        due = clients[self.next_s[clients] <= times_s]
        while due.size:
            self._process_next_events(due)
            due = clients[self.next_s[clients] <= times_s]
        self.level_j[clients] = self.charge_j(clients, times_s)
        if draw_w is not None:
            self.draw_w[clients] = draw_w
        if charging is not None:
            self.charging[clients] = charging
        if taken_j is not None:
            self.level_j[clients] = np.maximum(self.level_j[clients] - taken_j, 0.0)
        self._begin_pieces(clients, times_s)

    def draw(self, client: int, watts: float, now_s: float) -> None:
        """Change the power of one client to `watts` from now on. The client must be on and have no event before `now_s`.

        Fast path of `_begin_pieces` in plain floats; both must compute the same bits. It is called in every phase of an update,
        and arrays of one entry would cost ten times as much.
        """
        capacity, threshold = self.capacity_j.item(client), self.threshold_j.item(client)
        level = self.level_j.item(client) + self.slope_w.item(client) * (now_s - self.since_s.item(client))
        level = min(max(level, 0.0), capacity)
        gain = self.charge_w.item(client) if self.charging.item(client) else 0.0
        slope = gain - watts
        if slope > 0.0 and level >= capacity:
            slope = 0.0
        cross_s = empty_s = _EVER
        # A quotient only changes its sign with its divisor, so these are the same bits as in `_begin_pieces`.
        if slope < 0.0:
            empty_s = now_s - level / slope
            if level > threshold:
                cross_s = now_s - (level - threshold) / slope
        elif slope > 0.0 and level < threshold:
            cross_s = now_s + (threshold - level) / slope
        self.draw_w[client], self.level_j[client], self.since_s[client], self.slope_w[client] = watts, level, now_s, slope
        self.cross_s[client], self.empty_s[client] = cross_s, empty_s
        self.ready[client] = level > threshold or (level == threshold and slope >= 0.0)

    def run_empty(self, client: int, now_s: float) -> None:
        """Process the event that the battery of `client` is empty. `now_s` must be its `empty_s`."""
        if not self.dead[client]:
            self._set_level(np.array([client]), np.array([now_s]), 0.0)

    def _process_next_events(self, clients: IntArray) -> None:
        """Process the next event of each of `clients` (n,): its battery runs empty, or its charge meets the threshold."""
        # A falling charge meets the threshold, which is above 0, before it is empty; of two equal times the crossing is first.
        meets_threshold = self.cross_s[clients] <= self.empty_s[clients]
        crossing, emptied = clients[meets_threshold], clients[~meets_threshold]
        if emptied.size:
            self._set_level(emptied, self.empty_s[emptied], 0.0)
        if not crossing.size:
            return
        was_off = self.dead[crossing]
        switched_on, already_on = crossing[was_off], crossing[~was_off]
        # The power of a client that was on stays the same, so its charge goes on linearly: only `ready` changes. It becomes
        # ready if it meets the threshold from below, and stops being ready if from above.
        self.ready[already_on] = self.slope_w[already_on] > 0
        times_s = self.cross_s[switched_on]
        # A straight line crosses the threshold once.
        self.cross_s[crossing] = _EVER
        if switched_on.size:
            self.dead[switched_on] = False
            self._on_dead(switched_on, times_s)
            self._set_level(switched_on, times_s, self.threshold_j[switched_on])

    def _set_level(self, clients: IntArray, times_s: FloatArray, level_j: float | FloatArray) -> None:
        """Set the charges of `clients` (n,) at `times_s` (n,) to exactly `level_j`, which removes rounding errors, and go on from
        there.
        """
        self.level_j[clients] = level_j
        self._begin_pieces(clients, times_s)

    def _begin_pieces(self, clients: IntArray, times_s: FloatArray) -> None:
        """Begin a new linear piece of the charge of each of `clients` (n,) at `times_s` (n,), from its `level_j` on.

        Sets the slope of each piece and the times of its next events. Switches off clients whose battery is empty now. `draw` is
        the fast path for one client; both must compute the same bits.
        """
        level, capacity, threshold = self.level_j[clients], self.capacity_j[clients], self.threshold_j[clients]
        # Switch off first: a client that is off draws nothing, so its line rises or is flat.
        dies = (level <= 0) & ~self.dead[clients]
        if dies.any():
            self.ran_empty += int(np.count_nonzero(dies))
            self.dead[clients[dies]] = True
            self._on_dead(clients[dies], times_s[dies])
        dead = self.dead[clients]
        gain, loss = np.where(self.charging[clients], self.charge_w[clients], 0.0), np.where(dead, 0.0, self.draw_w[clients])
        slope = gain - loss
        slope[(slope > 0) & (level >= capacity)] = 0.0
        falls, rises = slope < 0, slope > 0
        empty_s, cross_s = np.full(len(clients), _EVER), np.full(len(clients), _EVER)
        will_cross = (falls & (level > threshold)) | (rises & (level < threshold))
        # Powers as small as 1e-308 W overflow the quotient: the charge then lasts for ever.
        with np.errstate(over="ignore"):
            np.divide(level, -slope, out=empty_s, where=falls)
            np.divide(threshold - level, slope, out=cross_s, where=will_cross)
        self.since_s[clients], self.slope_w[clients] = times_s, slope
        self.empty_s[clients], self.cross_s[clients] = times_s + empty_s, times_s + cross_s
        self.ready[clients] = ~dead & ((level > threshold) | ((level == threshold) & ~falls))

    def state_dict(self) -> State:
        """Return the current linear pieces."""
        return {name: getattr(self, name).copy() for name in _SAVED} | {"ran_empty": self.ran_empty}

    def load_state_dict(self, state: State) -> None:
        for name in _SAVED:
            getattr(self, name)[:] = state[name]
        self.ran_empty = state["ran_empty"]


def _check(name: str, values: FloatArray, good: BoolArray, reason: str) -> None:
    """Raise ParameterError about the first of `values` (K,) that is not `good` (K,)."""
    if not good.all():
        client = int(np.argmin(good))
        value = float(values[client])
        raise ParameterError(name, value, reason, shown=f" = {value!r} for client {client}")

"""Presence of clients under a script, which may take clients away and bring them back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from netsim.core.protocols import Availability, BoolArray, Draws, FloatArray, IntArray, Notes, State

_NEVER = float("inf")


class Absences:
    """Presence law that overrides `inner` for clients taken away by a script. `inner` goes on advancing underneath."""

    settles = False
    """False: a script may bring back a client at any time, so presence never becomes final."""

    def __init__(self, *, inner: Availability, clients: int) -> None:
        self.inner = inner
        self._returns_s: Callable[[], float] = lambda: _NEVER
        self.away: BoolArray = np.zeros(clients, np.bool_)
        """(K,) True for clients that were taken away and not brought back."""
        self._times_taken: IntArray = np.zeros(clients, np.int64)
        """Number of times (K,) that each client was taken away and not brought back."""
        self._any_away = False
        self.on: BoolArray = inner.on
        """True (K,) for clients that are present now."""
        self.next_change_s: FloatArray = inner.next_change_s
        """Time (K,) of the next change of each client's presence, seconds; inf: never."""

    def ask_return(self, returns_s: Callable[[], float]) -> None:
        """Set the callback that returns the earliest time at which clients taken away may come back, in seconds; inf: unknown.

        A server without clients waits until then (`next_change_s`).
        """
        self._returns_s = returns_s

    def advance(self, now_s: float, draws: Draws) -> None:
        """Bring `on` and `next_change_s` up to `now_s`."""
        self.inner.advance(now_s, draws)
        self._refresh()

    def changes(self, now_s: float, draws: Draws) -> Iterator[tuple[IntArray, FloatArray]]:
        """Bring `on` and `next_change_s` up to `now_s`. Yield the changes of `inner` on the way as (clients (n,), times (n,) in
        seconds); changes of clients that are away are among them.
        """
        for clients, times_s in self.inner.changes(now_s, draws):
            # Receivers of a change read `on`, which must show the presence of that time, not of `now_s`.
            self._refresh()
            yield clients, times_s
        self._refresh()

    def _refresh(self) -> None:
        """Recompute `on` and `next_change_s`: the arrays of `inner`, overridden for clients that are away."""
        inner = self.inner
        self.on, self.next_change_s = inner.on, inner.next_change_s
        if self._any_away:
            # New arrays: those of `inner` must stay as they are, since it goes on by itself.
            self.on = inner.on & ~self.away
            self.next_change_s = np.where(self.away, self._returns_s(), inner.next_change_s)

    def forecast(self, from_s: float, to_s: float) -> FloatArray:
        """Return the share (K,) of [`from_s`, `to_s`] in which each client will be present. Ignores that clients were taken away,
        because a script cannot be predicted.
        """
        return self.inner.forecast(from_s, to_s)

    def follow(self, inner: Availability) -> None:
        """Replace the presence law underneath from now on."""
        self.inner = inner
        self._refresh()

    def take(self, clients: IntArray) -> None:
        """Take clients (n,) away until `bring_back` has been called for them as often as `take`."""
        self._times_taken[clients] += 1
        self._update_away()

    def bring_back(self, clients: IntArray) -> None:
        """Bring back clients (n,) that were taken away: `inner` decides their presence again."""
        self._times_taken[clients] -= 1
        self._update_away()

    def _update_away(self) -> None:
        """Recompute `away` and the arrays that depend on it, after a change of `_times_taken`."""
        self.away[:] = self._times_taken > 0
        self._any_away = bool(self.away.any())
        self._refresh()

    def notes(self) -> Notes:
        """Return entries of the summary on presence."""
        return self.inner.notes()

    def state_dict(self) -> State:
        """Return the clients that were taken away, and the state of `inner`."""
        return {"inner": self.inner.state_dict(), "times": self._times_taken.copy()}

    def load_state_dict(self, state: State) -> None:
        """Go on from a saved state."""
        self.inner.load_state_dict(state["inner"])
        self._times_taken = state["times"].copy()
        self._update_away()

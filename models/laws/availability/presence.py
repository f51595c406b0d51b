"""Drawn presence of the clients, and the base classes of all laws of presence.

A law keeps two arrays over all clients: who is present, and when each client next comes or goes. Presence from files is in
`traces.py` and `fedscale.py`, presence that follows the hour of the day in `diurnal.py`.

`advance(now_s, draws)` brings both arrays up to a time; changes at exactly that time have happened. Only clients whose change
is due are touched, and one leap leaves the same state as many small steps. `changes(now_s, draws)` does the same and yields
each change on the way.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from annotated_doc import Doc
from numpy.typing import NDArray

from models.errors import ParameterError
from models.laws.delays import FloatArray, IntArray, PerClient, check_same_clients, per_client
from netsim.core.state import StateFields

BoolArray = NDArray[np.bool_]
Changes = Iterator[tuple[IntArray, FloatArray]]
"""Changes of presence one after the other: clients (n,) that came or went, and the times (n,) in seconds."""


class Draws(Protocol):
    """Addressed random numbers that the laws need of a stream: the uniform of entity k at an index, in [0, 1)."""

    def uniforms_at(self, index: int, entities: IntArray, size: int) -> FloatArray: ...


class Presence(StateFields):
    """Base class of the laws of presence, with their two arrays and their clock."""

    settles = True
    """True: only the law itself changes presence."""

    def __init__(self, clients: int) -> None:
        if clients < 1:
            raise ParameterError("clients", clients, "must be >= 1")
        self.on: BoolArray = np.zeros(clients, dtype=np.bool_)
        """(K,) True for clients that are present."""
        self.next_change_s: FloatArray = np.full(clients, math.inf)
        """(K,) time at which each client next comes or goes; inf: never."""
        self._now_s = 0.0

    def _move_clock(self, now_s: float) -> None:
        """Move the clock to `now_s`. Raises ParameterError for a time before the last one."""
        if not now_s >= self._now_s:
            raise ParameterError("now_s", now_s, f"must be >= {self._now_s!r}, the time of the last advance")
        self._now_s = now_s

    def _due(self) -> IntArray:
        """Return the clients whose change is due."""
        return np.flatnonzero(self.next_change_s <= self._now_s)

    def notes(self) -> dict[str, Any]:
        """Return the facts on presence for the summary that the scenario does not state; plain data."""
        return {}

    def forecast(self, from_s: float, to_s: float) -> FloatArray:
        """Return the expected share of [`from_s`, `to_s`] in which each client will be present; (K,).

        The interval begins at or after the last `advance`. The forecast is the one that a client can make; a law without
        further knowledge forecasts the present state.
        """
        return self.on.astype(np.float64)


class Always(Presence):
    """Every client is always present.

    Example:
        >>> Always(clients=2).on
        array([ True,  True])
    """

    def __init__(self, *, clients: int) -> None:
        super().__init__(clients)
        self.on[:] = True

    def advance(self, now_s: float, draws: Draws) -> None:
        pass

    def changes(self, now_s: float, draws: Draws) -> Changes:
        return iter(())


class Alternating(Presence, ABC):
    """Base class of laws under which clients come and go by draws, independently: a sojourn present, a sojourn away, and so on.

    Draw 0 of a client decides its state at time 0, draw j the length of its j-th sojourn; so presence does not depend on the
    times at which it is looked at. Before the first `advance` no client is present and every client's change is due at 0.
    """

    state_fields = ("_now_s", "on", "next_change_s", "_sojourn")

    def __init__(self, clients: int) -> None:
        super().__init__(clients)
        self.next_change_s[:] = 0.0
        self._sojourn = np.zeros(clients, dtype=np.int64)
        """(K,) number of the present sojourn of each client, from 1; 0 before it begins."""

    @abstractmethod
    def _share_at_first(self) -> FloatArray:
        """Return the probability of each client to be present at time 0; (K,)."""

    @abstractmethod
    def _ends_s(self, clients: IntArray, level: FloatArray) -> FloatArray:
        """Return the ends (n,) of the sojourns that `clients` (n,) begin at `next_change_s`, in the state that `on` holds.

        `level` (n,): standard exponential draws; a sojourn ends when its accumulated hazard reaches its level.
        """

    def advance(self, now_s: float, draws: Draws) -> None:
        for _ in self.changes(now_s, draws):
            pass

    def changes(self, now_s: float, draws: Draws) -> Changes:
        """Advance to `now_s` and yield the changes. Every client that is due makes one change at a time."""
        self._move_clock(now_s)
        due = self._due()
        if due.size and not self._sojourn[due[0]]:
            # All clients begin together. Set the opposite of each client's first state: the flip below makes it the state itself.
            self.on[:] = draws.uniforms_at(0, due, len(self.on)) >= self._share_at_first()
        while due.size:
            self._sojourn[due] += 1
            self.on[due] = ~self.on[due]
            sojourns, times_s = self._sojourn[due], self.next_change_s[due]
            # The number of a sojourn is the index of its draw.
            for sojourn in np.unique(sojourns).tolist():
                clients = due[sojourns == sojourn]
                uniforms = draws.uniforms_at(sojourn, clients, len(self.on))
                self.next_change_s[clients] = self._ends_s(clients, -np.log1p(-uniforms))
            yield due, times_s
            due = due[self.next_change_s[due] <= now_s]


class Markov(Alternating):
    """Clients come and go independently: exponential times on and off, of means `mean_on_s` and `mean_off_s`.

    Example:
        >>> law = Markov(clients=2, mean_on_s=60.0, mean_off_s=30.0)
        >>> law.next_change_s
        array([0., 0.])
    """

    def __init__(
        self,
        *,
        clients: int,
        mean_on_s: Annotated[PerClient, Doc("Mean in seconds of the exponential times in which a client is present.")],
        mean_off_s: Annotated[PerClient, Doc("Mean in seconds of the exponential times in which a client is away.")],
        start: Annotated[
            Literal["stationary", "on"],
            Doc(
                'Presence at time 0. "stationary": each client with probability mean_on_s / (mean_on_s + mean_off_s); "on": all '
                "clients."
            ),
        ] = "stationary",
    ) -> None:
        super().__init__(clients)
        if start not in ("stationary", "on"):
            raise ParameterError("start", start, "must be 'stationary' or 'on'")
        # With shorter means the sum of sojourns would stop growing in floating point; multiples of longer ones would overflow.
        mean_on = per_client("mean_on_s", mean_on_s, low=1e-6, high=1e300)
        mean_off = per_client("mean_off_s", mean_off_s, low=1e-6, high=1e300)
        check_same_clients(clients=self.next_change_s, mean_on_s=mean_on, mean_off_s=mean_off)
        self._mean_on = np.broadcast_to(mean_on, (clients,))
        self._mean_off = np.broadcast_to(mean_off, (clients,))
        self._stationary = start == "stationary"

    def _share_at_first(self) -> FloatArray:
        if not self._stationary:
            # Uniforms are in [0, 1): with a share of 1 every client is present.
            return np.ones(len(self.on))
        share: FloatArray = self._mean_on / (self._mean_on + self._mean_off)
        return share

    def _ends_s(self, clients: IntArray, level: FloatArray) -> FloatArray:
        mean_s = np.where(self.on[clients], self._mean_on[clients], self._mean_off[clients])
        ends: FloatArray = self.next_change_s[clients] + mean_s * level
        return ends

    def forecast(self, from_s: float, to_s: float) -> FloatArray:
        """Return the expected share of the interval in which each client is present; (K,).

        With p the stationary probability of presence, and t counted from now, the probability of presence at t is
        p + (state now - p) exp(-rate t). The share is its mean over the interval.
        """
        rate = 1.0 / self._mean_on + 1.0 / self._mean_off
        p = self._mean_on / (self._mean_on + self._mean_off)
        # In units of 1 / rate.
        begin, length = rate * (from_s - self._now_s), rate * (to_s - from_s)
        divisor = np.where(length > 0, length, 1.0)
        mean_decay = np.exp(-begin) * np.where(length > 0, -np.expm1(-length) / divisor, 1.0)
        forecast: FloatArray = p + (self.on - p) * mean_decay
        return forecast

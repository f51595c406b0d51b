"""Outages that hit several clients at once: every transmission from or to these clients during an outage is lost.

The schedule of an outage is given in seconds or in rounds, or drawn as a two-state Markov process in either. It is looked up as a
transmission ends; outages have no events of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Protocol

import numpy as np

from netsim.core.errors import ParameterError, check_unique
from netsim.core.intervals import Intervals
from netsim.core.protocols import Availability, BoolArray, ChannelLaw, Draws, IntArray, State, Stateful
from netsim.core.state import StateFields
from netsim.network.scripted_outages import ScriptedOutages

_EVER = float("inf")
_FIRST: IntArray = np.zeros(1, np.int64)
CUT_OFF = "cut-off"
CAUSES = ("channel", "link", "sub-channel", "jammed", "collided", "cut", "trace-end", "battery", CUT_OFF)
"""Reserved names: other causes of loss or abortion of updates and messages. No outage may have such a name."""


class OutageSchedule(Stateful, Protocol):
    """Schedule of an outage."""

    intervals: Intervals

    def open_round(self, round: int, time_s: float) -> None:
        """Prepare for `round`, which begins at `time_s`."""

    def reach(self, time_s: float) -> None:
        """Compute all beginnings and ends up to `time_s`."""

    def reach_end(self, time_s: float) -> None:
        """Compute the next end after `time_s`, if it can be known before another round opens."""


def check_bounds(start_s: float, end_s: float) -> None:
    """Raise ValueError unless [`start_s`, `end_s`) is an interval that an outage can have."""
    if not 0 <= start_s < _EVER:
        raise ParameterError("start_s", start_s, "must be >= 0 seconds and finite")
    if not end_s > start_s:
        raise ParameterError("end_s", end_s, f"must be after the start, {start_s!r}")


class IntervalInSeconds(StateFields):
    """Schedule of one interval [`start_s`, `end_s`); end_s inf: the outage never ends."""

    def __init__(self, *, start_s: float, end_s: float = _EVER) -> None:
        check_bounds(start_s, end_s)
        self.intervals = Intervals([(start_s, end_s)])

    def open_round(self, round: int, time_s: float) -> None:
        """Do nothing: the interval does not depend on rounds."""

    def reach(self, time_s: float) -> None:
        """Do nothing: the interval is known."""

    def reach_end(self, time_s: float) -> None:
        """Do nothing: the end is known."""


class _SwitchedSchedule(StateFields):
    """Base of schedules whose beginnings and ends become known as time passes."""

    state_fields: ClassVar[tuple[str, ...]] = ("intervals", "_on")

    def __init__(self) -> None:
        self.intervals = Intervals()
        self._on = False
        """True while the outage is on."""

    def _switch(self, on: bool, time_s: float) -> None:
        """Begin an interval at `time_s` if the outage turns `on`; end it if the outage turns off."""
        if on and not self._on:
            self.intervals.add(time_s)
        elif self._on and not on:
            self.intervals.close(time_s)
        self._on = on

    def reach(self, time_s: float) -> None:
        """Do nothing: beginnings and ends become known as rounds open."""

    def reach_end(self, time_s: float) -> None:
        """Do nothing: no end is known before another round opens."""


class IntervalInRounds(_SwitchedSchedule):
    """Schedule from the opening of round `start` to the opening of round `end` (None: no end)."""

    def __init__(self, *, start: int, end: int | None = None) -> None:
        super().__init__()
        if start < 1:
            raise ParameterError("start", start, "must be a round from 1 on")
        if end is not None and end <= start:
            raise ParameterError("end", end, f"must be after the start, {start!r}")
        self._start, self._end = start, end

    def open_round(self, round: int, time_s: float) -> None:
        """Switch the outage on or off as `round` begins."""
        has_ended = self._end is not None and round >= self._end
        self._switch(round >= self._start and not has_ended, time_s)


class MarkovInRounds(_SwitchedSchedule):
    """Schedule that is on while the one sub-channel of `law` is Bad; one step a round. The law loses all or nothing."""

    state_fields = ("_law",)

    def __init__(self, *, law: ChannelLaw, draws: Draws) -> None:
        super().__init__()
        self._law, self._draws = law, draws

    def open_round(self, round: int, time_s: float) -> None:
        """Move the process one step on, and switch the outage on or off."""
        u = self._draws.uniforms(round, 1)
        # The law loses all or nothing, so `u` does not decide in `good`: one number serves the step and the state.
        self._law.step(u)
        is_good = self._law.good(u, _FIRST)[0]
        self._switch(not is_good, time_s)


class MarkovInSeconds(_SwitchedSchedule):
    """Schedule that is on while the one client of `presence` is away."""

    state_fields = ("_presence",)

    def __init__(self, *, presence: Availability, draws: Draws) -> None:
        super().__init__()
        self._presence, self._draws = presence, draws

    def open_round(self, round: int, time_s: float) -> None:
        """Do nothing: the process runs in seconds."""

    def reach(self, time_s: float) -> None:
        """Run the process up to `time_s`."""
        presence = self._presence
        # Advance change by change: a single long step would skip intervals in between.
        next_s = float(presence.next_change_s[0])
        while next_s <= time_s:
            presence.advance(next_s, self._draws)
            self._switch(not presence.on[0], next_s)
            next_s = float(presence.next_change_s[0])

    def reach_end(self, time_s: float) -> None:
        """Run the process until the next end after `time_s` is known."""
        while self.intervals.next_end(time_s) == _EVER:
            self.reach(float(self._presence.next_change_s[0]))


class ClientOutage(StateFields):
    """One outage of `members` (None: all clients). Tables show `name` as the cause of the losses."""

    state_fields = ("when",)

    def __init__(self, *, name: str, when: OutageSchedule, clients: int, members: IntArray | None = None) -> None:
        if name in CAUSES:
            raise ParameterError("name", name, "is the name of another cause of loss; choose another")
        hits = np.full(clients, members is None)
        if members is not None:
            hits[members] = True
        self.name = name
        self.when = when
        self.hits: BoolArray = hits
        """True (K,) for clients that the outage cuts off."""
        # The same as bytes: a lookup in an array costs several times as much.
        self._hits = hits.tobytes()

    def destroys(self, client: int, start_s: float, end_s: float) -> bool:
        """Return True if the outage destroys a transmission of `client` over [start_s, end_s), or at the instant start_s = end_s.
        """
        # Fast path: most clients are out of reach, and the schedule need not be computed for them.
        if not self._hits[client]:
            return False
        self.when.reach(end_s)
        return self.when.intervals.overlap(start_s, end_s)

    def quiet_until(self, time_s: float) -> float:
        """Return the time until which the outage is surely off, if no round opens before; -inf: it is on now."""
        self.when.reach_end(time_s)
        intervals = self.when.intervals
        return -_EVER if intervals.overlap(time_s, time_s) else intervals.next_start(time_s)

    def next_return_s(self, time_s: float) -> float:
        """Return the next end of the outage after `time_s`; inf if unknown."""
        self.when.reach_end(time_s)
        return self.when.intervals.next_end(time_s)

    def down_indefinitely(self, time_s: float) -> set[int]:
        """Return the clients cut off at `time_s`, if no end is known before another round opens; else none."""
        end_is_known = self.next_return_s(time_s) < _EVER
        is_on = self.when.intervals.overlap(time_s, time_s)
        if end_is_known or not is_on:
            return set()
        return set(np.flatnonzero(self.hits).tolist())

    def down_for_ever(self, time_s: float) -> set[int]:
        """Return the clients cut off at `time_s` that stay so, unless another round opens."""
        return self.down_indefinitely(time_s)

    def open_round(self, round: int, time_s: float) -> None:
        """Prepare for `round`, which begins at `time_s`."""
        self.when.open_round(round, time_s)

    def forget(self, before_s: float) -> None:
        """Forget earlier times: no transmission in flight began before `before_s`."""
        self.when.intervals.forget(before_s)


class CutOffs(ScriptedOutages):
    """Clients that a script cuts off from the server: their messages in both directions are lost."""

    name = CUT_OFF

    def down_indefinitely(self, time_s: float) -> set[int]:
        """Return the clients that are cut off at `time_s`: the time of their reconnection is unknown."""
        return self.down()

    def open_round(self, round: int, time_s: float) -> None:
        """Do nothing: only scripts cut clients off."""

    def forget(self, before_s: float) -> None:
        """Forget earlier times: no transmission in flight began before `before_s`."""
        for intervals in self._intervals.values():
            intervals.forget(before_s)


class ClientOutages:
    """All outages of a run; false in a test if there are none."""

    def __init__(self, outages: Sequence[ClientOutage] = (), *, cut_offs: CutOffs | None = None) -> None:
        check_unique([outage.name for outage in outages])
        self._foreseen = list(outages)
        """Outages whose times are known beforehand, without cuts by a script."""
        self._all: list[ClientOutage | CutOffs] = [*outages] if cut_offs is None else [cut_offs, *outages]
        self._under_way: list[Callable[[], float]] = []
        """Callbacks of `remember_from`."""

    def __bool__(self) -> bool:
        return bool(self._all)

    @property
    def foreseeable(self) -> bool:
        """True if the times of all outages are known beforehand; otherwise a client may be cut off at any time."""
        return len(self._foreseen) == len(self._all)

    def __iter__(self) -> Iterator[ClientOutage]:
        """Iterate over the outages whose times are known."""
        return iter(self._foreseen)

    def open_round(self, round: int, time_s: float) -> None:
        """Prepare for `round`, which begins at `time_s`."""
        for outage in self._all:
            outage.open_round(round, time_s)

    def remember_from(self, earliest_s: Callable[[], float]) -> None:
        """Register other transmissions, so that outages since their beginnings are remembered.

        `earliest_s`: returns the time at which the first of those in flight began; inf: none is in flight.
        """
        self._under_way.append(earliest_s)

    def forget(self, before_s: float) -> None:
        """Forget earlier times: no transmission in flight between server and clients began before `before_s`."""
        # Messages between clients may be older than the oldest transmission between clients and server.
        before_s = min((before_s, *(earliest_s() for earliest_s in self._under_way)))
        for outage in self._all:
            outage.forget(before_s)

    def cause(self, client: int, start_s: float, end_s: float) -> str | None:
        """Return the name of the first outage that a transmission of `client` over [start_s, end_s) meets, or None."""
        for outage in self._all:
            if outage.destroys(client, start_s, end_s):
                return outage.name
        return None

    def down_indefinitely(self, time_s: float) -> set[int]:
        """Return the clients that are cut off at `time_s` without a known end before the next round opens."""
        return {client for outage in self._all for client in outage.down_indefinitely(time_s)}

    def down_for_ever(self, time_s: float) -> set[int]:
        """Return the clients that are cut off at `time_s` and stay so, unless another round opens."""
        return {client for outage in self._all for client in outage.down_for_ever(time_s)}

    def state_dict(self) -> State:
        """Return the states of all outages, by name."""
        return {outage.name: outage.state_dict() for outage in self._all}

    def load_state_dict(self, state: State) -> None:
        """Go on from a saved state."""
        for outage in self._all:
            outage.load_state_dict(state[outage.name])

"""Members of one coordinator: its view of a pool that holds the members of several coordinators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from netsim.clients.update import OUTCOMES
from netsim.core.causes import Causes
from netsim.core.state import StateFields

if TYPE_CHECKING:
    from netsim.clients.attempts import Attempts
    from netsim.clients.pool import ClientPool
    from netsim.clients.served import ProbeBytes
    from netsim.clients.serving import Serving
    from netsim.clients.update import Update
    from netsim.clients.vectorised.columns import Columns
    from netsim.core.protocols import BoolArray, FloatArray, IntArray, State
    from netsim.network.access import UplinkAccess

_EVER = float("inf")


class SharedMedium:
    """The medium of a pool that several coordinators share: its round is the latest round of any coordinator."""

    def __init__(self, pool: ClientPool) -> None:
        self._medium = pool.medium
        self.round = 0
        """Round of the medium's stateful parts, such as channels and jammers."""

    @property
    def access(self) -> UplinkAccess[Any]:
        """Access to the uplink."""
        return self._medium.access

    def open_round(self, round: int, time_s: float) -> None:
        """Advance the medium to `round`, unless another coordinator has done so."""
        if round > self.round:
            self.round = round
            self._medium.open_round(round, time_s)

    def state_dict(self) -> State:
        """Return an empty state: the tree saves the medium once, with `whole_state`."""
        return {}

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Do nothing: see `state_dict`."""

    def whole_state(self) -> State:
        """Return the state of the medium."""
        return {"round": self.round, "medium": self._medium.state_dict()}

    def load_whole(self, state: State, time_s: float) -> None:
        """Load the state of the medium."""
        self.round = state["round"]
        self._medium.load_state_dict(state["medium"], self.round, time_s)


@dataclass(frozen=True, slots=True)
class _NoWholeRounds:
    """Null object of whole rounds: attempts of several coordinators overlap, so each runs by events."""

    closes_s: float | None = None
    last_end: int | None = None

    def on_close(self) -> None:
        """Do nothing: no attempts run as arrays."""


@dataclass(frozen=True, slots=True)
class _Changes:
    """Next change of presence: the only part of `Availability` that coordinators read."""

    next_change_s: FloatArray


class _Life:
    """Lifecycle of updates, restricted to one coordinator: its rules, and the bytes of its members' updates."""

    def __init__(self, members: Members) -> None:
        self._members = members

    @property
    def serving(self) -> Serving:
        """The rules of the coordinator for arriving updates."""
        return self._members.serving

    @property
    def retry(self) -> bool:
        """True if undelivered updates are sent again."""
        return self._members.pool.life.retry

    @property
    def bytes_down(self) -> int:
        """Bytes sent to members so far."""
        return self._members.bytes_of("bytes_down")

    @property
    def bytes_up(self) -> int:
        """Bytes sent by members so far."""
        return self._members.bytes_of("bytes_up")


class Attendance(Protocol):
    """Attendance of edges, (E,) for all edges; the coordinators of edges ask for it.

    An edge is attended while at least one of its members is present, or an edge below it is attended.
    """

    def attended(self) -> BoolArray:
        """Return True (E,) for edges with a member that is present."""

    def ever_attended(self) -> BoolArray:
        """Return True (E,) for edges that have a present member now, or may have one later."""

    def next_change_s(self) -> float:
        """Return the time of the next change; inf: never."""


class Members(StateFields):
    """The members of the coordinator `name` (None: the server), with the interface of a pool of clients, which a round loop and
    its rules use.

    `is_member` (K,): True for members; `Moves` keeps it up to date. `waits`: the coordinator waits for members that are away;
    otherwise a round opens with present members, or not at all. `attendance`: tells which edges have present members, if the
    members are edges; None if they are clients.
    """

    state_fields = ("started", "ended", "_bytes", "causes")
    whole_rounds = _NoWholeRounds()
    probes: ProbeBytes | None = None

    def __init__(
        self,
        *,
        pool: ClientPool,
        name: str | None,
        is_member: BoolArray,
        medium: SharedMedium,
        waits: bool,
        attendance: Attendance | None = None,
    ) -> None:
        self.pool, self.name, self.is_member, self.medium = pool, name, is_member, medium
        self._waits, self._attendance = waits, attendance
        self.clock, self.count, self.accountant, self.energy = pool.clock, pool.count, pool.accountant, pool.energy
        self.reports_phases = pool.reports_phases
        self.causes = Causes(pool.clock, pool.medium.inexact_phases())
        self.followers: list[Callable[[Update], object]] = []
        """Listeners called with each update of a member whose attempt ends."""
        self._move_followers: list[Callable[[int], object]] = []
        self.watchers: list[Callable[[], object]] = []
        """Listeners called when a script has moved a client in or out."""
        self.serving: Serving
        self.started = 0
        """Attempts begun by the coordinator."""
        self.ended = dict.fromkeys(OUTCOMES, 0)
        """Ended attempts of the coordinator, by outcome."""
        self._bytes = {"bytes_down": 0, "bytes_up": 0}
        """Bytes of the attempts that have ended."""
        self.in_flight: dict[int, Update] = {}
        """Updates in flight, by member."""
        self.life = _Life(self)
        self.moves_s: Callable[[], float] = lambda: _EVER
        """Function that returns the time at which the next member comes or goes by a move."""

    @property
    def alive(self) -> dict[int, Update]:
        """Updates by member."""
        return self.in_flight

    @property
    def busy(self) -> BoolArray:
        """True (K,) while an attempt of the client is in flight, of this coordinator or of another one."""
        return self.pool.busy

    @property
    def under_way(self) -> int:
        """Number of attempts that have not ended."""
        return len(self.in_flight)

    def serve(self, server: Serving) -> None:
        """Let `server` decide which updates it accepts."""
        self.serving = server

    def follow(self, each: Callable[[Update], object], together: Callable[[Columns], object] | None = None) -> None:
        """Call `each` with every update of a member as its attempt ends; `together` is not used, since attempts run by events."""
        self.followers.append(each)

    def follow_moves(self, on_move: Callable[[int], object]) -> None:
        """Call `on_move` with each client that comes from another edge, or goes to another one."""
        self._move_followers.append(on_move)

    def move(self, client: int, *, comes: bool) -> None:
        """Let `client` come from another edge, or go to another one."""
        self.is_member[client] = comes
        for on_move in self._move_followers:
            on_move(client)

    def follow_singly(self) -> None:
        """Do nothing: every attempt runs by events anyway."""

    def go_by_events(self) -> None:
        """Do nothing: every attempt runs by events anyway."""

    def unused_columns(self) -> list[str]:
        """Return the unused columns of the pool."""
        return self.pool.unused_columns()

    def advance(self) -> None:
        """Bring the presence of the pool's clients up to date."""
        self.pool.advance()

    def bytes_of(self, name: str) -> int:
        """Return the sum of the column `name` (bytes) over all attempts so far."""
        in_flight = sum(int(getattr(update, name)) for update in self.in_flight.values())
        return self._bytes[name] + in_flight

    # Presence

    @property
    def availability(self) -> _Changes:
        """Next change of presence: of a client of the pool, by a move, or of a member of an edge below."""
        soonest = min(float(self.pool.availability.next_change_s.min()), self.moves_s())
        if self._attendance is not None:
            soonest = min(soonest, self._attendance.next_change_s())
        return _Changes(np.array([soonest]))

    def selectable(self, *, busy_too: bool) -> BoolArray:
        """Return True (K,) for members that can be selected. An edge can be selected while it is attended."""
        selectable = self.pool.selectable(busy_too=busy_too) & self.is_member
        return selectable if self._attendance is None else selectable & self._attendance.attended()

    def ever_selectable(self) -> BoolArray:
        """Return True (K,) for members that can be selected now or later, once they are no longer busy."""
        # Without waiting, a member that is away now is no reason to keep a round open.
        if not self._waits:
            return self.selectable(busy_too=True)
        selectable = self.pool.ever_selectable() & self.is_member
        return selectable if self._attendance is None else selectable & self._attendance.ever_attended()

    # Attempts

    def start(
        self,
        round: int,
        chosen: IntArray,
        version: int,
        steps: IntArray | None = None,
        holders: frozenset[int] = frozenset(),
        address: int | None = None,
    ) -> Attempts:
        """Begin an attempt of each of the members `chosen` (n,) and return them. `ClientPool.start` explains the parameters."""
        pool = self.pool
        self.started += len(chosen)
        # The pool records the causes and the coordinator of the attempts that it begins: set those of this coordinator meanwhile.
        pool_causes, pool.causes, pool.coordinator = pool.causes, self.causes, self.name
        try:
            attempts = pool.start(round, chosen, version, steps, holders, address)
        finally:
            pool.causes, pool.coordinator = pool_causes, None
        # Attempts without durations have ended already.
        self.in_flight |= {update.client: update for update in attempts.updates if not update.outcome}
        return attempts

    def take_over(self, update: Update, *, round: int, version: int) -> None:
        """Begin an attempt, in this coordinator's `round`, of an update that another coordinator began.

        `version`: version of this coordinator's model from which the age of the update counts.
        """
        assert self.name is not None
        self.started += 1
        self.pool.begin_again(update, round=round, version=version, edge=self.name)
        self.in_flight[update.client] = update

    def on_end(self, update: Update) -> None:
        """Callback at the end of an attempt of this coordinator."""
        self.in_flight.pop(update.client, None)
        self.ended[update.outcome] += 1
        for name in self._bytes:
            self._bytes[name] += getattr(update, name)
        self.causes.end(update, self.followers)

    def cut(self) -> None:
        """End all attempts as late: the coordinator no longer waits for them."""
        self.pool.end_all(list(self.in_flight.values()), "late")

    def abort(self, cause: str) -> None:
        """End all attempts as aborted, with this cause."""
        for update in list(self.in_flight.values()):
            self.pool.life.end(update, "aborted", self.clock.now, cause)

    def updates_in_flight(self) -> Sequence[Update]:
        """Return the attempts in flight, by round and place."""
        return sorted(self.in_flight.values(), key=lambda update: (update.round, update.send_place))

    def state_dict(self) -> State:
        """Return the counts, and the members with an attempt in flight; the pool saves their updates."""
        return super().state_dict() | {"in_flight": list(self.in_flight)}

    def load_state_dict(self, state: State) -> None:
        """Load a state; the pool's state must be loaded before."""
        super().load_state_dict(state)
        self.in_flight = {member: self.pool.alive_now[member] for member in state["in_flight"]}

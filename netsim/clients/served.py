"""The clients of one coordinator, as its rules see them: all clients of a run (`ClientPool`), or the members of a node of a tree
(`netsim.servers.tiers.members.Members`). Round loops, dispatch rules and close rules are written for this interface.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from netsim.clients.attempts import Attempts
    from netsim.clients.pool import ClientPool
    from netsim.clients.power.energy import Energy
    from netsim.clients.serving import Serving
    from netsim.clients.update import Update
    from netsim.clients.vectorised.columns import Columns
    from netsim.core.causes import Causes
    from netsim.core.clock import Clock
    from netsim.core.protocols import Accountant, BoolArray, FloatArray, IntArray, State
    from netsim.network.access import UplinkAccess


class ServedMedium(Protocol):
    """The medium of the clients, as rounds advance and save it."""

    @property
    def access(self) -> UplinkAccess[Any]:
        """Access to the uplink."""

    def open_round(self, round: int, time_s: float) -> None:
        """Advance stateful parts, such as channels and jammers, to `round`."""

    def state_dict(self) -> State:
        """Return the state."""

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Load a state of `round` at `time_s`."""


class ServedLife(Protocol):
    """The lifecycle of the coordinator's updates: the rules for arriving updates, and bytes so far."""

    @property
    def serving(self) -> Serving:
        """The coordinator's rules for arriving updates."""

    @property
    def retry(self) -> bool:
        """True if an update that was not delivered is kept, and sent again in a later attempt."""

    @property
    def bytes_down(self) -> int:
        """Bytes sent to clients so far."""

    @property
    def bytes_up(self) -> int:
        """Bytes sent by clients so far."""


class PresenceChanges(Protocol):
    """Changes of presence to come."""

    @property
    def next_change_s(self) -> FloatArray:
        """Times of the next changes; inf: never."""


class KnownClose(Protocol):
    """Attempts that are simulated together as arrays."""

    @property
    def closes_s(self) -> float | None:
        """Time at which the open round closes, if they tell; otherwise None."""

    @property
    def last_end(self) -> int | None:
        """Number of the last attempt of the round that ends by its close; None: none does."""

    def on_close(self) -> None:
        """Handle the close of the round at that time."""


class ProbeBytes(Protocol):
    """Bytes of probes beside updates."""

    @property
    def bytes_down(self) -> int:
        """Bytes sent to probed clients so far."""

    @property
    def bytes_up(self) -> int:
        """Bytes of answers so far."""


class ServedClients(Protocol):
    """The clients of one coordinator. Arrays (K,) are over all clients of the pool; some may belong to other coordinators.

    `ClientPool` explains the attributes that have no docstring here.
    """

    followers: list[Callable[[Update], object]]
    watchers: list[Callable[[], object]]

    @property
    def pool(self) -> ClientPool:
        """The pool that holds them, with the clients of other coordinators."""

    @property
    def count(self) -> int:
        """Number of clients of the pool, K."""

    @property
    def clock(self) -> Clock: ...
    @property
    def medium(self) -> ServedMedium: ...
    @property
    def life(self) -> ServedLife: ...
    @property
    def causes(self) -> Causes: ...
    @property
    def accountant(self) -> Accountant: ...
    @property
    def energy(self) -> Energy | None: ...
    @property
    def probes(self) -> ProbeBytes | None: ...
    @property
    def whole_rounds(self) -> KnownClose: ...
    @property
    def availability(self) -> PresenceChanges: ...
    @property
    def reports_phases(self) -> bool: ...
    @property
    def busy(self) -> BoolArray: ...
    @property
    def started(self) -> int: ...
    @property
    def ended(self) -> Mapping[str, int]: ...
    @property
    def alive(self) -> Mapping[int, Update]: ...
    @property
    def in_flight(self) -> Mapping[int, Update]: ...
    @property
    def under_way(self) -> int: ...

    def serve(self, server: Serving) -> None:
        """Let `server` decide which updates it takes."""

    def follow(self, each: Callable[[Update], object], together: Callable[[Columns], object] | None = None) -> None:
        """Call `each` with every update whose attempt ends, and `together` with attempts that were simulated as arrays. Without
        `together` every attempt runs by events.
        """

    def follow_singly(self) -> None:
        """Run every attempt by events, because a listener reads single updates."""

    def follow_moves(self, on_move: Callable[[int], object]) -> None:
        """Call `on_move` with each client that comes from another coordinator, or goes to another one."""

    def go_by_events(self) -> None:
        """Continue each attempt in flight by events. Must be called before time passes between rounds."""

    def unused_columns(self) -> list[str]:
        """Return the columns of an attempt's record that have no content in this run."""

    def advance(self) -> None:
        """Bring presence, and the charges of batteries, up to the present time."""

    def selectable(self, *, busy_too: bool) -> BoolArray:
        """Return True (K,) for clients that may be selected now, after `advance`. `busy_too`: busy clients may be selected, too.
        """

    def ever_selectable(self) -> BoolArray:
        """Return True (K,) for clients that may be selected now or later, once they are not busy."""

    def start(
        self,
        round: int,
        chosen: IntArray,
        version: int,
        steps: IntArray | None = None,
        holders: frozenset[int] = frozenset(),
        address: int | None = None,
    ) -> Attempts:
        """Begin an attempt of each of `chosen` (n,) in `round`, and return the attempts.

        Clients receive the model of `version`, except `holders`, which have it already. `steps` (n,): local steps requested of
        each; None: as the work law says. `address`: round that addresses the random numbers of the attempts; None: `round`.
        """

    def cut(self) -> None:
        """End all attempts in flight as late: the coordinator waits for them no longer."""

    def updates_in_flight(self) -> Sequence[Update]:
        """Return the attempts in flight, by round and place of selection."""

    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...

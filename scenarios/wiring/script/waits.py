"""Waits of a script, and the answers that end them.

A method of `World` creates a wait, and the script yields it: from then on it counts. When a run is resumed, its description as
plain data (`plain`) is compared.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

_FOREVER = math.inf


@dataclass(frozen=True, slots=True)
class Ended:
    """End of an attempt of a client."""

    time_s: float
    round: int
    """The round in which the attempt was begun."""
    client: int
    outcome: str
    """delivered, lost, late or aborted."""
    cause: str | None
    """Cause of a loss."""
    channel: int | None
    """Sub-channel assigned to the client; None if the server has no sub-channels with states."""
    latency_s: float
    """Seconds from selection to the end."""


@dataclass(frozen=True, slots=True)
class Declared:
    """Changes that detectors declared as a round closed."""

    time_s: float
    round: int
    """The round at whose close they were declared."""
    channels: tuple[int, ...]
    """The sub-channels on which the scheduler saw changes, ascending."""
    clients: tuple[int, ...]
    """Clients in whose latencies the policy saw changes, ascending."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Event just before a round, or a slot, opens."""

    time_s: float
    number: int
    is_slot: bool = False


@dataclass(frozen=True, slots=True)
class Reached:
    """Event at a time for which a script waits."""

    time_s: float


Event: TypeAlias = Ended | Declared | Opened | Reached
_EVENTS_BY_NAME: dict[str, type[Ended | Declared]] = {"ended": Ended, "declared": Declared}


def _plain(value: object) -> object:
    """Return a value that a wait gave to the script as plain data: an event becomes [name, fields]."""
    for name, kind in _EVENTS_BY_NAME.items():
        if isinstance(value, kind):
            return [name, {field.name: getattr(value, field.name) for field in fields(value)}]
    return value


def _from_plain(value: object) -> object:
    """Return the inverse of `_plain`."""
    return _EVENTS_BY_NAME[value[0]](**value[1]) if isinstance(value, list) else value


class Wait(ABC):
    """Wait of a script, to be yielded. `a | b` waits for the first of both, and the yield then gives that one."""

    due_s: float = _FOREVER
    """Latest time of the end of the wait; inf if unknown."""
    due_round: float = _FOREVER
    """Latest round at whose opening the wait ends; inf if unknown."""
    watches_ends = False
    """True if the end of an attempt may end the wait."""
    value: object = None
    """Value that `yield` returns once the wait has ended: its event, round or time."""

    def begin(self) -> None:
        """Start the wait: the script yields it now."""
        return

    def is_over(self, round: int, slot: int, time_s: float) -> bool:
        """Return True if the wait is over at its start, because its event has happened before. Sets `value`."""
        return False

    def on_event(self, event: Event) -> bool:
        """Return True if `event` ends the wait. Sets `value`."""
        return False

    @abstractmethod
    def plain(self) -> list[object]:
        """Return the wait as plain data."""

    def outcome(self) -> tuple[int, object]:
        """Return the index of the wait that ended among several (0 for a single wait), and its value, as plain data."""
        return 0, _plain(self.value)

    def restore_outcome(self, index: int, value: object) -> None:
        """Restore the noted outcome of the wait, as `outcome` returned it; a single wait has the index 0."""
        self.value = _from_plain(value)

    def state_dict(self) -> object:
        """Return the progress of the wait as plain data."""
        return None

    def load_state_dict(self, state: object) -> None:
        """Restore the state."""
        return

    def __or__(self, other: Wait) -> Wait:
        return AnyOf([self, other])


Script: TypeAlias = Generator[Wait, Any, None]
"""Type that a script's function returns: write `def script(world: netsim.World) -> netsim.Script:`."""


class UntilRound(Wait):
    """Wait until a round, or a slot, is about to open."""

    def __init__(self, number: int, *, slot: bool = False) -> None:
        self.number, self.slot = number, slot
        if not slot:
            self.due_round = number

    def is_over(self, round: int, slot: int, time_s: float) -> bool:
        """Return True if the round or slot is open already."""
        self.value = slot if self.slot else round
        return bool(self.value >= self.number)

    def on_event(self, event: Event) -> bool:
        """Return True if the round or slot, or a later one, opens."""
        if not isinstance(event, Opened) or event.is_slot != self.slot or event.number < self.number:
            return False
        self.value = event.number
        return True

    def plain(self) -> list[object]:
        """Return name and number."""
        return ["until_slot" if self.slot else "until_round", self.number]


class UntilTime(Wait):
    """Wait until a simulated time."""

    def __init__(self, time_s: float) -> None:
        self.due_s = time_s

    def is_over(self, round: int, slot: int, time_s: float) -> bool:
        """Return True if the time has passed."""
        self.value = time_s
        return time_s >= self.due_s

    def on_event(self, event: Event) -> bool:
        """Return True if the time is reached."""
        if not isinstance(event, Reached) or event.time_s < self.due_s:
            return False
        self.value = event.time_s
        return True

    def plain(self) -> list[object]:
        """Return name and time."""
        return ["until_time", self.due_s]


class UntilEnded(Wait):
    """Wait until `count` attempts have ended with this outcome, cause, client and channel; None: any."""

    watches_ends = True

    def __init__(
        self,
        *,
        outcome: str | None,
        cause: str | None,
        clients: Sequence[int] | None,
        channels: Sequence[int] | None,
        count: int,
    ) -> None:
        self._outcome, self._cause, self._count = outcome, cause, count
        self._clients = None if clients is None else frozenset(clients)
        self._channels = None if channels is None else frozenset(channels)
        self._matched = 0

    def begin(self) -> None:
        """Count from 0 again."""
        self._matched = 0

    def on_event(self, event: Event) -> bool:
        """Count a matching end; return True at the last one."""
        if not isinstance(event, Ended) or not self._matches(event):
            return False
        self._matched += 1
        self.value = event
        return self._matched >= self._count

    def _matches(self, event: Ended) -> bool:
        """Return True if the event has the outcome, cause, client and channel that the wait is for."""
        return (
            (self._outcome is None or event.outcome == self._outcome)
            and (self._cause is None or event.cause == self._cause)
            and (self._clients is None or event.client in self._clients)
            and (self._channels is None or event.channel in self._channels)
        )

    def plain(self) -> list[object]:
        """Return name and conditions."""
        sets = [None if numbers is None else sorted(numbers) for numbers in (self._clients, self._channels)]
        return ["until_end", self._outcome, self._cause, *sets, self._count]

    def state_dict(self) -> object:
        """Return the number of matching ends so far."""
        return self._matched

    def load_state_dict(self, state: Any) -> None:
        """Restore the number of matching ends."""
        self._matched = state


class UntilDeclared(Wait):
    """Wait until a change is declared of any of these sub-channels or clients (both None: any)."""

    def __init__(self, *, channels: Sequence[int] | None, clients: Sequence[int] | None) -> None:
        self._channels = None if channels is None else frozenset(channels)
        self._clients = None if clients is None else frozenset(clients)

    def on_event(self, event: Event) -> bool:
        """Return True if the declared changes include one that the wait is for."""
        if not isinstance(event, Declared):
            return False
        self.value = event
        if self._channels is None and self._clients is None:
            return True
        is_channel_declared = self._channels is not None and not self._channels.isdisjoint(event.channels)
        is_client_declared = self._clients is not None and not self._clients.isdisjoint(event.clients)
        return is_channel_declared or is_client_declared

    def plain(self) -> list[object]:
        """Return name and conditions."""
        sets = [None if numbers is None else sorted(numbers) for numbers in (self._channels, self._clients)]
        return ["until_change_declared", *sets]


class AnyOf(Wait):
    """Wait until one of several waits ends; if several end together, the first one counts. Its yield returns that wait."""

    value: Wait | None = None

    def __init__(self, waits: list[Wait]) -> None:
        self.waits: list[Wait] = []
        for wait in waits:
            # `a | b | c` is one wait for three, not a wait for `a | b` or for c.
            self.waits += wait.waits if isinstance(wait, AnyOf) else [wait]
        self.due_s = min(wait.due_s for wait in self.waits)
        self.due_round = min(wait.due_round for wait in self.waits)
        self.watches_ends = any(wait.watches_ends for wait in self.waits)

    def begin(self) -> None:
        """Start all waits."""
        for wait in self.waits:
            wait.begin()

    def is_over(self, round: int, slot: int, time_s: float) -> bool:
        """Return True if one of the waits is over at its start; the first of them is the value."""
        self.value = next((wait for wait in self.waits if wait.is_over(round, slot, time_s)), None)
        return self.value is not None

    def on_event(self, event: Event) -> bool:
        """Return True if `event` ends one of the waits. The first of these is the value."""
        # Pass the event to each wait, so that counting waits go on counting.
        ended = [wait for wait in self.waits if wait.on_event(event)]
        self.value = ended[0] if ended else None
        return bool(ended)

    def outcome(self) -> tuple[int, object]:
        """Return the index of the wait that ended, and its value as plain data."""
        ended = self.value
        assert ended is not None  # only a wait that has ended is asked
        return self.waits.index(ended), _plain(ended.value)

    def restore_outcome(self, index: int, value: object) -> None:
        """Restore the index of the wait that ended, and its value."""
        self.value = self.waits[index]
        self.value.restore_outcome(0, value)

    def plain(self) -> list[object]:
        """Return the waits as plain data."""
        return ["any", *(wait.plain() for wait in self.waits)]

    def state_dict(self) -> object:
        """Return the progress of all waits."""
        return [wait.state_dict() for wait in self.waits]

    def load_state_dict(self, state: Any) -> None:
        """Restore the progress of all waits."""
        for wait, wait_state in zip(self.waits, state, strict=True):
            wait.load_state_dict(wait_state)

"""Access to the uplink: turns of senders, and delays and losses on the way beside the sender's own link.

`OwnLinkAccess`: every sender at once. `QueuedAccess`: n sub-channels alike with one queue. `AssignedAccess`: the sub-channels of
a spectrum, one of which is assigned to each sender; they have states, may be jammed, and may be contended for.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from netsim.core.errors import ParameterError
from netsim.network.spectrum import Spectrum, Transmission

if TYPE_CHECKING:
    from netsim.core.protocols import State
    from netsim.network.jamming import Jammers

SenderT = TypeVar("SenderT", bound=Transmission)


class UplinkAccess(Protocol[SenderT]):
    """Access to the uplink: it decides which sender transmits when, and reports losses on the way."""

    own_link: bool
    """True if the way adds neither time nor loss to the sender's own link: `begin` and `loss` are then not called."""
    free: bool
    """True if, moreover, no sender ever waits: `take` and `end` are then not called either."""
    steady: bool
    """True if no sub-channel has a bandwidth that changes in time."""

    @property
    def assigned(self) -> AssignedAccess[SenderT] | None:
        """The access itself if its sub-channels have states and are assigned to senders; None otherwise."""

    def open_round(self, round: int, time_s: float) -> None:
        """Prepare for `round`, which begins at `time_s`."""

    def take(self, sender: SenderT) -> bool:
        """Give `sender` a turn now and return True, or put it at the end of a queue and return False."""

    def withdraw(self, sender: SenderT) -> None:
        """Remove a waiting `sender` from its queue."""

    def begin(self, sender: SenderT, now: float) -> float:
        """Begin a transmission; return the time at which it has passed the additions of the way to the client's own link,
        seconds.
        """

    def loss(self, sender: SenderT) -> str | None:
        """Return the cause by which access destroys the transmission that ends now, such as jamming; None if it does not."""

    def next_after(self, sender: SenderT) -> SenderT | None:
        """Return the sender whose turn comes when the transmission of `sender` ends; None if none waits."""

    def end(self, sender: SenderT, *, delivered: bool) -> SenderT | None:
        """End a transmission, or abort it; return the sender whose turn it now is, None if none waited."""

    def waiting(self) -> list[SenderT]:
        """Return the senders that wait, in order."""

    def stop(self) -> None:
        """Record what has not ended at the end of the run."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Restore the state at the close of `round`. `resume` adds transmissions in flight and waiting senders afterwards."""

    def precedes(self, number: int) -> bool:
        """Return True if the next scheduled action of this access precedes the clock's call `number` at the same instant."""

    def arm(self) -> None:
        """Schedule the next action of this access again, after the state is restored and the calls before it are scheduled."""

    def resume(self, under_way: list[SenderT], waiting: list[SenderT]) -> None:
        """Restore the senders that were transmitting and those that waited when the state was saved."""


class OwnLinkAccess(Generic[SenderT]):
    """Null object of access: every client has a link of its own, and no sender waits."""

    own_link = free = steady = True
    assigned: AssignedAccess[SenderT] | None = None

    def open_round(self, round: int, time_s: float) -> None:
        """Do nothing: rounds make no difference."""

    def take(self, sender: SenderT) -> bool:
        return True

    def withdraw(self, sender: SenderT) -> None:
        """Do nothing: no sender waits."""

    def begin(self, sender: SenderT, now: float) -> float:
        return now

    def loss(self, sender: SenderT) -> str | None:
        return None

    def next_after(self, sender: SenderT) -> SenderT | None:
        return None

    def end(self, sender: SenderT, *, delivered: bool) -> SenderT | None:
        return None

    def waiting(self) -> list[SenderT]:
        return []

    def stop(self) -> None:
        """Do nothing: no records are kept."""

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        return None

    def precedes(self, number: int) -> bool:
        """Return False: this access schedules no action."""
        return False

    def arm(self) -> None:
        """Do nothing: this access schedules no action."""

    def resume(self, under_way: list[SenderT], waiting: list[SenderT]) -> None:
        return None


class QueuedAccess(OwnLinkAccess[SenderT]):
    """Equal sub-channels: each transmission holds one from start to end; senders wait in order if none is free.

    Raises ValueError for a count below 1.
    """

    free = False

    def __init__(self, *, count: int) -> None:
        if count < 1:
            raise ParameterError("sub_channels", count, "must be at least 1")
        self.count = count
        self.held = 0
        self._queue: deque[SenderT] = deque()

    def take(self, sender: SenderT) -> bool:
        if self.held >= self.count:
            self._queue.append(sender)
            return False
        self.held += 1
        return True

    def withdraw(self, sender: SenderT) -> None:
        self._queue.remove(sender)

    def next_after(self, sender: SenderT) -> SenderT | None:
        return self._queue[0] if self._queue else None

    def end(self, sender: SenderT, *, delivered: bool) -> SenderT | None:
        if self._queue:
            return self._queue.popleft()
        self.held -= 1
        return None

    def waiting(self) -> list[SenderT]:
        return list(self._queue)

    def state_dict(self) -> State:
        """Return the number of sub-channels held. Waiting senders are saved with the updates."""
        return {"held": self.held}

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        self.held = state["held"]

    def resume(self, under_way: list[SenderT], waiting: list[SenderT]) -> None:
        self._queue = deque(waiting)


class AssignedAccess(Generic[SenderT]):
    """The sub-channels of `spectrum`, with `jammers` on them.

    `sender.channel` is the assigned sub-channel. Without contention a sub-channel carries one transmission at a time: a client
    waits while its own is held.
    """

    own_link = free = False

    def __init__(self, *, spectrum: Spectrum, jammers: Jammers) -> None:
        self.spectrum = spectrum
        self.jammers = jammers
        self.steady = spectrum.steady
        self._queues: dict[int, deque[SenderT]] = {}

    @property
    def assigned(self) -> AssignedAccess[SenderT]:
        return self

    def open_round(self, round: int, time_s: float) -> None:
        self.jammers.open_round(round)
        self.spectrum.open_round(round, time_s)

    def take(self, sender: SenderT) -> bool:
        if self.spectrum.contention or not self.spectrum.under_way[sender.channel]:
            return True
        self._queues.setdefault(sender.channel, deque()).append(sender)
        return False

    def withdraw(self, sender: SenderT) -> None:
        self._queues[sender.channel].remove(sender)

    def begin(self, sender: SenderT, now: float) -> float:
        if self.jammers.next_s <= now:
            self.jammers.catch_up()
        passed_s = self.spectrum.passed_s(sender.channel, now)
        self.spectrum.begin(sender, now)
        return passed_s

    def loss(self, sender: SenderT) -> str | None:
        if not sender.good:
            return "sub-channel"
        if sender.jammed:
            return "jammed"
        return "collided" if sender.collided else None

    def next_after(self, sender: SenderT) -> SenderT | None:
        queue = self._queues.get(sender.channel)
        return queue[0] if queue else None

    def end(self, sender: SenderT, *, delivered: bool) -> SenderT | None:
        self.spectrum.end(sender, delivered=delivered)
        queue = self._queues.get(sender.channel)
        return queue.popleft() if queue else None

    def waiting(self) -> list[SenderT]:
        return [sender for _, queue in sorted(self._queues.items()) for sender in queue]

    def stop(self) -> None:
        self.jammers.stop()

    def state_dict(self) -> State:
        return {"spectrum": self.spectrum.state_dict(), "jammers": self.jammers.state_dict()}

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        self.spectrum.load_state_dict(state["spectrum"], round, time_s)
        self.jammers.load_state_dict(state["jammers"], round)

    def precedes(self, number: int) -> bool:
        return self.jammers.call < number

    def arm(self) -> None:
        self.jammers.arm()

    def resume(self, under_way: list[SenderT], waiting: list[SenderT]) -> None:
        self.spectrum.resume(under_way)
        self._queues = {}
        for sender in waiting:
            self._queues.setdefault(sender.channel, deque()).append(sender)

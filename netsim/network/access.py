"""Access to the uplink: turns of senders, and the delays and losses that it adds to those of the sender's own link.

`OwnLinkAccess`: every sender transmits at once. `QueuedAccess`: equal sub-channels with one queue. `AssignedAccess`: sub-channels
with states, one of which is assigned to each sender; they may be jammed, and two transmissions may collide on one.
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
    """True if access adds neither time nor loss to the sender's own link: `begin` and `loss` are then not called."""
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
        """Begin a transmission; return the time at which it has passed what access adds to the client's own link, seconds."""

    def begin_again(self, sender: SenderT, now: float) -> float:
        """Begin another transmission of `sender`, which has kept its turn since the last; return the same as `begin`."""

    def loss(self, sender: SenderT) -> str | None:
        """Return the cause by which access destroys the transmission that ends now, such as jamming; None if it does not."""

    def next_after(self, sender: SenderT) -> SenderT | None:
        """Return the sender that has its turn when the transmission of `sender` ends; None if none waits."""

    def end(self, sender: SenderT, *, delivered: bool) -> SenderT | None:
        """End a transmission, or abort it. Return the sender that has its turn now, taken from the queue; None if none waits."""

    def waiting(self) -> list[SenderT]:
        """Return the senders that wait, in order."""

    def state_dict(self) -> State:
        """Return the state, without transmissions and senders, which are saved with the updates."""

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Restore the state at the close of `round`. `resume` adds transmissions in flight and waiting senders afterwards."""

    def resume(self, under_way: list[SenderT], waiting: list[SenderT]) -> None:
        """Restore the senders that were transmitting and those that waited when the state was saved."""


class OwnLinkAccess(Generic[SenderT]):
    """Null object of access: every client has a link of its own, and no sender waits."""

    own_link = free = steady = True
    assigned: AssignedAccess[SenderT] | None = None

    def open_round(self, round: int, time_s: float) -> None:
        """Do nothing: rounds make no difference."""

    def take(self, sender: SenderT) -> bool:
        """Return True: every sender transmits at once."""
        return True

    def withdraw(self, sender: SenderT) -> None:
        """Do nothing: no sender waits."""

    def begin(self, sender: SenderT, now: float) -> float:
        """Return `now`: access takes no time."""
        return now

    def begin_again(self, sender: SenderT, now: float) -> float:
        """Return `now`: access takes no time."""
        return now

    def loss(self, sender: SenderT) -> str | None:
        """Return None: access destroys nothing."""
        return None

    def next_after(self, sender: SenderT) -> SenderT | None:
        """Return None: no sender waits."""
        return None

    def end(self, sender: SenderT, *, delivered: bool) -> SenderT | None:
        """Return None: no sender waits."""
        return None

    def waiting(self) -> list[SenderT]:
        """Return no senders."""
        return []

    def state_dict(self) -> State:
        """Return an empty state."""
        return {}

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Do nothing: there is no state."""

    def resume(self, under_way: list[SenderT], waiting: list[SenderT]) -> None:
        """Do nothing: senders are not kept."""


class QueuedAccess(OwnLinkAccess[SenderT]):
    """`count` equal sub-channels: each transmission holds one from start to end; senders wait in one queue if none is free.

    Raises ValueError for a count below 1.
    """

    free = False

    def __init__(self, *, count: int) -> None:
        if count < 1:
            raise ParameterError("sub_channels", count, "must be at least 1")
        self.count = count
        self.held = 0
        """Number of sub-channels held by transmissions."""
        self._queue: deque[SenderT] = deque()

    def take(self, sender: SenderT) -> bool:
        """Give `sender` a free sub-channel and return True, or put it at the end of the queue and return False."""
        if self.held >= self.count:
            self._queue.append(sender)
            return False
        self.held += 1
        return True

    def withdraw(self, sender: SenderT) -> None:
        """Remove `sender` from the queue, in which it must wait."""
        self._queue.remove(sender)

    def next_after(self, sender: SenderT) -> SenderT | None:
        """Return the first sender of the queue without removing it."""
        return self._queue[0] if self._queue else None

    def end(self, sender: SenderT, *, delivered: bool) -> SenderT | None:
        """Pass the sub-channel of `sender` on to the first sender of the queue and return that; free it if none waits."""
        # A sub-channel that is passed on stays held, so no sender that comes at this instant can overtake the queue.
        if self._queue:
            return self._queue.popleft()
        self.held -= 1
        return None

    def waiting(self) -> list[SenderT]:
        """Return the senders of the queue, in order."""
        return list(self._queue)

    def state_dict(self) -> State:
        """Return the number of sub-channels held. Waiting senders are saved with the updates."""
        return {"held": self.held}

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Restore the number of sub-channels held."""
        self.held = state["held"]

    def resume(self, under_way: list[SenderT], waiting: list[SenderT]) -> None:
        """Restore the queue."""
        self._queue = deque(waiting)


class AssignedAccess(Generic[SenderT]):
    """The sub-channels of `spectrum`, with `jammers` on them, whose rounds the medium opens.

    `sender.channel` is the assigned sub-channel. Without contention a sub-channel carries one transmission at a time, and a
    client waits while its sub-channel is held. With contention it does not wait, and transmissions collide.
    """

    own_link = free = False

    def __init__(self, *, spectrum: Spectrum, jammers: Jammers) -> None:
        self.spectrum = spectrum
        self.jammers = jammers
        self.steady = spectrum.steady
        self._queues: dict[int, deque[SenderT]] = {}
        """Waiting senders, by sub-channel."""

    @property
    def assigned(self) -> AssignedAccess[SenderT]:
        return self

    def open_round(self, round: int, time_s: float) -> None:
        """Draw the states of the sub-channels."""
        self.spectrum.open_round(round, time_s)

    def take(self, sender: SenderT) -> bool:
        """Return True if the sub-channel of `sender` is free or contended for; otherwise queue `sender` and return False."""
        is_free = not self.spectrum.under_way[sender.channel]
        if is_free or self.spectrum.contention:
            return True
        self._queues.setdefault(sender.channel, deque()).append(sender)
        return False

    def withdraw(self, sender: SenderT) -> None:
        """Remove `sender` from the queue of its sub-channel, in which it must wait."""
        self._queues[sender.channel].remove(sender)

    def begin(self, sender: SenderT, now: float) -> float:
        """Begin to transmit; return the time at which the message has passed its sub-channel, seconds."""
        # Jamming that begins at this instant comes before the transmission. The test here saves a call for each transmission.
        if self.jammers.next_s <= now:
            self.jammers.catch_up()
        passed_s = self.spectrum.passed_s(sender.channel, now)
        self.spectrum.begin(sender, now)
        return passed_s

    def begin_again(self, sender: SenderT, now: float) -> float:
        """End the lost transmission on the sub-channel, and begin the next one there."""
        self.spectrum.end(sender, delivered=False)
        return self.begin(sender, now)

    def loss(self, sender: SenderT) -> str | None:
        """Return the first cause of loss that applies: a Bad sub-channel, jamming, or a collision; None if none does."""
        if not sender.good:
            return "sub-channel"
        if sender.jammed:
            return "jammed"
        return "collided" if sender.collided else None

    def next_after(self, sender: SenderT) -> SenderT | None:
        """Return the first sender in the queue of the same sub-channel, without removing it."""
        queue = self._queues.get(sender.channel)
        return queue[0] if queue else None

    def end(self, sender: SenderT, *, delivered: bool) -> SenderT | None:
        """End the transmission, and return the first sender in the queue of the same sub-channel, removed from it."""
        self.spectrum.end(sender, delivered=delivered)
        queue = self._queues.get(sender.channel)
        return queue.popleft() if queue else None

    def waiting(self) -> list[SenderT]:
        """Return the waiting senders by sub-channel, each queue in order."""
        return [sender for _, queue in sorted(self._queues.items()) for sender in queue]

    def state_dict(self) -> State:
        """Return the state of the sub-channels."""
        return self.spectrum.state_dict()

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Restore the state of the sub-channels at the close of `round`."""
        self.spectrum.load_state_dict(state, round, time_s)

    def resume(self, under_way: list[SenderT], waiting: list[SenderT]) -> None:
        """Restore the transmissions under way and the queues."""
        self.spectrum.resume(under_way)
        self._queues = {}
        for sender in waiting:
            self._queues.setdefault(sender.channel, deque()).append(sender)

"""Base of the protocols between clients in a consensus phase: each begins once, handles its own messages, and ends when it is
stopped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from netsim.core.clock import LAST

if TYPE_CHECKING:
    from simpy.events import Event

    from netsim.network.transport.message_draws import EdgeDraws
    from netsim.network.transport.messages import Message
    from netsim.network.transport.transport import Transport

_EVER = float("inf")


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """Outcome of a protocol that begins now, computed without an event for each message."""

    end_s: float
    """Time at which the protocol is over, seconds."""
    take: Callable[[], None]
    """Callback that sets the state that events would have left; the clock must stand at `end_s`."""


class PeerProtocol(ABC):
    """One protocol of one slot over `links`, and the handler of its own messages.

    Messages that arrive after the stop are ignored.
    """

    def __init__(self, *, links: Transport, draws: EdgeDraws) -> None:
        self.links, self.draws = links, draws
        self.live = False
        """True from the beginning until the stop."""
        self.over: Event = links.clock.event()
        """Event that fires at the stop."""

    def begin(self) -> None:
        """Begin, at all clients at once."""
        self.live = True
        self.links.watchers.append(self.on_links_return)
        self._begin()

    def closed_form(self, deadline_s: float) -> ClosedForm | None:
        """Return the outcome if the protocol begins now and is stopped at `deadline_s`; None if only events can tell."""
        return None

    @abstractmethod
    def _begin(self) -> None:
        """Send the first messages."""

    @abstractmethod
    def on_arrival(self, message: Message) -> None:
        """Handle a message that got through."""

    @abstractmethod
    def on_loss(self, message: Message) -> None:
        """Handle a message that was lost and will not be sent again."""

    def on_links_return(self, links: set[int]) -> None:  # noqa: B027 (most protocols do not mind)
        """Handle the return of `links` from an outage that was not known beforehand."""

    def _await_returns(self) -> None:
        """Schedule `_on_known_return` at the next time at which links come back, if it is known."""
        next_return_s = self.links.cuts.next_return_s(self.links.clock.now)
        if next_return_s < _EVER:
            self.links.clock.call_at(next_return_s, self._on_known_return)

    def _on_known_return(self, _: None) -> None:
        """Callback at the time at which links come back: handle it, and wait for the next time."""
        if not self.live:
            return
        returned = set(self.links.cuts.returning(self.links.clock.now))
        if self._takes_returns(returned):
            self.on_links_return(returned)
        self._await_returns()

    def _takes_returns(self, returned: Collection[int]) -> bool:
        """Return True if the protocol handles the return of the links `returned`."""
        return True

    def stop(self, _: None = None) -> None:
        """Stop: later messages and timers are ignored."""
        if self.live:
            self.live = False
            self.links.watchers.remove(self.on_links_return)
            self.over.succeed()

    def stop_at(self, time_s: float) -> None:
        """Stop at `time_s`, after everything else that happens at that instant: no count depends on the order of ties."""
        self.links.clock.call_at(time_s, self.stop, priority=LAST)

"""What the protocols between clients have in common: each lives from its beginning until it is stopped, and is then over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from netsim.core.clock import LAST

if TYPE_CHECKING:
    from simpy.events import Event

    from netsim.network.transport.draws import EdgeDraws
    from netsim.network.transport.messages import Message
    from netsim.network.transport.transport import Transport


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """What becomes of a protocol that begins now, without an event for every message."""

    end_s: float
    """When it is over."""
    take: Callable[[], None]
    """Brings everything to where events would have brought it; the clock must stand at `end_s`."""


class PeerProtocol(ABC):
    """One protocol of one slot over `links`, a handler of its own messages. What arrives after the stop is not heeded."""

    def __init__(self, *, links: Transport, draws: EdgeDraws) -> None:
        self.links, self.draws = links, draws
        self.live = False
        """Whether it has begun and was not stopped."""
        self.over: Event = links.clock.event()
        """Fires when it is stopped."""

    def begin(self) -> None:
        """All clients begin now."""
        self.live = True
        self.links.watchers.append(self.links_return)
        self._begin()

    def closed_form(self, deadline_s: float) -> ClosedForm | None:
        """What becomes of it if it begins now and is stopped at `deadline_s`; None: that is not known without events."""
        return None

    @abstractmethod
    def _begin(self) -> None:
        """Send the first messages."""

    @abstractmethod
    def arrived(self, message: Message) -> None:
        """A message got through."""

    @abstractmethod
    def given_up(self, message: Message) -> None:
        """A message was lost and will not be sent again."""

    def links_return(self, links: set[int]) -> None:  # noqa: B027 (most protocols do not mind)
        """Links have come back that nobody knew would."""

    def stop(self, _: None = None) -> None:
        """Nobody goes on from here."""
        if self.live:
            self.live = False
            self.links.watchers.remove(self.links_return)
            self.over.succeed()

    def stop_at(self, time_s: float) -> None:
        """Stop at `time_s`, after everything else that happens at that instant: no count depends on the order of ties."""
        self.links.clock.call_at(time_s, self.stop, priority=LAST)

"""Links between clients as jammers see them: sub-channels that they can be told to jam."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from netsim.core.state import StateFields
from netsim.network.transport.messages import link_count

if TYPE_CHECKING:
    from netsim.core.protocols import IntArray
    from netsim.network.spectrum import Jam
    from netsim.network.transport.messages import Message, PeerGraph


class JammedLinks(StateFields):
    """Spectrum for `netsim.network.jamming.Jammers`: every link is a sub-channel, in both directions at once."""

    state_fields = ("begun", "delivered", "hit", "_jams_begun")

    def __init__(self, *, graph: PeerGraph) -> None:
        self.count = link_count(graph)
        self.under_way: list[list[Message]] = [[] for _ in range(self.count)]
        self.jams: list[list[Jam]] = [[] for _ in range(self.count)]
        self.begun: IntArray = np.zeros(self.count, np.int64)
        """(L,) messages sent so far over each link."""
        self.delivered: IntArray = np.zeros(self.count, np.int64)
        """(L,) messages that got through so far."""
        self.hit = 0
        """Messages that a jammer hit so far."""
        self._jams_begun = 0

    def _strike(self, jam: Jam, message: Message) -> None:
        self.hit += not message.jammed
        jam.strike(message)

    def begin(self, message: Message, link: int) -> None:
        """A message sets out."""
        self.begun[link] += 1
        self.under_way[link].append(message)
        if self.jams[link]:
            self._strike(self.jams[link][0], message)

    def end(self, message: Message, link: int) -> None:
        """A message has come to its end."""
        self.under_way[link].remove(message)
        self.delivered[link] += bool(message.good) and not message.jammed

    def jam(self, jam: Jam, time_s: float) -> None:
        """Jamming begins: what is under way on that link is spoilt, save what ends in this very instant."""
        self._jams_begun += 1
        jam.order = self._jams_begun
        self.jams[jam.channel].append(jam)
        for message in self.under_way[jam.channel]:
            if message.due_s > time_s or message.sent_s == time_s:
                self._strike(jam, message)

    def clear(self, jam: Jam) -> None:
        """Jamming ends."""
        self.jams[jam.channel].remove(jam)

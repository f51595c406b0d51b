"""Links between clients as jammers see them: sub-channels that they can be told to jam."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netsim.core.state import StateFields
from netsim.network.jammable import Jammable
from netsim.network.transport.messages import Message, link_count

if TYPE_CHECKING:
    from netsim.network.transport.messages import PeerGraph


class JammedLinks(Jammable[Message], StateFields):
    """Links of `graph` for `netsim.network.jamming.Jammers`: every link is a sub-channel, in both directions at once."""

    state_fields = ("begun", "delivered", "hit", "_jams_begun")

    def __init__(self, *, graph: PeerGraph) -> None:
        super().__init__(link_count(graph))

    def begin(self, message: Message, link: int) -> None:
        """Let a message set out."""
        self._enter(message, link)

    def end(self, message: Message, link: int) -> None:
        """Let a message come to its end."""
        self._leave(message, link, delivered=bool(message.good) and not message.jammed)

    def resume(self, message: Message, link: int) -> None:
        """Take back a message that was under way as the state was saved."""
        self.under_way[link].append(message)

    def _is_there(self, sent: Message, time_s: float) -> bool:
        return sent.due_s > time_s or sent.sent_s == time_s

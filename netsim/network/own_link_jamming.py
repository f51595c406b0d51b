"""Jamming of the transmissions of clients: of the sub-channels, and of the clients' own links in either direction.

Own links are jammed as links between clients are (`netsim.network.jammable.JammedRoutes`): channel k is the link of client k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from netsim.network.jammable import JammableTransmission, JammedRoutes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from netsim.core.protocols import State
    from netsim.network.jamming import Jammers
    from netsim.records.sinks import Recorder


class OwnLinkTransmission(JammableTransmission, Protocol):
    """Transmission over the own link of a client."""

    client: int
    survives: bool
    """True if the client's channel lets it through."""
    sent_s: float
    due_s: float


class JammedOwnLinks(JammedRoutes[OwnLinkTransmission]):
    """The own links of `clients` in one direction. Each sending of a message is a transmission; pauses between them are none."""

    def __init__(self, clients: int) -> None:
        super().__init__(
            clients,
            channels_of=lambda sent: (sent.client,),
            holds_channel=lambda sent, time_s: sent.due_s > time_s or sent.sent_s == time_s,
        )

    def _survives(self, sent: OwnLinkTransmission) -> bool:
        """Return True if `sent` gets through its own link and through its sub-channel, if it has one, unless it is jammed."""
        # A Bad sub-channel loses what the own link lets through; `good` is None without a sub-channel.
        return sent.survives and sent.good is not False

    def leave(self, sent: OwnLinkTransmission) -> None:
        """End a transmission early, if `sent` has one under way."""
        if sent in self.under_way[sent.client]:
            self.end(sent, delivered=False)

    def senders(self) -> list[int]:
        """Return the clients with a transmission under way."""
        return [client for client, sent in enumerate(self.under_way) if sent]


@dataclass(frozen=True, slots=True, kw_only=True)
class MediumJamming:
    """`jammers` of the sub-channels and of the clients' own links, in the order of the scenario.

    `down`, `up`: the own links that they may jam, by direction; None: no jammer jams these. Without jammers `NoMediumJamming`
    stands in its place.
    """

    jammers: Jammers
    down: JammedOwnLinks | None = None
    up: JammedOwnLinks | None = None

    @property
    def groups(self) -> list[Jammers]:
        """The jammers, in a list."""
        return [self.jammers]

    @property
    def links(self) -> list[JammedOwnLinks]:
        """The own links that may be jammed, by direction."""
        return [links for links in (self.down, self.up) if links is not None]

    def open_round(self, round: int) -> None:
        """Begin the dwells of `round`."""
        self.jammers.open_round(round)

    def catch_up(self) -> None:
        """Begin the dwells that are due now: jamming precedes a transmission of the same instant."""
        self.jammers.catch_up()

    def precedes(self, number: int) -> bool:
        """Return True if the call of the clock that begins the next dwell comes before call `number`."""
        return self.jammers.call < number

    def arm(self) -> None:
        """Schedule the next dwell again, after the state is restored and the calls before it are scheduled."""
        self.jammers.arm()

    def record_to(self, recorder: Recorder) -> None:
        """Send all records to `recorder` from now on."""
        self.jammers.record_to(recorder)

    def stop(self) -> None:
        """Record the jamming in progress at the end of the run."""
        self.jammers.stop()

    def senders(self) -> list[list[int]]:
        """Return the clients with a transmission under way on `links`, in their order."""
        return [links.senders() for links in self.links]

    def resume(self, senders: Sequence[Sequence[int]], updates: Mapping[int, OwnLinkTransmission]) -> None:
        """Restore the transmissions of saved `senders`. `updates`: the updates of the clients."""
        for links, clients in zip(self.links, senders, strict=True):
            for client in clients:
                links.resume(updates[client])

    def state_dict(self) -> State:
        """Return the counts of each link, and the state of the jammers."""
        return {"links": [links.state_dict() for links in self.links], "jammers": self.jammers.state_dict()}

    def load_state_dict(self, state: State, round: int) -> None:
        """Restore the state at the close of `round`. `resume` adds transmissions under way, and `arm` the next dwell."""
        for links, saved in zip(self.links, state["links"], strict=True):
            links.load_state_dict(saved)
        self.jammers.load_state_dict(state["jammers"], round)


class NoMediumJamming:
    """Null object of `MediumJamming`: neither sub-channels nor clients' own links are jammed."""

    down = up = None
    groups: Sequence[Jammers] = ()
    links: Sequence[JammedOwnLinks] = ()

    def open_round(self, round: int) -> None:
        """Do nothing: there are no dwells."""

    def catch_up(self) -> None:
        """Do nothing: there are no dwells."""

    def precedes(self, number: int) -> bool:
        """Return False: no dwell begins."""
        return False

    def arm(self) -> None:
        """Do nothing: there are no dwells."""

    def record_to(self, recorder: Recorder) -> None:
        """Do nothing: there is nothing to record."""

    def stop(self) -> None:
        """Do nothing: there is nothing to record."""

    def senders(self) -> list[list[int]]:
        """Return no list, as there are no `links`."""
        return []

    def resume(self, senders: Sequence[Sequence[int]], updates: Mapping[int, OwnLinkTransmission]) -> None:
        """Do nothing: no transmission is exposed to jamming."""

    def state_dict(self) -> State:
        """Return an empty state."""
        return {}

    def load_state_dict(self, state: State, round: int) -> None:
        """Do nothing: there is no state."""

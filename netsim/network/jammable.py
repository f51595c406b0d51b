"""Channels that jammers can jam: the sub-channels of updates, the links of messages and opinions, and cables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from netsim.core.state import StateFields


class JammableTransmission(Protocol):
    """Transmission or message that a jammer can hit."""

    jammed: bool | None

    @property
    def good(self) -> bool | None:
        """True if the transmission survives unless it is jammed."""


class Jam:
    """One dwell of one jammer on one channel, in progress."""

    __slots__ = ("channel", "destroyed", "hit", "jammer", "order", "round", "start_s")

    def __init__(self, *, jammer: str, channel: int, round: int, start_s: float) -> None:
        self.jammer = jammer
        self.channel = channel
        self.round = round
        self.start_s = start_s
        self.order = 0
        """Number in the order of beginnings of all jamming."""
        self.hit = 0
        """Number of transmissions that this jam was the first to strike."""
        self.destroyed = 0
        """Number of these that would have survived without it."""

    def strike(self, sent: JammableTransmission, *, survives: bool) -> None:
        """Spoil a transmission. It counts as a hit of the first jam that strikes it, and as destroyed if it `survives` without.
        """
        if not sent.jammed:
            sent.jammed = True
            self.hit += 1
            self.destroyed += survives


SentT = TypeVar("SentT", bound=JammableTransmission)


class Jammable(ABC, Generic[SentT]):
    """Base of a number of `channels`, with the transmissions and jams on each.

    Both last over [start, end); a transmission of length zero covers its one instant.
    """

    def __init__(self, channels: int) -> None:
        self.count = channels
        self.under_way: list[list[SentT]] = [[] for _ in range(channels)]
        """Transmissions under way on each channel."""
        self.jams: list[list[Jam]] = [[] for _ in range(channels)]
        """Jamming in progress on each channel, in the order of beginnings."""
        # Lists, because writing an entry of an array costs four times as much.
        self.begun = [0] * channels
        """Number [N] of transmissions begun so far on each channel."""
        self.delivered = [0] * channels
        """Number [N] of transmissions delivered so far on each channel."""
        self.hit = 0
        """Number of transmissions hit by a jammer so far."""
        self._jams_begun = 0
        """Number of jams begun so far, which orders them."""

    @abstractmethod
    def _holds_channel(self, sent: SentT, time_s: float) -> bool:
        """Return True if a transmission in flight holds its channel at `time_s`.

        A transmission that ends at this instant has left.
        """

    def _enter(self, sent: SentT, channel: int) -> None:
        """Begin a transmission on `channel`; if jamming is in progress, the first jam there strikes it."""
        # The first jam alone: further ones could not change that the transmission is lost, and only the first counts it.
        self.begun[channel] += 1
        self.under_way[channel].append(sent)
        if self.jams[channel]:
            self._strike(self.jams[channel][0], sent)

    def _leave(self, sent: SentT, channel: int, *, delivered: bool) -> None:
        """End a transmission on `channel`."""
        self.under_way[channel].remove(sent)
        self.delivered[channel] += delivered

    def _strike(self, jam: Jam, sent: SentT) -> None:
        """Spoil a transmission by `jam`; count it as hit unless another jam struck it before."""
        self.hit += not sent.jammed
        jam.strike(sent, survives=self._survives(sent))

    def _survives(self, sent: SentT) -> bool:
        """Return True if `sent` gets through its channel unless it is jammed."""
        return bool(sent.good)

    def jam(self, jam: Jam, time_s: float) -> None:
        """Begin jamming: spoil transmissions in flight on the channel."""
        self._jams_begun += 1
        jam.order = self._jams_begun
        self.jams[jam.channel].append(jam)
        for sent in self.under_way[jam.channel]:
            if self._holds_channel(sent, time_s):
                self._strike(jam, sent)

    def clear(self, jam: Jam) -> None:
        """End jamming."""
        self.jams[jam.channel].remove(jam)


class JammedRoutes(Jammable[SentT], StateFields):
    """A number of `channels` (links, or cables, each in both directions at once) that messages hold from start to end.

    `channels_of`: returns the channels that a message holds, during its delay too. `holds_channel`: returns True if a message in
    flight still holds them at a time, False if it ends at this instant.
    """

    state_fields = ("begun", "delivered", "hit", "_jams_begun")

    def __init__(
        self, channels: int, *, channels_of: Callable[[SentT], Iterable[int]], holds_channel: Callable[[SentT, float], bool]
    ) -> None:
        super().__init__(channels)
        self._channels_of, self._callback = channels_of, holds_channel

    def begin(self, sent: SentT) -> None:
        """Begin a message on its channels."""
        for channel in self._channels_of(sent):
            self._enter(sent, channel)

    def end(self, sent: SentT, *, delivered: bool) -> None:
        """End a message on its channels."""
        for channel in self._channels_of(sent):
            self._leave(sent, channel, delivered=delivered)

    def resume(self, sent: SentT) -> None:
        """Restore a message that was in flight when the state was saved."""
        for channel in self._channels_of(sent):
            self.under_way[channel].append(sent)

    def _holds_channel(self, sent: SentT, time_s: float) -> bool:
        """Return the answer of the callback `holds_channel`."""
        return self._callback(sent, time_s)

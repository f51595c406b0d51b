"""N sub-channels as a medium: each is Good or Bad in a round, is held by transmissions from start to end, and can be jammed.

A transmission survives if its sub-channel is Good as it begins, and no jammer and no other transmission holds the sub-channel
meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from netsim.network.draws import Certain, Durations, Ends, Phases, Survivals
from netsim.network.jammable import Jammable, JammableTransmission

if TYPE_CHECKING:
    from netsim.core.protocols import BoolArray, ChannelLaw, DelayLaw, FloatArray, IntArray, State, Timeline
    from netsim.core.streams import Streams
    from netsim.network.bandwidth.known_links import KnownLinks

_EVER = float("inf")


class Transmission(JammableTransmission, Protocol):
    """Transmission that holds a sub-channel from its start to its end."""

    channel: Any
    """Assigned sub-channel, or None."""
    good: bool | None
    collided: bool | None
    due_s: float
    upload_start_s: float


class Spectrum(Jammable[Transmission]):
    """N orthogonal sub-channels: their states in a round, transmissions, and jamming.

    `law` and `delay` have one entity for each sub-channel. `contention`: two transmissions may meet on one sub-channel, and
    both are then lost; otherwise schedules must prevent it. `links`: bandwidth of the sub-channels over time, for the bytes
    after the delay; None: bytes take no time beyond `delay`.
    """

    def __init__(
        self,
        *,
        channels: int,
        law: Timeline[ChannelLaw],
        delay: Timeline[DelayLaw],
        streams: Streams,
        contention: bool = False,
        links: KnownLinks | None = None,
    ) -> None:
        super().__init__(channels)
        self.law = law
        self.delay = delay
        self.contention = contention
        self.all: IntArray = np.arange(channels)
        self._draws = streams["channels.loss"]
        self._states = Survivals(clients=channels, law=law, draws=self._draws, state_draws=streams["channels.state"])
        delays = Durations(clients=channels, law=delay, draws=streams["channels.delay"])
        self.steady = links is None
        """True if no bandwidth changes over time."""
        self._delays: Phases = delays if links is None else links.add_times(delays)
        self._round = 0
        """Round under way; 0 before the first."""
        self._u: FloatArray = np.zeros(channels)
        """Uniform numbers (N,) of the round: one draw decides the state of each sub-channel."""
        self._good: list[bool] = []
        """The states under the law now in force, as a list: reading an entry is faster."""
        self._until_s = 0.0
        """Time until which `_good` holds."""
        self._delay: Ends = Certain(0.0)
        self.good: BoolArray = np.zeros(channels, np.bool_)
        """States (N,) of the sub-channels when the round opened; True: Good."""
        self._round_ends_s = _EVER
        """Time at which the present round cuts transmissions off; inf: it cuts none."""

    def announce_end(self, time_s: float) -> None:
        """Note the time at which the present round cuts transmissions in flight, seconds."""
        self._round_ends_s = time_s

    def open_round(self, round: int, time_s: float) -> None:
        """Advance every sub-channel to `round`."""
        self._states.open_round(round, time_s)
        self._draw(round, time_s)

    def _draw(self, round: int, time_s: float) -> None:
        """Draw states and delays of `round`, under the laws in force."""
        # Keep the uniform numbers: after a change of law within the round the states are read again at the same numbers.
        self._round = round
        self._u = self._draws.uniforms(round, self.count)
        law, self._until_s = self._states.current_law(round, time_s)
        self.good = np.array(law.good(self._u, self.all), np.bool_)
        self._good = self.good.tolist()
        self._delay = self._delays.draw(round, time_s, self.all)

    def _renew(self, time_s: float) -> None:
        """Evaluate the states again, with the same draws, under the law in force at `time_s`."""
        good, self._until_s = self._states.evaluate(self._round, time_s, self.all, self._u)
        self._good = good.tolist()

    def renew(self, time_s: float) -> None:
        """Evaluate states and delays again, with the same draws, for transmissions that begin from now on: a script has
        replaced a law.
        """
        if self._round:
            self._until_s = 0.0
            if not self._delay.expire():
                self._delay = self._delays.draw(self._round, time_s, self.all)

    def passed_s(self, channel: int, time_s: float) -> float:
        """Return the time at which a transmission that begins now has passed the delay and bytes of the sub-channel, seconds."""
        return self._delay.ends_at(channel, time_s)

    def open_to_all(self) -> BoolArray:
        """Return True (N,) for sub-channels on which a transmission of this instant would survive if it is the only one: Good
        when the round opened, and not jammed now.
        """
        if not any(self.jams):
            return self.good
        is_clear = [not jams for jams in self.jams]
        return self.good & is_clear

    def begin(self, sent: Transmission, time_s: float) -> None:
        """Begin a transmission: set `good`, `jammed` and `collided` of it. Another transmission that holds the sub-channel has
        collided, too.
        """
        channel = sent.channel
        if time_s >= self._until_s:
            self._renew(time_s)
        sent.good = self._good[channel]
        sent.jammed = sent.collided = False
        for other in self.under_way[channel]:
            if self._holds_channel(other, time_s):
                sent.collided = other.collided = True
        self._enter(sent, channel)

    def _holds_channel(self, sent: Transmission, time_s: float) -> bool:
        """Return True if `sent`, a transmission in flight, holds its sub-channel at `time_s`; not if it ends at this instant."""
        # A transmission that begins at this instant holds its channel even if it takes no time.
        still_lasts = sent.due_s > time_s and self._round_ends_s > time_s
        return still_lasts or sent.upload_start_s == time_s

    def end(self, sent: Transmission, *, delivered: bool) -> None:
        """End a transmission on its sub-channel."""
        self._leave(sent, sent.channel, delivered=delivered)

    def state_dict(self) -> State:
        """Return the states of the laws and the counts of each sub-channel.

        Transmissions in flight are saved with their senders.
        """
        return {
            "states": self._states.state_dict(),
            "begun": np.array(self.begun, np.int64),
            "delivered": np.array(self.delivered, np.int64),
            "jams_begun": self._jams_begun,
        }

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Take the state at the close of `round`."""
        self._states.load_state_dict(state["states"], round, time_s)
        if round:
            # Updates that outlast the round may begin to transmit before the next round opens, so states must be drawn now.
            self._draw(round, time_s)
        self.begun = state["begun"].tolist()
        self.delivered = state["delivered"].tolist()
        self._jams_begun = state["jams_begun"]

    def resume(self, under_way: Sequence[Transmission]) -> None:
        """Restore the transmissions that were in flight when the state was saved."""
        for sent in under_way:
            self.under_way[sent.channel].append(sent)

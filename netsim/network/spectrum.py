"""The sub-channels as a medium: N of them, each Good or Bad in a round, held by transmissions from start to end, open to jamming.

A transmission survives if its sub-channel is Good as it begins, and no jammer and no other transmission holds the sub-channel
meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from netsim.network.draws import Certain, Durations, Ends, Phases, Survivals
from netsim.network.jammable import Jammable, Struck

if TYPE_CHECKING:
    from netsim.core.protocols import BoolArray, ChannelLaw, DelayLaw, FloatArray, IntArray, State, Timeline
    from netsim.core.streams import Streams
    from netsim.network.known_links import KnownLinks

_EVER = float("inf")


class Transmission(Struck, Protocol):
    """Transmission that holds a sub-channel from its start to its end."""

    channel: Any
    """The sub-channel assigned; None where none is."""
    good: bool | None
    collided: bool | None
    due_s: float
    upload_start_s: float


class Spectrum(Jammable[Transmission]):
    """N orthogonal sub-channels: their states of a round, who is on them, who jams them.

    `law` and `delay` have one entity for each sub-channel. `contention`: two transmissions may meet on one sub-channel, and then
    both are lost; otherwise no schedule may let it happen. `links`: the sub-channels' bandwidth over time, which the bytes take
    after the delay; None: they take no time, or one that is part of `delay`.
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
        """True if no bandwidth changes in time."""
        self._delays: Phases = delays if links is None else links.add_times(delays)
        self._round = 0
        self._u: FloatArray = np.zeros(channels)
        self._good: list[bool] = []
        self._until_s = 0.0
        self._delay: Ends = Certain(0.0)
        self.good: BoolArray = np.zeros(channels, np.bool_)
        """(N,) the states of the sub-channels as the round opened."""
        self._round_ends_s = _EVER

    def announce_end(self, time_s: float) -> None:
        """Note when the present round cuts what is under way, seconds."""
        self._round_ends_s = time_s

    def open_round(self, round: int, time_s: float) -> None:
        """Let every sub-channel move on to `round`."""
        self._states.open_round(round, time_s)
        self._draw(round, time_s)

    def _draw(self, round: int, time_s: float) -> None:
        """States and delays are those of `round`, under the laws in force."""
        self._round = round
        self._u = self._draws.uniforms(round, self.count)
        law, self._until_s = self._states.current_law(round, time_s)
        self.good = np.array(law.good(self._u, self.all), np.bool_)
        self._good = self.good.tolist()
        self._delay = self._delays.draw(round, time_s, self.all)

    def _renew(self, time_s: float) -> None:
        good, self._until_s = self._states.evaluate(self._round, time_s, self.all, self._u)
        self._good = good.tolist()

    def renew(self, time_s: float) -> None:
        """A law was replaced from outside: states and delays are evaluated again, at the same draws, for what begins now."""
        if self._round:
            self._until_s = 0.0
            if not self._delay.expire():
                self._delay = self._delays.draw(self._round, time_s, self.all)

    def passed_s(self, channel: int, time_s: float) -> float:
        """Return when a transmission that begins now has passed what the channel adds to it, seconds."""
        return self._delay.ends_at(channel, time_s)

    def open_to_all(self) -> BoolArray:
        """(N,) where a transmission would get through at this instant: Good as the round opened, and not jammed now."""
        if not any(self.jams):
            return self.good
        clear = [not jams for jams in self.jams]
        return self.good & clear

    def begin(self, sent: Transmission, time_s: float) -> None:
        """A transmission takes its sub-channel."""
        channel = sent.channel
        if time_s >= self._until_s:
            self._renew(time_s)
        sent.good = self._good[channel]
        sent.jammed = sent.collided = False
        for other in self.under_way[channel]:
            if self._is_there(other, time_s):
                sent.collided = other.collided = True
        self._enter(sent, channel)

    def _is_there(self, sent: Transmission, time_s: float) -> bool:
        return sent.due_s > time_s < self._round_ends_s or sent.upload_start_s == time_s

    def end(self, sent: Transmission, *, delivered: bool) -> None:
        """A transmission on its sub-channel is over."""
        self._leave(sent, sent.channel, delivered=delivered)

    def state_dict(self) -> State:
        """Return the laws' state and the counts of each sub-channel; senders keep the transmissions under way."""
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
            # Whoever outlasts it may begin to transmit before the next round opens.
            self._draw(round, time_s)
        self.begun = state["begun"].tolist()
        self.delivered = state["delivered"].tolist()
        self._jams_begun = state["jams_begun"]

    def resume(self, under_way: Sequence[Transmission]) -> None:
        """Take back the transmissions that were under way as the state was saved."""
        for sent in under_way:
            self.under_way[sent.channel].append(sent)

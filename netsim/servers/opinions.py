"""Opinions of a model: all clients test it, and may upload what they found."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from netsim.core.errors import ParameterError
from netsim.core.null_objects import NoTime
from netsim.network.draws import Durations, Survivals

if TYPE_CHECKING:
    from netsim.core.protocols import BoolArray, ChannelLaw, DelayLaw, FloatArray, IntArray, State, Timeline
    from netsim.core.streams import Streams
    from netsim.network.outages import ClientOutages


class Tests:
    """All clients test the model at once; a slot waits for the last of them.

    `law`: how long that takes. `evaluated` (K,) samples of training that are as much work as the test, each of which takes a time
    of `sample`, besides; None: nothing. `rounds_per_slot`: by which round of training `sample` is asked.
    """

    __test__ = False

    def __init__(
        self,
        *,
        clients: int,
        law: Timeline[DelayLaw],
        streams: Streams,
        evaluated: FloatArray | None = None,
        sample: Timeline[DelayLaw] | None = None,
        rounds_per_slot: int = 1,
    ) -> None:
        self._durations = Durations(clients=clients, law=law, draws=streams["test.delay"])
        self._sample = Durations(clients=clients, law=sample or NoTime(), draws=streams["test.noise"])
        self._evaluated: FloatArray = np.zeros(clients) if evaluated is None else evaluated
        self._rounds_per_slot = rounds_per_slot
        self._everyone: IntArray = np.arange(clients)

    def durations_s(self, number: int, time_s: float) -> FloatArray:
        """(K,) how long the test after slot `number` takes (0: before the first)."""
        count = len(self._everyone)
        durations_s: FloatArray = np.array(self._durations.draw(number, time_s, self._everyone).values_at(time_s, count))
        each = self._sample.draw(max(number * self._rounds_per_slot, 1), time_s, self._everyone)
        if not each.certain and self._evaluated.any():
            durations_s += self._evaluated * each.values_at(time_s, count)
        return durations_s


class OpinionUplink:
    """A dedicated channel for opinions: nobody waits for anybody, so the arrivals are one array.

    A lost opinion is sent again `resend_after_s` after it would have arrived, at most `max_resends` times. The server waits for
    all that may still come, at most `wait_s` after the last test. The laws are those in force as the tests begin; an outage of
    `outages` that an opinion meets on its way destroys it.
    """

    def __init__(
        self,
        *,
        clients: int,
        delay: Timeline[DelayLaw],
        channel: Timeline[ChannelLaw],
        streams: Streams,
        max_resends: int = 0,
        resend_after_s: float = 0.0,
        wait_s: float | None = None,
        outages: ClientOutages | None = None,
    ) -> None:
        if max_resends < 0:
            raise ParameterError("max_resends", max_resends, "must be >= 0")
        if not 0 <= resend_after_s < math.inf:
            raise ParameterError("resend_after_s", resend_after_s, "must be >= 0 seconds and finite")
        if wait_s is not None and not wait_s >= 0:
            raise ParameterError("wait_s", wait_s, "must be >= 0 seconds")
        self._everyone: IntArray = np.arange(clients)
        self._delay = Durations(clients=clients, law=delay, draws=streams["opinion.delay"])
        self._channel = Survivals(
            clients=clients, law=channel, draws=streams["opinion.loss"], state_draws=streams["opinion.state"]
        )
        self._max_resends, self._resend_after_s = max_resends, resend_after_s
        self._wait_s = math.inf if wait_s is None else wait_s
        self._outages = outages or None
        self.on_sending: Callable[[IntArray, FloatArray, FloatArray], None] = lambda clients, start_s, end_s: None
        """Told of every sending: of which clients (n,), from when (n,) to when (n,)."""

    def send(self, slot: int, ready_s: FloatArray, now_s: float) -> tuple[float, BoolArray]:
        """When the server goes on, and whose opinion (K,) it then has; opinions set out at `ready_s` (K,), all >= `now_s`."""
        self._channel.open_round(slot, now_s)
        time_s = np.array(ready_s)
        waiting = np.ones(len(time_s), np.bool_)
        for attempt in range(self._max_resends + 1):
            address = slot * (self._max_resends + 1) + attempt
            delay_s = np.array(self._delay.draw(address, now_s, self._everyone).values_at(now_s, len(self._everyone)))
            start_s = time_s + (self._resend_after_s if attempt else 0.0)
            time_s = np.where(waiting, start_s + delay_s, time_s)
            self.on_sending(self._everyone[waiting], start_s[waiting], time_s[waiting])
            arrives = np.array(self._channel.draw(address, now_s, self._everyone).values_at(now_s, len(self._everyone)))
            if self._outages is not None:
                arrives &= ~self._outages.destroyed(start_s, time_s)
            waiting &= ~arrives
            if not waiting.any():
                break
        end_s = min(float(time_s.max()), float(ready_s.max()) + self._wait_s)
        return end_s, ~waiting & (time_s <= end_s)

    def state_dict(self) -> State:
        """The state of the channel."""
        return self._channel.state_dict()

    def load_state_dict(self, state: State, slot: int, time_s: float) -> None:
        """Take the state at the close of `slot`."""
        self._channel.load_state_dict(state, slot, time_s)

"""Opinions of a model: all clients test it, and may upload what they found.

When a slot's opinions arrive is worked out as the tests begin, since nothing else depends on the way there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from netsim.core.clock import Clock
from netsim.core.errors import ParameterError
from netsim.core.null_objects import NoTime
from netsim.network.carriers import NoCarrier
from netsim.network.draws import Durations, Survivals
from netsim.network.resending import NEVER_AGAIN, Resending
from netsim.servers.sending import Sending, all_at_once, one_by_one

if TYPE_CHECKING:
    from netsim.core.protocols import BoolArray, ChannelLaw, DelayLaw, FloatArray, IntArray, State, Timeline
    from netsim.core.streams import Streams
    from netsim.network.carriers import Carrier
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

    A lost opinion is sent again as `resending` says. The server waits for all that may still come, at most `wait_s` after the
    last test. The laws are those in force as the tests begin; an outage of
    `outages` that an opinion meets on its way destroys it. `carrier_on`: makes what carries the bytes, on a clock of its own for
    every slot; by default they take no time beside the delay.
    """

    def __init__(
        self,
        *,
        clients: int,
        delay: Timeline[DelayLaw],
        channel: Timeline[ChannelLaw],
        streams: Streams,
        resending: Resending = NEVER_AGAIN,
        wait_s: float | None = None,
        outages: ClientOutages | None = None,
        carrier_on: Callable[[Clock], Carrier] = lambda clock: NoCarrier(),
    ) -> None:
        if wait_s is not None and not wait_s >= 0:
            raise ParameterError("wait_s", wait_s, "must be >= 0 seconds")
        self._everyone: IntArray = np.arange(clients)
        self._delay = Durations(clients=clients, law=delay, draws=streams["opinion.delay"])
        self._channel = Survivals(
            clients=clients, law=channel, draws=streams["opinion.loss"], state_draws=streams["opinion.state"]
        )
        self._resending = resending
        self._wait_s = math.inf if wait_s is None else wait_s
        self._outages = outages or None
        self._carrier_on = carrier_on
        self.on_sending: Callable[[IntArray, FloatArray, FloatArray], None] = lambda clients, start_s, end_s: None
        """Told of every sending: of which clients (n,), from when (n,) to when (n,)."""

    def send(self, slot: int, ready_s: FloatArray, now_s: float) -> tuple[float, BoolArray]:
        """When the server goes on, and whose opinion (K,) it then has; opinions set out at `ready_s` (K,), all >= `now_s`."""
        self._channel.open_round(slot, now_s)
        clock = Clock(now_s)
        carrier = self._carrier_on(clock)
        carrier.open_round(slot, now_s)
        limit_s = float(ready_s.max()) + self._wait_s
        sending = Sending(
            resending=self._resending,
            draws=lambda attempt: self._draw(slot, attempt, now_s),
            outages=self._outages,
            on_sending=self.on_sending,
        )
        if carrier.carries:
            time_s, arrived = one_by_one(sending, clock, carrier, ready_s, limit_s)
        else:
            time_s, arrived = all_at_once(
                sending, lambda start_s: carrier.alone_s(slot, start_s, self._everyone), ready_s, limit_s
            )
        end_s = min(float(time_s.max()), limit_s)
        return end_s, arrived & (time_s <= end_s)

    def _draw(self, slot: int, attempt: int, now_s: float) -> tuple[FloatArray, BoolArray]:
        # Every attempt has an address of its own; the laws are those of the slot.
        address = slot * (self._resending.max_resends + 1) + attempt
        return self._drawn(self._delay, slot, address, now_s), self._drawn(self._channel, slot, address, now_s)

    def _drawn(self, source: Durations | Survivals, slot: int, address: int, now_s: float) -> Any:
        """(K,) what `source` has for all clients at `address`, under the law in force in `slot`."""
        everyone = self._everyone
        value, _ = source.certain(slot, now_s)
        if value is not None:
            return np.full(len(everyone), value)
        return np.array(source.evaluate(slot, now_s, everyone, source.uniforms(address, everyone))[0])

    def state_dict(self) -> State:
        """The state of the channel."""
        return self._channel.state_dict()

    def load_state_dict(self, state: State, slot: int, time_s: float) -> None:
        """Take the state at the close of `slot`."""
        self._channel.load_state_dict(state, slot, time_s)

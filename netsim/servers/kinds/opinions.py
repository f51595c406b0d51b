"""Opinions of a model: all clients test it, and may upload the results."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from netsim.core.errors import ParameterError
from netsim.core.null_objects import NoTime
from netsim.network.draws import Durations
from netsim.network.transport.message_draws import StarDraws
from netsim.peers.protocol import PeerProtocol

if TYPE_CHECKING:
    from netsim.core.clock import Process
    from netsim.core.protocols import BoolArray, DelayLaw, FloatArray, IntArray, State, Timeline
    from netsim.core.streams import Streams
    from netsim.network.transport.messages import Message
    from netsim.network.transport.transport import Transport


class Tests:
    """Tests of the model by all clients at once; a slot waits for the last of them.

    `law`: duration of a test. `evaluated` (K,): work of the test in samples of training, each of which takes an additional time
    of law `sample`; None: no additional time. `rounds_per_slot`: converts slots to rounds, in which `sample` is drawn.
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
        """Return the durations (K,) of the test after slot `number` (0: before the first), seconds."""
        count = len(self._everyone)
        durations_s: FloatArray = np.array(self._durations.draw(number, time_s, self._everyone).values_at(time_s, count))
        sample_times = self._sample.draw(max(number * self._rounds_per_slot, 1), time_s, self._everyone)
        if not sample_times.certain and self._evaluated.any():
            durations_s += self._evaluated * sample_times.values_at(time_s, count)
        return durations_s


class OpinionUplink:
    """Channels for opinions of `size_bytes`: messages of `transport` over a `Star`.

    The server waits for all opinions that may still come, at most `wait_s` seconds after the last test. Later opinions are cut
    off. Raises ValueError for a negative wait.
    """

    def __init__(self, *, transport: Transport, streams: Streams, size_bytes: int = 0, wait_s: float | None = None) -> None:
        if wait_s is not None and not wait_s >= 0:
            raise ParameterError("wait_s", wait_s, "must be >= 0 seconds")
        self.transport = transport
        self.size_bytes = size_bytes
        self._wait_s = math.inf if wait_s is None else wait_s
        self._draws = StarDraws(transport, "opinion", streams, attempts=transport.max_resends + 1)

    def collect(self, slot: int, ready_s: FloatArray) -> Process[BoolArray]:
        """Send each client's opinion at `ready_s` (K,), and wait for opinions. Return True (K,) for clients whose opinion
        arrived.
        """
        transport, clock = self.transport, self.transport.clock
        transport.open_slot(slot, clock.now)
        self._draws.open_slot(slot, clock.now)
        upload = _Upload(transport, self._draws, ready_s, self.size_bytes)
        # The stop is scheduled first, but last of its instant: an opinion that arrives at the limit is in time.
        limit_s = float(ready_s.max()) + self._wait_s
        if limit_s < math.inf:
            upload.stop_at(limit_s)
        upload.begin()
        yield upload.over
        transport.cut()
        return upload.arrived_from

    def state_dict(self) -> State:
        """Return the state of the channels and of outages and jammers."""
        return self.transport.state_dict()

    def load_state_dict(self, state: State, slot: int, time_s: float) -> None:
        """Restore the state at the close of `slot`."""
        self.transport.load_state_dict(state, slot, time_s)


class _Upload(PeerProtocol):
    """The opinions of one slot. Each is sent at its time of `ready_s` (K,), if its client is present then."""

    def __init__(self, transport: Transport, draws: StarDraws, ready_s: FloatArray, size_bytes: int) -> None:
        super().__init__(links=transport, draws=draws)
        self._ready_s, self._size_bytes = ready_s, size_bytes
        self._open = len(ready_s)
        """Number of opinions that may still arrive."""
        self.arrived_from: BoolArray = np.zeros(len(ready_s), np.bool_)
        """True (K,) for clients whose opinion has arrived."""

    def _begin(self) -> None:
        """Send the opinions of clients that are ready now, and schedule the others."""
        clock = self.links.clock
        # Opinions sent at one time form a batch.
        for time_s in np.unique(self._ready_s).tolist():
            clients = np.flatnonzero(self._ready_s == time_s).tolist()
            if time_s == clock.now:
                self._send(clients)
            else:
                clock.call_at(time_s, self._send, clients)

    def _send(self, clients: list[int]) -> None:
        """Send the opinions of `clients` that are present; those of other clients never arrive."""
        if not self.live:
            return
        present = [client for client in clients if not self.links.is_away(client)]
        if present:
            # Edge k of a star belongs to client k.
            self.links.send(self, edges=present, key=0, size_bytes=self._size_bytes)
        self._count_decided(len(clients) - len(present))

    def on_arrival(self, message: Message) -> None:
        """Note that the opinion of a client has arrived."""
        self.arrived_from[message.edge] = True
        self._count_decided(1)

    def on_loss(self, message: Message) -> None:
        """Count an opinion that will never arrive."""
        self._count_decided(1)

    def _count_decided(self, count: int) -> None:
        """Take `count` opinions, which have arrived or never will, off the open ones; stop after the last one."""
        self._open -= count
        if not self._open:
            self.stop_at(self.links.clock.now)

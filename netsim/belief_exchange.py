"""Belief propagation as timed messages: synchronous, exchange by exchange, or asynchronous, on arrival.

Both end when the simulation, which sees everything, finds that no message changes any more; no client could know that. What the
messages say is the mathematics' business (`BeliefMath`), when they say it is settled here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from simpy.events import Event

from netsim.clock import LAST
from netsim.interfaces import FloatArray, IntArray
from netsim.peer_draws import PeerDraws
from netsim.topology import Message, PeerLinks


class BeliefMath(Protocol):
    """Belief propagation over one graph without time; messages are log-odds, one a directed edge, (E,)."""

    @property
    def couplings(self) -> FloatArray:
        """(E,) the coupling of each edge."""

    @property
    def convergence_constant(self) -> float:
        """Below 1: one fixed point, reached from any start."""

    def fields(self, opinions: FloatArray) -> FloatArray:
        """What each client (K,) thinks before it has heard anything, from the opinions (K,)."""

    def step(self, fields: FloatArray, messages: FloatArray) -> FloatArray:
        """The messages of an exchange from those of the one before."""

    def node_messages(
        self, field: float, received: Sequence[float], couplings: Sequence[float], sent: Sequence[float], damping: float
    ) -> list[float]:
        """What one client would now tell each neighbour, given what it received of and last sent to each."""

    def beliefs(self, opinions: FloatArray, messages: FloatArray) -> FloatArray:
        """(K,) beliefs from the messages that arrived."""

    def exchange_times(
        self, *, exchanges: int, start_s: float, latency_s: Callable[[int], FloatArray], work_s: float
    ) -> FloatArray:
        """When each client finishes each exchange if nothing is lost; (exchanges + 1, K)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeliefRules:
    """How clients exchange beliefs.

    `update` "synchronous": a client sends exchange k+1 `work_s` after it has all of exchange k. A message that was given up
    counts as the last one from that neighbour. "asynchronous": `work_s` after something arrived, a client tells each neighbour
    for whom its message has changed by more than `tolerance`; `work_s` also gathers what arrives meanwhile. `exchanges`: so many,
    whether settled or not (synchronous); None: until no message changes by more than `tolerance`, at most `max_exchanges`
    (asynchronous: messages on an edge). `damping` in [0, 1): the share of the old message in the new one, in log-odds.
    """

    update: Literal["synchronous", "asynchronous"] = "synchronous"
    exchanges: int | None = None
    max_exchanges: int = 1000
    tolerance: float = 1e-9
    damping: float = 0.0
    work_s: float = 0.0
    message_bytes: int = 24

    def __post_init__(self) -> None:
        if self.update not in ("synchronous", "asynchronous"):
            raise ValueError(f"update = {self.update!r}: must be 'synchronous' or 'asynchronous'")
        if self.exchanges is not None and self.exchanges < 1:
            raise ValueError(f"exchanges = {self.exchanges!r}: must be >= 1")
        if self.exchanges is not None and self.update == "asynchronous":
            raise ValueError(f"exchanges = {self.exchanges!r}: asynchronous updates have no exchanges; use max_exchanges")
        if self.max_exchanges < 1:
            raise ValueError(f"max_exchanges = {self.max_exchanges!r}: must be >= 1")
        if not 0 <= self.tolerance < math.inf:
            raise ValueError(f"tolerance = {self.tolerance!r}: must be >= 0 and finite")
        if not 0 <= self.damping < 1:
            raise ValueError(f"damping = {self.damping!r}: must lie in [0, 1)")
        if not 0 <= self.work_s < math.inf:
            raise ValueError(f"work_s = {self.work_s!r}: must be >= 0 seconds and finite")
        if self.damping > 0 and self.update == "asynchronous" and self.work_s == 0:
            # A damped message is not the last word: the client goes on by itself, and must not do so in no time.
            raise ValueError(f"damping = {self.damping!r}: asynchronous updates with damping need work_s > 0")
        if self.message_bytes < 0:
            raise ValueError(f"message_bytes = {self.message_bytes!r}: must be >= 0")


@dataclass(frozen=True, slots=True)
class Settled:
    """Where belief propagation came to."""

    messages: FloatArray
    """(E,) the last messages that arrived, as log-odds."""
    exchanges: int
    residual: float
    """The largest change of a message in the last exchange."""
    converged: bool
    """No message changed by more than the tolerance."""


class Iterates:
    """The messages of one exchange after the other: at first nobody has said anything (all 0)."""

    def __init__(self, maths: BeliefMath, fields: FloatArray, damping: float, edges: int) -> None:
        self._maths, self._fields, self._damping = maths, fields, damping
        self.messages: FloatArray = np.zeros(edges)
        self.done = 0
        self.residual = math.inf

    def advance(self, missing: Sequence[int] = ()) -> None:
        """One exchange; over the edges in `missing` nothing arrived, and the receiver keeps what it had."""
        old = self.messages
        new = self._maths.step(self._fields, old)
        if self._damping:
            new = self._damping * old + (1 - self._damping) * new
        if missing:
            new = new.copy()
            new[list(missing)] = old[list(missing)]
        change = new - old
        self.residual = float(np.abs(change, out=change).max(initial=0.0))
        self.messages = new
        self.done += 1


class SynchronousBelief:
    """A client sends exchange k+1 when it has all of exchange k.

    Which messages arrive decides what they say, when they arrive does not: so values are computed an exchange at a time, for all
    edges in one call, and only the times are events. How many exchanges it takes without loss is computed beforehand; where
    messages were given up and the last exchange still changed something, all go on for another one.
    """

    def __init__(self, *, links: PeerLinks, draws: PeerDraws, maths: BeliefMath, rules: BeliefRules, fields: FloatArray) -> None:
        graph = links.graph
        self.links, self.draws, self.rules = links, draws, rules
        self.live = False
        self.over: Event = links.clock.event()
        self.goal = 0
        """The exchange after which all stop."""
        self._maths, self._fields = maths, fields
        self._ideal = self._plan()
        self._iterates: Iterates | None = None
        self._given_up: dict[int, list[int]] = {}
        self._target = graph.target.tolist()
        degree = np.diff(graph.starts)
        self._degree = degree.tolist()
        # Messages of at most two exchanges can be under way to a client: of the one it is in, and of the next.
        self._missing = (degree.tolist(), degree.tolist())
        self._done = [0] * graph.clients
        self._left = graph.clients
        self._out = outgoing(links)

    def _plan(self) -> Iterates:
        rules = self.rules
        ideal = Iterates(self._maths, self._fields, rules.damping, self.links.graph.edges)
        most = rules.exchanges if rules.exchanges is not None else rules.max_exchanges
        while ideal.done < most and (rules.exchanges is not None or not ideal.residual <= rules.tolerance):
            ideal.advance()
        self.goal = ideal.done
        return ideal

    def times(self) -> FloatArray:
        """When each client finishes each exchange if all begin now and nothing is disturbed; seconds (goal + 1, K)."""

        def latency_s(exchange: int) -> FloatArray:
            return self.draws.latency_s(exchange, self.rules.message_bytes)

        return self._maths.exchange_times(
            exchanges=self.goal, start_s=self.links.clock.now, latency_s=latency_s, work_s=self.rules.work_s
        )

    def take_wave(self) -> Settled:
        """Count the messages of the closed form, and give what they said."""
        messages = self.goal * self.links.graph.edges
        self.links.count(messages, messages * self.rules.message_bytes)
        return self._settled(self._ideal)

    def begin(self) -> None:
        """All clients begin now."""
        self.live = True
        for client in range(self.links.graph.clients):
            self._next(client)

    def _next(self, client: int) -> None:
        done, links, size = self._done, self.links, self.rules.message_bytes
        while done[client] < self.goal:
            exchange = done[client] + 1
            links.send_each(self, self._out[client], exchange, size)
            if self._missing[exchange & 1][client]:
                return
            if self.rules.work_s > 0:
                links.clock.call_in(self.rules.work_s, self._complete, client)
                return
            self._count(client)
        self._left -= 1
        if self._left == 0:
            self._all_done()

    def _count(self, client: int) -> None:
        self._done[client] += 1
        self._missing[self._done[client] & 1][client] = self._degree[client]

    def _complete(self, client: int) -> None:
        if self.live:
            self._count(client)
            self._next(client)

    def arrived(self, message: Message) -> None:
        """One message less that its receiver waits for."""
        client, exchange = self._target[message.edge], message.key
        missing = self._missing[exchange & 1]
        missing[client] -= 1
        if missing[client] == 0 and self._done[client] == exchange - 1:
            if self.rules.work_s > 0:
                self.links.clock.call_in(self.rules.work_s, self._complete, client)
            else:
                self._count(client)
                self._next(client)

    def given_up(self, message: Message) -> None:
        """The receiver goes on with what it had."""
        self._given_up.setdefault(message.key, []).append(message.edge)
        self.arrived(message)

    def _all_done(self) -> None:
        rules = self.rules
        if self._given_up:
            now = self._catch_up(self.goal)
            if rules.exchanges is None and now.residual > rules.tolerance and self.goal < rules.max_exchanges:
                self.goal += 1
                self._left = len(self._done)
                for client in range(self._left):
                    self._next(client)
                return
        self.links.clock.call_at(self.links.clock.now, self.stop, priority=LAST)

    def _catch_up(self, exchange: int) -> Iterates:
        if self._iterates is None:
            self._iterates = Iterates(self._maths, self._fields, self.rules.damping, self.links.graph.edges)
        while self._iterates.done < exchange:
            self._iterates.advance(self._given_up.get(self._iterates.done + 1, ()))
        return self._iterates

    def stop(self, _: None = None) -> None:
        """Nobody goes on from here."""
        if self.live:
            self.live = False
            self.over.succeed()

    @property
    def complete(self) -> bool:
        """Whether all clients have finished all exchanges."""
        return self._left == 0

    def settled(self) -> Settled:
        """What the clients know now: each what arrived up to the last exchange that it has finished."""
        if self.complete:
            return self._settled(self._catch_up(self.goal) if self._given_up else self._ideal)
        stage = np.array(self._done)[self.links.graph.target]
        iterates = Iterates(self._maths, self._fields, self.rules.damping, self.links.graph.edges)
        messages = iterates.messages.copy()
        for exchange in range(1, max(self._done) + 1):
            iterates.advance(self._given_up.get(exchange, ()))
            there = stage >= exchange
            messages[there] = iterates.messages[there]
        return Settled(messages, min(self._done), iterates.residual, False)

    def _settled(self, iterates: Iterates) -> Settled:
        return Settled(iterates.messages, iterates.done, iterates.residual, iterates.residual <= self.rules.tolerance)


class AsynchronousBelief:
    """A client updates when something arrives, and tells a neighbour only what has changed by more than the tolerance.

    Where nothing gathers arrivals (`work_s` 0), each is answered at once by a message to every neighbour, so that their number
    grows with every hop until changes fall below the tolerance. It ends when nothing is under way and nobody has anything to say.
    A message that was overtaken by a later one of the same edge is not heeded. What was given up is said again when the link
    comes back from an outage.
    """

    def __init__(self, *, links: PeerLinks, draws: PeerDraws, maths: BeliefMath, rules: BeliefRules, fields: FloatArray) -> None:
        graph = links.graph
        self.links, self.draws, self.rules = links, draws, rules
        self.live = False
        self.complete = False
        self.over: Event = links.clock.event()
        self._maths, self._fields = maths, fields
        self._field = fields.tolist()
        self._couplings = maths.couplings.tolist()
        self._starts = graph.starts.tolist()
        self._target = graph.target.tolist()
        self._out = outgoing(links)
        self._received = [0.0] * graph.edges
        self._sent = [0.0] * graph.edges
        self._number = [0] * graph.edges
        self._heard = [0] * graph.edges
        self._unheard: set[int] = set()
        self._due = [False] * graph.clients
        self._outstanding = 0
        self._cut_short = False
        self._alarm_s = 0.0

    def begin(self) -> None:
        """All clients begin now, with what they think themselves."""
        self.live = True
        self._outstanding += 1
        for client in range(self.links.graph.clients):
            self._update(client)
        self._outstanding -= 1
        self._check()

    def _update(self, client: int) -> None:
        rules, sent, number = self.rules, self._sent, self._number
        here, out = slice(self._starts[client], self._starts[client + 1]), self._out[client]
        old = [sent[edge] for edge in out]
        new = self._maths.node_messages(self._field[client], self._received[here], self._couplings[here], old, rules.damping)
        told = False
        for edge, before, message in zip(out, old, new, strict=True):
            if abs(message - before) <= rules.tolerance:
                continue
            if number[edge] >= rules.max_exchanges:
                self._cut_short = True
                continue
            sent[edge] = message
            self._say(edge)
            told = True
        if told and rules.damping > 0:
            self._wake(client)

    def _say(self, edge: int) -> None:
        self._number[edge] += 1
        self._outstanding += 1
        self._unheard.discard(edge)
        self.links.send(self, edge, self._number[edge], self.rules.message_bytes, self._sent[edge])

    def _wake(self, client: int) -> None:
        if self.rules.work_s == 0:
            self._update(client)
        elif not self._due[client]:
            self._due[client] = True
            self._outstanding += 1
            self.links.clock.call_in(self.rules.work_s, self._work_done, client)

    def _work_done(self, client: int) -> None:
        if self.live:
            self._due[client] = False
            self._outstanding -= 1
            self._update(client)
            self._check()

    def arrived(self, message: Message) -> None:
        """The receiver takes note, unless it has heard a later message."""
        self._outstanding -= 1
        edge = message.edge
        if message.key > self._heard[edge]:
            self._heard[edge] = message.key
            self._received[edge] = message.content
            self._wake(self._target[edge])
        self._check()

    def given_up(self, message: Message) -> None:
        """The receiver never hears it."""
        self._outstanding -= 1
        if message.key == self._number[message.edge]:
            self._unheard.add(message.edge)
        self._check()

    def _check(self) -> None:
        if self._outstanding or not self.live:
            return
        clock = self.links.clock
        following = self.links.outages.next_return_s(clock.now) if self._unheard else math.inf
        if following == math.inf:
            self.complete = True
            clock.call_at(clock.now, self.stop, priority=LAST)
        elif following != self._alarm_s:
            self._alarm_s = following
            clock.call_at(following, self._back)

    def _back(self, _: None) -> None:
        if not self.live:
            return
        back = set(self.links.outages.returning(self.links.clock.now))
        address = self.links.graph.address
        for edge in sorted(self._unheard):
            if int(address[edge]) >> 1 in back and self._number[edge] < self.rules.max_exchanges:
                self._say(edge)
        self._check()

    def stop(self, _: None = None) -> None:
        """Nobody goes on from here."""
        if self.live:
            self.live = False
            self.over.succeed()

    def settled(self) -> Settled:
        """What the clients have heard so far."""
        messages = np.array(self._received)
        residual = float(np.abs(self._maths.step(self._fields, messages) - messages).max(initial=0.0))
        converged = self.complete and not self._cut_short and not self._unheard
        return Settled(messages, max(self._number, default=0), residual, converged)


def outgoing(links: PeerLinks) -> list[list[int]]:
    """The edges that leave each client, in the order of its neighbours' numbers."""
    reverse: IntArray = links.graph.reverse
    starts = links.graph.starts.tolist()
    return [reverse[starts[i] : starts[i + 1]].tolist() for i in range(links.graph.clients)]

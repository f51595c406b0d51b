"""Gossip as timed messages: flooding, push and push-pull; agreement is detected by the simulation, not by the clients.

In a slot every client makes one index, and messages spread (client, index) pairs. Clients are named by rank, their place in the
decreasing order of all indices; nobody uses a rank it has not heard of. All clients name the same top m exactly when each of
them knows the true top m: agreement. The clients do not notice, and go on until the slot starts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from simpy.events import Event

from netsim.belief_exchange import outgoing
from netsim.clock import LAST
from netsim.interfaces import BoolArray, FloatArray, IntArray
from netsim.peer_draws import PeerDraws
from netsim.topology import Message, PeerLinks

Known = Any
"""What a client knows, or a message holds: plain, immutable, false if empty; made and read by a `Payload` alone."""


class Payload(Protocol):
    """What messages hold."""

    def own(self, rank: int) -> Known: ...
    def merge(self, held: Known, got: Known) -> tuple[Known, Known]: ...
    def lacking(self, held: Known, got: Known) -> Known: ...
    def pairs(self, known: Known) -> int: ...
    def named(self, held: Known, size: int) -> tuple[int, ...]: ...
    def knows_top(self, held: Known, size: int) -> bool: ...


class GossipMath(Protocol):
    """Gossip over one graph without time."""

    @property
    def payload(self) -> Payload: ...
    @property
    def keeps_all(self) -> bool:
        """Whether clients pass on everything they hear, so that an item's spread depends on no other item."""

    def ranks(self, index: FloatArray, priority: FloatArray | None) -> IntArray:
        """(K,) each client's place in the decreasing order of `index`; of equals the lower `priority` first."""

    def contacts(self, u: FloatArray) -> IntArray:
        """The edge to a random neighbour, for each client that has one, by uniforms (K,)."""

    def believers(self, held: Sequence[Known], ranks: IntArray) -> IntArray:
        """The clients that believe to be in the top m, ascending."""

    def disagreement(self, held: Sequence[Known]) -> float:
        """Share of clients that do not name the true top m."""

    def flooding_times(self, *, origins: IntArray, start_s: float, latency_s: FloatArray, work_s: float) -> FloatArray:
        """When each client knows the item of each origin if all flood; (origins, K)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipRules:
    """How clients spread their indices.

    `forwarding` "flooding": `work_s` after its arrival a client tells all its neighbours what is new to it, but for the one
    it has it from; when a link comes back from an outage, its two ends tell each other all they know. "push": every
    `interval_s` each client tells one random neighbour all it knows; "push-pull": that neighbour answers with what it knew and
    the sender did not show to know. `max_repetitions` of push. A message has `header_bytes` and `pair_bytes` for each pair.
    """

    forwarding: Literal["flooding", "push", "push-pull"] = "flooding"
    interval_s: float = 0.01
    max_repetitions: int = 10_000
    work_s: float = 0.0
    header_bytes: int = 16
    pair_bytes: int = 12

    def __post_init__(self) -> None:
        if self.forwarding not in ("flooding", "push", "push-pull"):
            raise ValueError(f"forwarding = {self.forwarding!r}: must be 'flooding', 'push' or 'push-pull'")
        for name, value in (("interval_s", self.interval_s), ("work_s", self.work_s)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} = {value!r}: must be >= 0 seconds and finite")
        if not 1 <= self.max_repetitions < 1 << 24:
            raise ValueError(f"max_repetitions = {self.max_repetitions!r}: must be between 1 and {(1 << 24) - 1}")
        for name, count in (("header_bytes", self.header_bytes), ("pair_bytes", self.pair_bytes)):
            if count < 0:
                raise ValueError(f"{name} = {count!r}: must be >= 0 bytes")


class _Gossip:
    """What all ways of forwarding share: who knows what, and whether all agree."""

    def __init__(
        self, *, links: PeerLinks, draws: PeerDraws, maths: GossipMath, rules: GossipRules, ranks: IntArray, size: int
    ) -> None:
        self.links, self.draws, self.rules = links, draws, rules
        self.live = False
        self.over: Event = links.clock.event()
        self.agreed_s = math.nan
        """When all clients first named the same top m; NaN: they do not yet."""
        self.until_agreement = True
        """Whether to stop at agreement, or where there can be none any more; otherwise only `stop` ends it."""
        self.payload = maths.payload
        self.held: list[Known] = [maths.payload.own(rank) for rank in ranks.tolist()]
        self._maths, self._size, self._ranks = maths, size, ranks
        self._client_of = np.argsort(ranks).tolist()
        self._target = links.graph.target.tolist()
        self._source = links.graph.source.tolist()
        self._informed = [self.payload.knows_top(held, size) for held in self.held]
        self._uninformed = self._informed.count(False)
        self._outstanding = 0

    def _merge(self, client: int, got: Known) -> Known:
        """`client` hears `got`: what of it is new."""
        payload = self.payload
        self.held[client], new = payload.merge(self.held[client], got)
        if new and not self._informed[client] and payload.knows_top(self.held[client], self._size):
            self._informed[client] = True
            self._uninformed -= 1
            if self._uninformed == 0:
                self._agree()
        return new

    def _agree(self) -> None:
        clock = self.links.clock
        self.agreed_s = clock.now
        if self.until_agreement:
            # What else happens at this instant still happens, so that the count does not depend on the order of ties.
            clock.call_at(clock.now, self.stop, priority=LAST)

    def _size_bytes(self, known: Known) -> int:
        return self.rules.header_bytes + self.rules.pair_bytes * self.payload.pairs(known)

    def stop(self, _: None = None) -> None:
        """The slot starts: nobody forwards anything from here."""
        if self.live:
            self.live = False
            self.over.succeed()


class Flooding(_Gossip):
    """Each client forwards what is new to it. The draws of a message are addressed by the best client it tells of."""

    def begin(self) -> None:
        """All clients set out now."""
        self.live = True
        self._out = outgoing(self.links)
        self._eras: dict[int, int] = {}
        if self._uninformed == 0:
            self._agree()
        for client, held in enumerate(self.held):
            self._forward(client, held, -1)
        self._watch()
        self._check()

    def _forward(self, client: int, news: Known, giver: int) -> None:
        target, eras = self._target, self._eras
        key, size = self._key(news), self._size_bytes(news)
        edges = [edge for edge in self._out[client] if target[edge] != giver]
        self._outstanding += len(edges)
        if eras:
            for edge in edges:
                self.links.send(self, edge, key, size, news, eras.get(edge, 0))
        else:
            self.links.send_each(self, edges, key, size, news)

    def _key(self, news: Known) -> int:
        best: int = self._client_of[self.payload.named(news, 1)[0]]
        return best

    def arrived(self, message: Message) -> None:
        """The receiver learns, and forwards what is new to it."""
        edge = message.edge
        client = self._target[edge]
        new = self._merge(client, message.content)
        if new:
            if self.rules.work_s > 0:
                self.links.clock.call_in(self.rules.work_s, self._worked, (client, new, self._source[edge]))
                return
            self._forward(client, new, self._source[edge])
        self._outstanding -= 1
        self._check()

    def _worked(self, what: tuple[int, Known, int]) -> None:
        if self.live:
            self._forward(*what)
            self._outstanding -= 1
            self._check()

    def given_up(self, message: Message) -> None:
        """The receiver never hears it."""
        self._outstanding -= 1
        self._check()

    def _check(self) -> None:
        if self._outstanding or not self.live or not self.until_agreement or self._uninformed == 0:
            return
        clock = self.links.clock
        if self.links.outages.next_return_s(clock.now) == math.inf:
            clock.call_at(clock.now, self.stop, priority=LAST)

    def _watch(self) -> None:
        following = self.links.outages.next_return_s(self.links.clock.now)
        if following < math.inf:
            self.links.clock.call_at(following, self._back)

    def _back(self, _: None) -> None:
        if not self.live:
            return
        back = set(self.links.outages.returning(self.links.clock.now))
        for edge, address in enumerate(self.links.graph.address.tolist()):
            if address >> 1 in back:
                # The same news may cross the link once more: other draws, above those of all resends so far.
                self._eras[edge] = self._eras.get(edge, 0) + self.links.max_resends + 1
                news = self.held[self._source[edge]]
                self._outstanding += 1
                self.links.send(self, edge, self._key(news), self._size_bytes(news), news, self._eras[edge])
        self._watch()

    def wave(self, stop_s: float) -> FloatArray | None:
        """When each client knows each item, seconds (K, K), row = origin, where the closed form holds up to the stop.

        `stop_s`: when the slot starts; inf: at agreement. None: there is no agreement, or the closed form does not hold so long.
        """
        links, clients = self.links, self.links.graph.clients
        quiet_s = links.quiet_until(self.draws, links.clock.now)
        if not self._maths.keeps_all or self.rules.work_s > 0 or quiet_s == -math.inf:
            return None
        size = self._size_bytes(self.payload.own(0))
        times = np.empty((clients, clients))
        for client in range(clients):
            latency_s = self.draws.latency_s(client, size)
            times[client] = self._maths.flooding_times(
                origins=np.array([client]), start_s=links.clock.now, latency_s=latency_s, work_s=0.0
            )[0]
        end_s = stop_s if stop_s < math.inf else self.agreement_of(times)
        return times if end_s < quiet_s else None

    def agreement_of(self, times: FloatArray) -> float:
        """When all clients know the true top m; inf: never."""
        return float(times[self._client_of[: self._size]].max())

    def take_wave(self, times: FloatArray, end_s: float) -> None:
        """Bring everything to where events would have brought it at `end_s`; the clock must stand there.

        Of two neighbours who tell a client the same item at the same instant, the one on the lower edge counts as its giver.
        """
        links, graph = self.links, self.links.graph
        agreed_s = self.agreement_of(times)
        self.agreed_s = agreed_s if agreed_s <= end_s else math.nan
        size = self._size_bytes(self.payload.own(0))
        sent = flying = 0
        for client, known_s in enumerate(times):
            latency_s = self.draws.latency_s(client, size)
            arrival_s = known_s[graph.source] + latency_s
            sends = (known_s <= end_s)[graph.source]
            first = np.flatnonzero(sends & (arrival_s == known_s[graph.target]) & (graph.target != client))
            _, giver = np.unique(graph.target[first], return_index=True)
            sends[graph.reverse[first[giver]]] = False
            sent += int(np.count_nonzero(sends))
            news = self.payload.own(int(self._ranks[client]))
            for edge in np.flatnonzero(sends & (arrival_s > end_s)).tolist():
                sent_s = float(known_s[graph.source[edge]])
                links.put_in_flight(self.draws, edge, client, size, news, sent_s, float(arrival_s[edge]))
                flying += 1
        links.count(sent - flying, (sent - flying) * size)
        self._learn(times <= end_s)

    def _learn(self, knows: BoolArray) -> None:
        # Row of items in the order of their ranks, so that each client's knowledge is one sequence of bits.
        by_rank = knows[self._client_of].T
        for client, bits in enumerate(by_rank):
            for rank in np.flatnonzero(bits).tolist():
                self.held[client], _ = self.payload.merge(self.held[client], self.payload.own(rank))


class Push(_Gossip):
    """Every repetition each client tells one random neighbour all it knows; in push-pull that neighbour answers."""

    def __init__(
        self,
        *,
        links: PeerLinks,
        draws: PeerDraws,
        answers: PeerDraws,
        contacts: Callable[[int], FloatArray],
        maths: GossipMath,
        rules: GossipRules,
        ranks: IntArray,
        size: int,
    ) -> None:
        super().__init__(links=links, draws=draws, maths=maths, rules=rules, ranks=ranks, size=size)
        self._contacts = contacts
        self._reverse = links.graph.reverse.tolist()
        self._answer = _Answers(self, answers) if rules.forwarding == "push-pull" else None
        self._start_s = 0.0
        self.repetitions = 0

    def begin(self) -> None:
        """The first repetition is now."""
        self.live = True
        self._start_s = self.links.clock.now
        if self._uninformed == 0:
            self._agree()
        self._repeat()

    def _repeat(self, _: None = None) -> None:
        if not self.live:
            return
        rules, clock = self.rules, self.links.clock
        if self.repetitions >= rules.max_repetitions:
            self._ended()
            return
        self.repetitions += 1
        for edge in self._maths.contacts(self._contacts(self.repetitions)).tolist():
            held = self.held[self._source[edge]]
            self._outstanding += 1
            self.links.send(self, edge, self.repetitions, self._size_bytes(held), held)
        # Last of its instant: where nothing takes time, a repetition is over before the next begins.
        due_s = max(clock.now, self._start_s + self.repetitions * rules.interval_s)
        clock.call_at(due_s, self._repeat, priority=LAST)

    def arrived(self, message: Message) -> None:
        """The receiver learns, and answers if that is the way."""
        client = self._target[message.edge]
        answer = self.payload.lacking(self.held[client], message.content) if self._answer is not None else None
        self._merge(client, message.content)
        if answer and self._answer is not None:
            self._answer.outstanding += 1
            self.links.send(self._answer, self._reverse[message.edge], message.key, self._size_bytes(answer), answer)
        self.given_up(message)

    def given_up(self, message: Message) -> None:
        """One message less under way."""
        self._outstanding -= 1
        self._ended()

    def _ended(self) -> None:
        under_way = self._outstanding + (self._answer.outstanding if self._answer is not None else 0)
        if under_way or self.repetitions < self.rules.max_repetitions or not self.until_agreement or self._uninformed == 0:
            return
        self.links.clock.call_at(self.links.clock.now, self.stop, priority=LAST)

    def answered(self, message: Message) -> None:
        """Who pushed hears what the neighbour knew."""
        self._merge(self._target[message.edge], message.content)
        self._ended()


class _Answers:
    """The answers of a push-pull: messages with draws of their own, since a client may push over the same edge meanwhile."""

    def __init__(self, push: Push, draws: PeerDraws) -> None:
        self._push = push
        self.draws = draws
        self.outstanding = 0

    @property
    def live(self) -> bool:
        return self._push.live

    def arrived(self, message: Message) -> None:
        self.outstanding -= 1
        self._push.answered(message)

    def given_up(self, message: Message) -> None:
        self.outstanding -= 1
        self._push._ended()

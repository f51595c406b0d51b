"""Own rounds of all peers, computed as arrays where nothing acts on peers but their messages: fast path of `PeersAtWork`.

When peers train and exchange follows from draws alone (`TrainingProtocol.foresee`), and is computed own round after own round.
Ends of trainings and arrivals are then played to the protocol in their order, all up to the close of a round of the run in one
call of the clock. The protocol answers as it does to events, so that models, numbers, causes and tables are the same to the last
bit (`tests/netsim/servers/kinds/test_peer_rounds.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from netsim.clients.update import BEGUN_BY
from netsim.clients.vectorised.columns import AFTER, BEGUN, DELIVERED, DRAWN, END, NUMBER, OUTCOME, Columns
from netsim.network.transport.messages import Message, MessageHandler, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from netsim.clients.pool import ClientPool
    from netsim.clients.update import ModelDraws, SendDraws
    from netsim.core.causes import Cause
    from netsim.core.protocols import BoolArray, FloatArray, IntArray
    from netsim.network.transport.message_draws import EdgeDraws
    from netsim.network.transport.messages import PeerGraph
    from netsim.network.transport.transport import Transport
    from netsim.peers.training.protocol import TrainingProtocol

FROM = 8
"""Number of peers from which on arrays are faster than events.

Measured without a learner: 6 peers on a ring take 1.13 of the time of events, 8 take 0.89 and 64 take 0.36; of a complete graph
4 peers take 1.20, 6 take 0.88, 64 take 0.49.
"""
_MOST_TRIES = 1000
"""Sendings of a message after which it counts as one that may never arrive."""
_TRAINED = -1
"""Edge that stands for the end of a training, and its place among the messages of the peer: it comes before them."""


class PeerHost(MessageHandler, Protocol):
    """The part of `PeersAtWork` that own rounds as arrays use."""

    pool: ClientPool
    transport: Transport
    protocol: TrainingProtocol
    graph: PeerGraph
    sizes: IntArray
    """(K,) bytes of a model as each peer sends it."""
    training: BoolArray
    """(K,) True for peers in local training."""
    last_round: int
    """Own round after which a peer stops."""

    @property
    def draws(self) -> EdgeDraws:
        """Draws of messages with models."""
        ...

    @property
    def now(self) -> float:
        """Time, seconds."""
        ...

    def handle_training(self, peer: int, attempt: int, round: int, steps: int, epsilon: float) -> None:
        """Handle the end of the local training of `peer`."""
        ...

    def handle_message(self, edge: int, key: int, content: Any) -> None:
        """Hand a message that has arrived over `edge` to the protocol."""
        ...


class _Sending(NamedTuple):
    """Messages of an own round that are sent for the first time, or again; arrays (n,)."""

    places: IntArray
    """Places of the messages among those of the own round."""
    sent_s: FloatArray
    due_s: FloatArray
    """Times at which they arrive, or would arrive if they were not lost."""
    good: BoolArray
    """True for messages that arrive."""


@dataclass(slots=True, kw_only=True)
class _OwnRound:
    """One own round of all peers."""

    number: int
    attempts: Columns
    """Attempts (K) by peer; numbers and causes follow as they begin."""
    begins_s: FloatArray
    """Beginning (K,) of the own round of each peer."""
    draws: tuple[ModelDraws, SendDraws]
    sendings: list[_Sending] = field(default_factory=list)
    """Sendings of its messages, by number of tries; the first holds all messages."""
    edges: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    """Edges (n,) of its messages."""
    senders: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    places: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    """Place (n,) of each message among those of its sender."""
    tries: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    """Number (n,) of sendings of each message that were lost."""
    arrivals_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Arrival (n,) of each message; inf: it is lost for good."""
    ends_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    """End (K,) of the own round of each peer."""
    times: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Times (n,) of its ends of trainings and arrivals, ascending."""
    events: IntArray = field(default_factory=lambda: np.zeros((5, 0), np.int64))
    """Of each end and arrival (5, n): number of what scheduled it; its peer, which is the receiver of a message; the edge, or
    `_TRAINED`; tries; and place of the message.
    """
    contents: list[Any] = field(default_factory=list)
    """Content (K,) of the messages of each peer that has sent."""
    steps: list[int] = field(default_factory=list)
    """Local steps (K) requested of each peer."""
    numbers: list[int] = field(default_factory=list)
    """Number (K,) of the attempt of each peer that has begun."""


class _CallOrder(NamedTuple):
    """Place of a call in the order in which calls of peers were scheduled."""

    scheduled_s: float
    attempt: int
    """Number of the attempt of the peer."""
    place: int
    """Place of the message among those of its sender. The end of a training has a greater one: peers send before they train."""


# How own rounds are foreseen. Without disturbances the own round r of a peer depends on draws, on the beginning of its round, and
# on the messages of its neighbours' rounds r; a round begins when the one before ends. So all peers are computed own round after
# own round (`_foresee`), each in a few array operations, until every peer is past the close of the round of the run. Ends of
# trainings and arrivals up to that close are then sorted (`_fill_queue`) and played to the protocol (`settle`). Two of them at
# one instant come in the order in which events would have been scheduled; if arrays do not know that order, all goes on by
# events. Only the last message of an own round can make its receiver go on. So the messages of a round are handed to the receiver
# together, at the arrival of the last (`_take_due`): a peer is then touched once for its messages, not once for each.


class PeerRounds:
    """The own rounds of the peers of `host` under way. `if_foreseeable` creates one where arrays can compute them."""

    def __init__(self, host: PeerHost) -> None:
        self._host = host
        self._rounds: dict[int, _OwnRound] = {}
        """Own rounds that some peer has not finished, and of which some peer's has begun, by number."""
        self._begun: list[tuple[int, int, int, int, int]] = []
        """Attempts that began since the last `settle`: own round, peer, number, and cause as in `Columns`."""
        self._queue: tuple[FloatArray, IntArray] = np.zeros(0), np.zeros((3, 0), np.int64)
        """Ends of trainings and arrivals up to the close that have not been played, in their order: times (n,); and (3, n) own
        rounds, peers, and edges or `_TRAINED`.
        """
        self._now = self._settled_s = -math.inf
        """Time of what is played at present; and time up to which all is counted."""
        self.closes_s = -math.inf
        """Time at which the round of the run closes."""

    @classmethod
    def if_foreseeable(cls, host: PeerHost) -> PeerRounds | None:
        """Return the own rounds of peers that all begin now; None if they cannot be foreseen."""
        if why_by_events(host):
            return None
        rounds = cls(host)
        return rounds if rounds.prepare(1) else None

    # What comes

    def prepare(self, round: int) -> bool:
        """Foresee up to the close of `round` of the run, which opens now; return False, and change nothing, if that fails."""
        host = self._host
        for number in [number for number in self._rounds if number < round]:
            del self._rounds[number]
        # Foresee one own round after the other. The round of the run closes when the last peer has finished its own round of that
        # number; peers that are faster have begun later rounds by then, so go on until all peers are past the close.
        latest = max(self._rounds, default=round - 1)
        while True:
            if latest >= round:
                self.closes_s = float(self._rounds[round].ends_s.max())
                ends_s = self._rounds[latest].ends_s
                all_are_past = ends_s.min() > self.closes_s
                if latest == host.last_round or all_are_past:
                    return self._fill_queue()
            else:
                # The first own round begins as the run does, for all peers at once.
                ends_s = np.full(host.pool.count, host.now)
            latest += 1
            following = self._foresee(latest, ends_s)
            if following is None:
                return False
            self._rounds[latest] = following

    def _foresee(self, number: int, begins_s: FloatArray) -> _OwnRound | None:
        """Return own round `number` of all peers, which begins at `begins_s` (K,); None if it cannot be foreseen."""
        host, graph = self._host, self._host.graph
        known = host.pool.whole_rounds.foresee_attempts(number, begins_s)
        if known is None:
            return None
        attempts, draws = known
        if (attempts.counts[OUTCOME] != DELIVERED).any():
            return None
        peers = len(begins_s)
        own_round = _OwnRound(
            number=number, attempts=attempts, begins_s=begins_s, draws=draws, contents=[None] * peers, numbers=[0] * peers
        )
        own_round.steps = attempts.counts[DRAWN].tolist()

        def send_messages(edges: IntArray, sent_s: FloatArray) -> FloatArray:
            """Send messages over `edges` (n,) at `sent_s` (n,), note them in the own round, and return their arrivals (n,)."""
            # The protocol lists edges peer by peer, so a search finds the first message of each sender.
            own_round.edges, own_round.senders = edges, graph.source[edges]
            first_of_sender = np.searchsorted(own_round.senders, own_round.senders)
            own_round.places = np.arange(len(edges)) - first_of_sender
            own_round.tries, own_round.arrivals_s = np.zeros(len(edges), np.int64), np.full(len(edges), math.inf)
            self._send(own_round, sent_s)
            return own_round.arrivals_s

        ends_s = host.protocol.foresee(number, begins_s, attempts.times[END], send_messages)
        if ends_s is None or not np.isfinite(ends_s).all():
            return None
        own_round.ends_s = ends_s
        self._list_events(own_round)
        return own_round

    def _send(self, own_round: _OwnRound, sent_s: FloatArray) -> None:
        """Send the messages of an own round, and those that are lost again, until they arrive."""
        host, transport, places = self._host, self._host.transport, np.arange(len(own_round.edges))
        for tries in range(min(transport.max_resends, _MOST_TRIES) + 1):
            sizes = host.sizes[own_round.senders[places]]
            due_s, good = host.draws.foresee(own_round.edges[places], sent_s, own_round.number, tries, sizes)
            own_round.sendings.append(_Sending(places, sent_s, due_s, good))
            own_round.tries[places] = tries
            own_round.arrivals_s[places[good]] = due_s[good]
            if good.all():
                return
            places, sent_s = places[~good], due_s[~good] + transport.resend_after_s

    def _list_events(self, own_round: _OwnRound) -> None:
        """List the ends of trainings and the arrivals of an own round by time."""
        graph = self._host.graph
        trained_s, senders, peers = own_round.attempts.times[END], own_round.senders, len(own_round.ends_s)
        # Origins are equal for what one peer schedules in one event. Each peer has two in a round: what it schedules at the end
        # of its training, and what it has sent before.
        first_origin, everyone = 2 * own_round.number * peers, np.arange(peers)
        no_tries, edge_and_place = np.zeros(peers, np.int64), np.full(peers, _TRAINED)
        events = np.array([first_origin + everyone, everyone, edge_and_place, no_tries, edge_and_place])
        if len(senders):
            sent_before_end = own_round.sendings[0].sent_s < trained_s[senders]
            origins, receivers = first_origin + senders + peers * sent_before_end, graph.target[own_round.edges]
            arrivals = [origins, receivers, own_round.edges, own_round.tries, own_round.places]
            events = np.concatenate([events, arrivals], axis=1)
        times = np.concatenate([trained_s, own_round.arrivals_s])
        order = times.argsort()
        own_round.times, own_round.events = times[order], events[:, order]

    def _fill_queue(self) -> bool:
        """Put what happens up to the close into its order; return False if only the numbers of single events decide it."""
        # Each own round is sorted once (`_list_events`), and a piece of it is due. Rounds overlap, so sort the pieces together.
        due_events, due_times = [], []
        for own_round in self._rounds.values():
            first, after = own_round.times.searchsorted((self._settled_s, self.closes_s), "right")
            due_times.append(own_round.times[first:after])
            due_events.append(own_round.events[:, first:after])
        times = np.concatenate(due_times)
        origins, peers, edges, tries, places = np.concatenate(due_events, axis=1)
        order = np.lexsort((places, tries, times))
        times, origins = times[order], origins[order]
        # Events of one instant come in the order in which they were scheduled. It is known for messages of one peer, and for
        # those that it sends at the end of its training, which they follow.
        if ((times[1:] == times[:-1]) & (origins[1:] != origins[:-1])).any():
            return False
        # Each own round has twice as many origins as peers.
        own_rounds = origins // (2 * self._host.pool.count)
        self._queue = times, np.array([own_rounds, peers[order], edges[order]])
        return True

    # What happens

    def _take_due(self, until_s: float) -> Iterator[tuple[float, int, int, list[int]]]:
        """Take what happens up to and including `until_s` from the queue, in its order.

        Each item is a time, an own round, a peer, and the edges of all messages of that round that arrive at the peer, or
        `[_TRAINED]`. The messages count as one, at the time of the last.
        """
        times, events = self._queue
        due = int(times.searchsorted(until_s, "right"))
        self._queue = times[due:], events[:, due:]
        numbers, peers, edges = events[:, :due]
        # Sort by own round, by peer, and ends of trainings from messages; sorting is stable, so messages stay in their order.
        is_training = edges == _TRAINED
        together = np.lexsort((is_training, peers, numbers))
        kinds, sorted_edges = np.array([numbers, peers, is_training])[:, together], edges[together].tolist()
        # Bounds (m + 1,) of the m parts of equal kinds, and the place of the last of each part among all that is due.
        is_last_of_part = np.append((kinds[:, 1:] != kinds[:, :-1]).any(axis=0), due > 0)
        bounds = np.append(0, 1 + np.flatnonzero(is_last_of_part))
        lasts = together[bounds[1:] - 1]
        # Play the parts in the order of their last messages.
        order = lasts.argsort()
        lasts, firsts, afters = lasts[order], bounds[:-1][order].tolist(), bounds[1:][order].tolist()
        parts = (sorted_edges[first:after] for first, after in zip(firsts, afters, strict=True))
        return zip(times[lasts].tolist(), numbers[lasts].tolist(), peers[lasts].tolist(), parts, strict=True)

    @property
    def begun(self) -> int:
        """Number of attempts that have begun and are not counted yet."""
        return len(self._begun)

    def begin(self, peer: int, round: int, cause: Cause) -> None:
        """Begin the attempt of `peer` in its own `round`. Raises RuntimeError if the protocol foresaw another time."""
        host, own_round = self._host, self._rounds[round]
        # Before anything is played there is no time to compare with.
        if self._now > -math.inf and own_round.begins_s.item(peer) != self._now:
            kind = type(host.protocol).__name__
            raise RuntimeError(f"{kind}.foresee: peer {peer} begins round {round} at another time than it says")
        number = own_round.numbers[peer] = host.pool.started + len(self._begun) + 1
        assert cause.after is not None
        self._begun.append((round, peer, number, BEGUN_BY.index(cause.kind), cause.after))

    def send(self, peer: int, round: int, content: object) -> None:
        """Note the `content` of the messages that `peer` sends in its own `round`."""
        self._rounds[round].contents[peer] = content

    def settle(self, until_s: float) -> None:
        """Play what happens up to and including `until_s` to the protocol, and count it."""
        if until_s == self._settled_s:
            return
        host, sources = self._host, self._host.transport.sources
        for now, number, peer, edges in self._take_due(until_s):
            self._now, own_round = now, self._rounds[number]
            if edges[0] == _TRAINED:
                # Privacy is infinite: with budgets, rounds go by events (`why_by_events`).
                host.handle_training(peer, own_round.numbers[peer], number, own_round.steps[peer], math.inf)
                continue
            for edge in edges:
                host.handle_message(edge, number, own_round.contents[sources[edge]])
        self._count_attempts(until_s)
        self._count_messages(until_s)
        self._settled_s = until_s

    def _count_attempts(self, until_s: float) -> None:
        """Hand the attempts that have begun over to the pool, which records and counts them as they end."""
        pool = self._host.pool
        if self._begun:
            begun = np.array(self._begun, np.int64)
            tables = []
            for number, own_round in self._rounds.items():
                peers, attempt_numbers, causes, causes_after = begun[begun[:, 0] == number, 1:].T
                counts = own_round.attempts.counts
                counts[NUMBER, peers], counts[BEGUN, peers], counts[AFTER, peers] = attempt_numbers, causes, causes_after
                tables.append(own_round.attempts.take(peers))
            draws_by_round = {number: own_round.draws for number, own_round in self._rounds.items()}
            pool.whole_rounds.join(tables[0].append_tables(tables[1:]), draws_by_round)
            self._begun.clear()
        pool.whole_rounds.settle(until_s)
        pool.busy[:] = self._host.training

    def _count_messages(self, until_s: float) -> None:
        """Count the messages that were sent, and those that ended, since the last `settle`."""
        host, after_s = self._host, self._settled_s
        for own_round in self._rounds.values():
            for tries, (places, sent_s, due_s, good) in enumerate(own_round.sendings):
                was_sent, has_ended = (sent_s > after_s) & (sent_s <= until_s), (due_s > after_s) & (due_s <= until_s)
                count, delivered = int(np.count_nonzero(was_sent)), int(np.count_nonzero(has_ended & good))
                senders = own_round.senders[places[was_sent]]
                host.transport.tally(
                    sent=count,
                    delivered=delivered,
                    lost=int(np.count_nonzero(has_ended)) - delivered,
                    resent=count if tries else 0,
                    sent_bytes=int(host.sizes[senders].sum()),
                )

    # What is under way

    def contents(self) -> Iterator[Any]:
        """Return the contents of messages that have been sent and have not arrived."""
        for own_round in self._rounds.values():
            if own_round.sendings:
                waiting = (own_round.sendings[0].sent_s <= self._settled_s) & (own_round.arrivals_s > self._settled_s)
                yield from (own_round.contents[peer] for peer in np.unique(own_round.senders[waiting]).tolist())

    def messages(self) -> list[Message]:
        """Return copies of the messages in flight, and of those that will be sent again; set the `order` of each copy."""
        messages = [message for _, message in self._messages_in_order()]
        for order, message in enumerate(messages):
            message.order = order
        return messages

    def _messages_in_order(self) -> list[tuple[_CallOrder, Message]]:
        """Return copies of the messages in flight, or in the pause before they are sent again, in the order of their next calls.

        Each comes with its place in that order.
        """
        now, resend_after_s = self._settled_s, self._host.transport.resend_after_s
        ordered: list[tuple[_CallOrder, Message]] = []
        for own_round in self._rounds.values():
            for tries, (places, sent_s, due_s, good) in enumerate(own_round.sendings):
                flies = (sent_s <= now) & (due_s > now)
                pauses = ~good & (due_s <= now) & (due_s + resend_after_s > now)
                # `row` counts the messages of this sending, `place` all messages of the own round.
                for row in np.flatnonzero(flies | pauses).tolist():
                    place = places.item(row)
                    message = self._message(own_round, place, tries, sent_s.item(row), due_s.item(row), good=good.item(row))
                    scheduled_s = message.sent_s
                    if pauses[row]:
                        scheduled_s = message.due_s
                        message.stage, message.next_s = Stage.PAUSE, message.due_s + resend_after_s
                    attempt = own_round.numbers[own_round.senders.item(place)]
                    ordered.append((_CallOrder(scheduled_s, attempt, own_round.places.item(place)), message))
        ordered.sort(key=lambda order_and_message: order_and_message[0])
        # The last numbers that the transport has given: no other message in flight has them, and they keep the order.
        first_number = self._host.transport.sent - len(ordered)
        for number, (_, message) in enumerate(ordered, start=first_number):
            message.number = number
        return ordered

    def _message(self, own_round: _OwnRound, place: int, tries: int, sent_s: float, due_s: float, *, good: bool) -> Message:
        """Return message `place` of an own round, as sent at `sent_s` after `tries` losses; without its number."""
        host, sender = self._host, own_round.senders.item(place)
        return Message(
            handler=host,
            label=host.draws.label,
            edge=own_round.edges.item(place),
            key=own_round.number,
            attempt=tries,
            tries=tries,
            size_bytes=host.sizes.item(sender),
            content=own_round.contents[sender],
            sent_s=sent_s,
            due_s=due_s,
            good=good,
            number=0,
            next_s=due_s,
        )

    def release(self) -> None:
        """Go on by events with the trainings and messages under way."""
        host, pool = self._host, self._host.pool
        # Messages and trainings share one order of calls: put all of them on the clock in it.
        calls: list[tuple[_CallOrder, Callable[[Any], object], Any]] = [
            (order, host.transport.resume, message) for order, message in self._messages_in_order()
        ]
        updates, _ = pool.whole_rounds.take_out()
        no_queue = np.zeros(0, np.int64)
        pool.add(updates, no_queue)
        after_messages = host.graph.edges
        for update in updates:
            order = _CallOrder(scheduled_s=update.phase_start_s, attempt=update.number, place=after_messages)
            calls.append((order, pool.life.schedule, update))
        for _, go_on, message_or_update in sorted(calls, key=lambda call: call[0]):
            go_on(message_or_update)
        self._rounds.clear()


def why_by_events(host: PeerHost) -> str:
    """Return in words why own rounds of the peers of `host` cannot be foreseen; empty if they can, as far as is known now."""
    pool, transport = host.pool, host.transport
    pool.advance()
    reasons: Sequence[tuple[bool, str]] = (
        (pool.count < FROM, "few peers"),
        (not pool.whole_rounds.possible, "something acts on single attempts, or reads them"),
        (not pool.settled or not pool.present_and_charged().all(), "peers come and go"),
        (pool.medium.outages is not None, "outages of peers"),
        (pool.accountant.spends, "privacy budgets"),
        (bool(pool.begin_followers), "workers train ahead"),
        (not transport.foreseeable, "links that are jammed, down, shared or recorded"),
        (not host.draws.settled, "laws of links that change or have states"),
    )
    return next((why for holds, why in reasons if holds), "")

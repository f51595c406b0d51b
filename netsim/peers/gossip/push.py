"""Gossip by random contacts: push and push-pull."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from netsim.core.clock import LAST
from netsim.network.transport.messages import links_of_edges
from netsim.peers.gossip.exchange import GossipMath, GossipProtocol, GossipRules

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray, IntArray
    from netsim.network.transport.message_draws import EdgeDraws
    from netsim.network.transport.messages import Message
    from netsim.network.transport.transport import Transport


class Push(GossipProtocol):
    """In every repetition each client sends all it knows to one random neighbour; with push-pull the neighbour answers."""

    def __init__(
        self,
        *,
        links: Transport,
        draws: EdgeDraws,
        answers: EdgeDraws,
        contacts: Callable[[int], FloatArray],
        maths: GossipMath,
        rules: GossipRules,
        ranks: IntArray,
        size: int,
    ) -> None:
        super().__init__(links=links, draws=draws, maths=maths, rules=rules, ranks=ranks, size=size)
        self._contacts = contacts
        self._reverse = links.graph.reverse.tolist()
        self._answers = _Answers(self, answers) if rules.forwarding == "push-pull" else None
        """The answers; None if the rule is push."""
        self._start_s = 0.0
        """Time at which the first repetition began."""
        self.repetitions = 0
        """Number of repetitions begun."""

    def _begin(self) -> None:
        """Begin the first repetition."""
        self._start_s = self.links.clock.now
        if self._uninformed == 0:
            self._agree()
        self._repeat()

    def _repeat(self, _: None = None) -> None:
        """Callback every `interval_s`: begin a repetition, in which each client sends to one random neighbour."""
        if not self.live:
            return
        rules, clock = self.rules, self.links.clock
        if self.repetitions >= rules.max_repetitions:
            self._stop_if_done()
            return
        if self.until_agreement and self._cannot_agree():
            self.stop_at(clock.now)
            return
        self.repetitions += 1
        for edge in self._maths.contacts(self._contacts(self.repetitions)).tolist():
            held = self.held[self.links.sources[edge]]
            self._outstanding += 1
            self.links.send(self, [edge], self.repetitions, self._size_bytes(held), held)
        # Last of its instant, so that a repetition ends before the next begins even if nothing takes time.
        due_s = max(clock.now, self._start_s + self.repetitions * rules.interval_s)
        clock.call_at(due_s, self._repeat, priority=LAST)

    def _cannot_agree(self) -> bool:
        """Return True if agreement is impossible because clients are away: over no other link can anything new be learned."""
        links = self.links
        links_away = () if links.absences is None else links.absences.down_indefinitely(links.clock.now)
        if not links_away or self._uninformed == 0:
            return False
        edges = enumerate(links_of_edges(links.graph).tolist())
        return not any(link not in links_away and self._teaches(edge) for edge, link in edges)

    def on_arrival(self, message: Message) -> None:
        """Merge the message; in push-pull, answer it."""
        # The answer leaves out what the message brought, so compute it before the merge.
        client, answers = self.links.targets[message.edge], self._answers
        answer = None if answers is None else self.payload.difference(self.held[client], message.content)
        self._merge(client, message.content)
        if answers is not None and answer:
            answers.outstanding += 1
            self.links.send(answers, [self._reverse[message.edge]], message.key, self._size_bytes(answer), answer)
        self._count_end()

    def on_loss(self, message: Message) -> None:
        """Do no more than count: the message is not sent again."""
        self._count_end()

    def _count_end(self) -> None:
        """Count the end of a message, and stop if nothing is left to do."""
        self._outstanding -= 1
        self._stop_if_done()

    def _stop_if_done(self) -> None:
        """Stop after the last repetition, when no message is in flight, without agreement."""
        if self._outstanding or (self._answers is not None and self._answers.outstanding):
            return
        is_last = self.repetitions >= self.rules.max_repetitions
        if is_last and self.until_agreement and self._uninformed:
            self.stop_at(self.links.clock.now)

    def on_answer(self, message: Message) -> None:
        """Merge the neighbour's answer to a push-pull."""
        self._merge(self.links.targets[message.edge], message.content)
        self._stop_if_done()


class _Answers:
    """The answers of a push-pull: messages with draws of their own, since a client may push over the same edge meanwhile."""

    def __init__(self, push: Push, draws: EdgeDraws) -> None:
        self._push = push
        self.draws = draws
        self.outstanding = 0
        """Number of answers in flight."""

    @property
    def live(self) -> bool:
        """True while the push runs."""
        return self._push.live

    def on_arrival(self, message: Message) -> None:
        """Pass an answer on."""
        self.outstanding -= 1
        self._push.on_answer(message)

    def on_loss(self, message: Message) -> None:
        """Count a lost answer."""
        self.outstanding -= 1
        self._push._stop_if_done()

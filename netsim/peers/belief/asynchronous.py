"""Asynchronous belief propagation as timed messages: a client updates on arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from netsim.network.transport.messages import links_of_edges
from netsim.peers.belief.exchange import BeliefMath, BeliefProtocol, BeliefResult, BeliefRules

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray
    from netsim.network.transport.message_draws import EdgeDraws
    from netsim.network.transport.messages import Message
    from netsim.network.transport.transport import Transport


class AsynchronousBelief(BeliefProtocol):
    """A client updates when a message arrives, and sends a neighbour only changes above the tolerance.

    With `work_s` 0 each arrival is answered at once by a message to every neighbour: the number of messages grows with every
    hop until changes fall below the tolerance. The exchange ends when no message is in flight and no client has a change to
    send. Messages overtaken by a later one of the same edge are ignored. A lost message is sent again when its link comes back
    from an outage.
    """

    def __init__(self, *, links: Transport, draws: EdgeDraws, maths: BeliefMath, rules: BeliefRules, fields: FloatArray) -> None:
        graph = links.graph
        super().__init__(links=links, draws=draws, maths=maths, rules=rules, fields=fields)
        self.complete = False
        """True once the exchange has ended by itself."""
        self._field = fields.tolist()
        self._couplings = maths.couplings.tolist()
        self._starts = graph.starts.tolist()
        """Index [K + 1] of the first edge into each client."""
        self._received = [0.0] * graph.edges
        """Last message received over each edge, log-odds."""
        self._sent = [0.0] * graph.edges
        """Last message sent over each edge."""
        self._sent_count = [0] * graph.edges
        """Number of messages sent over each edge; the key of the last one."""
        self._latest_key = [0] * graph.edges
        """Key of the latest message received over each edge."""
        self._not_arrived: set[int] = set()
        """Edges whose last message was lost."""
        self._is_working = [False] * graph.clients
        """True for clients that work on what has arrived."""
        self._outstanding = 0
        """Number of messages in flight and of clients at work; it keeps `_check` from stopping while it is > 0."""
        self._cut_short = False
        """True if a change was not sent because of `max_exchanges`."""

    def _begin(self) -> None:
        """Let all clients send their first messages."""
        for client in range(self.links.graph.clients):
            self._update(client)
        self._await_returns()
        self._check()

    def _update(self, client: int) -> None:
        """Compute the messages of `client`, and send those that changed by more than the tolerance."""
        rules, sent, sent_count = self.rules, self._sent, self._sent_count
        # Edges into a client lie side by side.
        incoming, outgoing = slice(self._starts[client], self._starts[client + 1]), self.links.outgoing[client]
        received, couplings = self._received[incoming], self._couplings[incoming]
        old = [sent[edge] for edge in outgoing]
        new = self._maths.node_messages(self._field[client], received, couplings, old, rules.damping)
        has_sent = False
        for edge, before, message in zip(outgoing, old, new, strict=True):
            if abs(message - before) <= rules.tolerance:
                continue
            if sent_count[edge] >= rules.max_exchanges:
                self._cut_short = True
                continue
            sent[edge] = message
            self._send_latest(edge)
            has_sent = True
        if has_sent and rules.damping > 0:
            # With damping the next message differs again, even if nothing arrives.
            self._react(client)

    def _send_latest(self, edge: int) -> None:
        """Send the last message computed for `edge`."""
        self._sent_count[edge] += 1
        self._outstanding += 1
        self._not_arrived.discard(edge)
        self.links.send(self, [edge], self._sent_count[edge], self.rules.message_bytes, self._sent[edge])

    def _react(self, client: int) -> None:
        """Let `client` update: now, or after its work, which gathers what arrives meanwhile."""
        if self.rules.work_s == 0:
            self._update(client)
        elif not self._is_working[client]:
            self._is_working[client] = True
            self._outstanding += 1
            self.links.clock.call_in(self.rules.work_s, self._on_work_done, client)

    def _on_work_done(self, client: int) -> None:
        """Callback at the end of a client's work: update."""
        if self.live:
            self._is_working[client] = False
            self._outstanding -= 1
            self._update(client)
            self._check()

    def on_arrival(self, message: Message) -> None:
        """Take the message to its receiver, unless a later message of the same edge came before it."""
        self._outstanding -= 1
        edge = message.edge
        if message.key > self._latest_key[edge]:
            self._latest_key[edge] = message.key
            self._received[edge] = message.content
            self._react(self.links.targets[edge])
        self._check()

    def on_loss(self, message: Message) -> None:
        """Note the loss; send the message again if its link has come back meanwhile."""
        self._outstanding -= 1
        edge, links = message.edge, self.links
        # Only the last message of an edge matters: a later one replaces it at its receiver.
        if message.key == self._sent_count[edge]:
            self._not_arrived.add(edge)
            if links.is_back(message):
                self._send_again(edge)
        self._check()

    def _check(self) -> None:
        """Stop if no message is in flight, no client works, and no lost message waits for its link."""
        if self._outstanding or not self.live:
            return
        cuts, links, now = self.links.cuts, links_of_edges(self.links.graph), self.links.clock.now
        # Do not wait for edges that have used up their `max_exchanges` messages.
        needed = {int(links[edge]) for edge in self._not_arrived if self._sent_count[edge] < self.rules.max_exchanges}
        # Wait for outages that are on now only, not for future ones, and not for those without a known end.
        may_return = needed - cuts.down_indefinitely(now)
        if all(cuts.cause(link, now, now) is None for link in may_return):
            self.complete = True
            self.stop_at(now)

    def on_links_return(self, links: set[int]) -> None:
        """Send again every last message that was lost over `links`."""
        link_of = links_of_edges(self.links.graph)
        for edge in sorted(self._not_arrived):
            if int(link_of[edge]) in links:
                self._send_again(edge)
        self._check()

    def _send_again(self, edge: int) -> None:
        """Send the last message of `edge` again, unless the edge has used up its messages."""
        if self._sent_count[edge] < self.rules.max_exchanges:
            self._send_latest(edge)

    def result(self) -> BeliefResult:
        """Return the messages that have arrived so far."""
        messages = np.array(self._received)
        # Without rounds the residual is the change that one more exchange of all messages would make.
        changes = np.abs(self._maths.step(self._fields, messages) - messages)
        converged = self.complete and not self._cut_short and not self._not_arrived
        return BeliefResult(
            messages,
            exchanges=max(self._sent_count, default=0),
            residual=float(changes.max(initial=0.0)),
            converged=converged,
        )

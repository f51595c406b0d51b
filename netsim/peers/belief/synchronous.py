"""Synchronous belief propagation as timed messages, exchange by exchange."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from netsim.peers.belief.exchange import BeliefMath, BeliefProtocol, BeliefResult, BeliefRules
from netsim.peers.protocol import ClosedForm

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray
    from netsim.network.transport.message_draws import EdgeDraws
    from netsim.network.transport.messages import Message
    from netsim.network.transport.transport import Transport


class Iterates:
    """Messages of one exchange after the other, log-odds (E,); all 0 before the first."""

    def __init__(self, maths: BeliefMath, fields: FloatArray, damping: float, edges: int) -> None:
        self._maths, self._fields, self._damping = maths, fields, damping
        self.messages: FloatArray = np.zeros(edges)
        self.done = 0
        """Number of exchanges computed."""
        self.residual = math.inf
        """Largest change of a message in the last exchange; inf before the first."""

    @property
    def last_change(self) -> float:
        """Largest change of a message in the last exchange; NaN if there was no exchange."""
        return self.residual if self.done else math.nan

    def advance(self, missing: Sequence[int] = ()) -> None:
        """Compute one exchange. Receivers keep their last message of edges in `missing`, over which nothing arrived."""
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


class SynchronousBelief(BeliefProtocol):
    """A client sends exchange k+1 when it has all of exchange k.

    The content of messages depends on which messages arrive, not on when. So values are computed an exchange at a time, for all
    edges in one call, and only times are events. The number of exchanges without loss is computed beforehand; where messages
    were lost and the last exchange still changed a value, all clients go on for another one.
    """

    def __init__(self, *, links: Transport, draws: EdgeDraws, maths: BeliefMath, rules: BeliefRules, fields: FloatArray) -> None:
        graph = links.graph
        super().__init__(links=links, draws=draws, maths=maths, rules=rules, fields=fields)
        self.goal = 0
        """Exchange after which all clients stop."""
        self._ideal = self._plan()
        """Messages after all exchanges if nothing is lost."""
        self._iterates: Iterates | None = None
        """Messages with the losses that occurred; None until a loss makes them necessary."""
        self._given_up: dict[int, list[int]] = {}
        """Edges whose message was lost, by exchange."""
        self._degree: list[int] = []
        """Number of neighbours of each client."""
        self._missing: tuple[list[int], list[int]] = ([], [])
        """Number of messages that each client still waits for, in even and in odd exchanges; the index is `exchange & 1`."""
        self._done = [0] * graph.clients
        """Number of exchanges that each client has finished."""
        self._left = graph.clients
        """Number of clients that have not finished all exchanges."""

    def _plan(self) -> Iterates:
        """Set `goal`, the number of exchanges if nothing is lost, and return the messages after them."""
        rules = self.rules
        ideal = Iterates(self._maths, self._fields, rules.damping, self.links.graph.edges)
        if rules.exchanges is not None:
            for _ in range(rules.exchanges):
                ideal.advance()
        else:
            # `not <=`: also while the residual is NaN.
            while ideal.done < rules.max_exchanges and not ideal.residual <= rules.tolerance:
                ideal.advance()
        self.goal = ideal.done
        return ideal

    def times(self) -> FloatArray:
        """Return the time at which each client finishes each exchange without disturbance; seconds (goal + 1, K)."""

        def latency_s(exchange: int) -> FloatArray:
            """Return the latencies (parts, E) of the messages of an exchange, seconds."""
            return self.draws.latency_s(exchange, self.rules.message_bytes)

        return self._maths.exchange_times(
            exchanges=self.goal, start_s=self.links.clock.now, latency_s=latency_s, work_s=self.rules.work_s
        )

    def closed_form(self, deadline_s: float) -> ClosedForm | None:
        """Return the outcome if nothing disturbs the links and the deadline does not cut the exchange; None otherwise."""
        now = self.links.clock.now
        quiet_s = self.links.quiet_until(self.draws, now)
        if quiet_s <= now:
            return None
        end_s = float(self.times()[-1].max())
        if end_s >= quiet_s or end_s > deadline_s:
            return None
        return ClosedForm(end_s, self._apply_closed_form)

    def _apply_closed_form(self) -> None:
        """Set the state that events would have left: all messages are counted, and all clients have finished."""
        self.links.count(np.full(self.links.graph.edges, self.goal), self.rules.message_bytes)
        self._left = 0

    def _begin(self) -> None:
        """Let all clients send the messages of the first exchange."""
        self._degree = np.diff(self.links.graph.starts).tolist()
        # Messages in flight to a client belong to at most two exchanges: its present one and the next.
        self._missing = (self._degree.copy(), self._degree.copy())
        for client in range(self.links.graph.clients):
            self._send_exchanges(client)

    def _send_exchanges(self, client: int) -> None:
        """Send the messages of the client's next exchange, and of those after it as long as no message is missing.

        Return when the client must wait for messages, or for its own work on an exchange (`work_s`), after which `_on_work_done`
        goes on. The last client to finish all exchanges ends the protocol (`_finish`).
        """
        # A loop, because neighbours may be faster: if all messages of the client's next exchange have arrived already, no later
        # arrival calls this method again.
        done, links, size = self._done, self.links, self.rules.message_bytes
        while done[client] < self.goal:
            exchange = done[client] + 1
            links.send(self, links.outgoing[client], exchange, size)
            if self._missing[exchange & 1][client]:
                return
            if self.rules.work_s > 0:
                links.clock.call_in(self.rules.work_s, self._on_work_done, client)
                return
            self._count(client)
        self._left -= 1
        if self._left == 0:
            self._finish()

    def _count(self, client: int) -> None:
        """Count an exchange of `client` as finished. Its entry in `_missing` is reused for the exchange after the next."""
        self._done[client] += 1
        finished = self._done[client]
        self._missing[finished & 1][client] = self._degree[client]

    def _on_work_done(self, client: int) -> None:
        """Callback at the end of a client's work on an exchange."""
        if self.live:
            self._count(client)
            self._send_exchanges(client)

    def on_arrival(self, message: Message) -> None:
        """Count the message; the receiver of the last one of an exchange goes on to the next."""
        client, exchange = self.links.targets[message.edge], message.key
        missing = self._missing[exchange & 1]
        missing[client] -= 1
        if missing[client] == 0 and self._done[client] == exchange - 1:
            if self.rules.work_s > 0:
                self.links.clock.call_in(self.rules.work_s, self._on_work_done, client)
            else:
                self._count(client)
                self._send_exchanges(client)

    def on_loss(self, message: Message) -> None:
        """Count the message like one that arrived: its receiver goes on with the last message of that neighbour."""
        self._given_up.setdefault(message.key, []).append(message.edge)
        self.on_arrival(message)

    def _finish(self) -> None:
        """Handle that all clients have finished: stop, or let all go on for another exchange if losses require it."""
        # Without a loss the goal was computed as the exchange after which nothing changes. Losses delay that.
        rules = self.rules
        if self._given_up:
            reached = self._compute_up_to(self.goal)
            if rules.exchanges is None and reached.residual > rules.tolerance and self.goal < rules.max_exchanges:
                self.goal += 1
                self._left = len(self._done)
                for client in range(self._left):
                    self._send_exchanges(client)
                return
        self.stop_at(self.links.clock.now)

    def _compute_up_to(self, exchange: int) -> Iterates:
        """Return the messages after `exchange`, with the losses that occurred. Exchanges must not decrease from call to call."""
        if self._iterates is None:
            self._iterates = Iterates(self._maths, self._fields, self.rules.damping, self.links.graph.edges)
        while self._iterates.done < exchange:
            self._iterates.advance(self._given_up.get(self._iterates.done + 1, ()))
        return self._iterates

    @property
    def complete(self) -> bool:
        """True if all clients have finished all exchanges."""
        return self._left == 0

    def result(self) -> BeliefResult:
        """Return the messages that each client has heard up to the last exchange that it has finished."""
        if self.complete:
            iterates = self._compute_up_to(self.goal) if self._given_up else self._ideal
            return self._result_from(iterates)
        # A deadline has cut the exchange: clients have finished different numbers of exchanges. Compute all exchanges again, and
        # keep of each edge the message of the last exchange that its receiver has finished.
        receiver_done = np.array(self._done)[self.links.graph.target]
        iterates = Iterates(self._maths, self._fields, self.rules.damping, self.links.graph.edges)
        messages = iterates.messages.copy()
        for exchange in range(1, max(self._done) + 1):
            iterates.advance(self._given_up.get(exchange, ()))
            received = receiver_done >= exchange
            messages[received] = iterates.messages[received]
        return BeliefResult(messages, exchanges=min(self._done), residual=iterates.last_change, converged=False)

    def _result_from(self, iterates: Iterates) -> BeliefResult:
        """Return the result of an exchange that all clients have finished."""
        converged = iterates.residual <= self.rules.tolerance
        return BeliefResult(iterates.messages, iterates.done, iterates.last_change, converged)

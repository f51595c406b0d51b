"""Gossip by flooding: each client forwards what is new to it; message by message, or in closed form."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from netsim.network.transport.messages import links_of_edges
from netsim.peers.gossip.exchange import GossipProtocol, Known
from netsim.peers.protocol import ClosedForm

if TYPE_CHECKING:
    from netsim.core.protocols import BoolArray, FloatArray, IntArray
    from netsim.network.transport.messages import Message


class Flooding(GossipProtocol):
    """Each client forwards what is new to it to all neighbours but the one it heard it from.

    The random numbers of a message are addressed by the best client that it names.
    """

    def _begin(self) -> None:
        """Let every client send its own index."""
        self._eras: dict[int, int] = {}
        """First attempt of messages over each edge since its link last came back; 0 for other edges."""
        self._given_up: set[int] = set()
        """Edges over which a message was lost since their link last came back."""
        if self._uninformed == 0:
            self._agree()
        for client, held in enumerate(self.held):
            self._forward(client, held, giver=-1)
        self._await_returns()
        self._check()

    def _forward(self, client: int, news: Known, giver: int) -> None:
        """Send `news` from `client` to all its neighbours, except `giver` (-1: to all)."""
        links, eras = self.links, self._eras
        key, size, target = self._key(news), self._size_bytes(news), links.targets
        edges = [edge for edge in links.outgoing[client] if target[edge] != giver]
        self._outstanding += len(edges)
        # One call for all edges, unless some of their links have come back: then the attempts that address draws differ.
        if eras:
            for edge in edges:
                links.send(self, [edge], key, size, news, attempt=eras.get(edge, 0))
        elif edges:
            links.send(self, edges, key, size, news)

    def _key(self, news: Known) -> int:
        """Return the key of a message: the best client that it names."""
        (best_rank,) = self.payload.top_ranks(news, 1)
        best: int = self._client_of[best_rank]
        return best

    def on_arrival(self, message: Message) -> None:
        """Merge the message; its receiver forwards what is new to it."""
        links, edge = self.links, message.edge
        client = links.targets[edge]
        held, new = self.payload.merge(self.held[client], message.content)
        if new:
            self._update_knowledge(client, held)
            if self.rules.work_s > 0:
                links.clock.call_in(self.rules.work_s, self._finish_work, (client, new, links.sources[edge]))
                return
            self._forward(client, new, links.sources[edge])
        self._outstanding -= 1
        if not self._outstanding:
            self._check()

    def _finish_work(self, forwarding: tuple[int, Known, int]) -> None:
        """Callback at the end of a client's work: forward (client, news, giver)."""
        if self.live:
            self._forward(*forwarding)
            self._outstanding -= 1
            self._check()

    def on_loss(self, message: Message) -> None:
        """Count the message as lost; if the link comes back from an outage, its two ends tell each other all they know."""
        self._given_up.add(message.edge)
        self._outstanding -= 1
        self._check()

    def _check(self) -> None:
        """Stop if no message is in flight and no client can learn anything more, so that agreement is impossible."""
        if self._outstanding or not self.live or not self.until_agreement or self._uninformed == 0:
            return
        if self._nothing_to_learn():
            self.stop_at(self.links.clock.now)

    def _nothing_to_learn(self, returned: Collection[int] = ()) -> bool:
        """Return True if no client can learn anything more. `returned`: links that come back now.

        A message that was lost over a link that is up is not sent again. Future outages do not count, although both ends of
        their links would send everything again when they end.
        """
        cuts, now = self.links.cuts, self.links.clock.now
        lost = cuts.down_indefinitely(now)
        for edge, link in enumerate(links_of_edges(self.links.graph).tolist()):
            if link in lost or not self._teaches(edge):
                continue
            # Something new can still cross the edge: its message is on the way, or its link comes back, now or after an outage.
            if edge not in self._given_up or link in returned or cuts.cause(link, now, now) is not None:
                return False
        return True

    def _takes_returns(self, returned: Collection[int]) -> bool:
        """Return True if the return of links may still teach a client something. Otherwise links that return repeatedly would
        keep messages in flight, and the protocol would never end.
        """
        return not (self.until_agreement and self._nothing_to_learn(returned))

    def on_links_return(self, links: set[int]) -> None:
        """Send the knowledge of both ends of each of `links` over it."""
        for edge, link in enumerate(links_of_edges(self.links.graph).tolist()):
            if link in links:
                # The same news may cross the link again: use draws of attempts above all resends so far.
                self._eras[edge] = self._eras.get(edge, 0) + self.links.max_resends + 1
                self._given_up.discard(edge)
                news = self.held[self.links.sources[edge]]
                self._outstanding += 1
                self.links.send(self, [edge], self._key(news), self._size_bytes(news), news, attempt=self._eras[edge])

    def closed_form(self, deadline_s: float) -> ClosedForm | None:
        """Return the outcome if nothing disturbs the links and clients forward at once; None otherwise."""
        stop_s = math.inf if self.until_agreement else deadline_s
        times = self._known_times(stop_s)
        if times is None:
            return None
        end_s = deadline_s
        if self.until_agreement:
            end_s = min(self.agreement_s(times), deadline_s)
        return ClosedForm(end_s, lambda: self._apply_closed_form(times, end_s))

    def _known_times(self, stop_s: float) -> FloatArray | None:
        """Return the time at which each client knows each item, seconds (K, K), row = origin; None if unknown.

        `stop_s`: time at which the protocol is stopped; inf: it stops at agreement. The times are unknown if the closed form does
        not hold until then.
        """
        links, clients = self.links, self.links.graph.clients
        quiet_s = links.quiet_until(self.draws, links.clock.now)
        if not self._maths.keeps_all or self.rules.work_s > 0 or quiet_s == -math.inf:
            return None
        size = self._size_bytes(self.payload.item(0))
        times = np.empty((clients, clients))
        for client in range(clients):
            latency_s = self.draws.latency_s(client, size)
            # Latencies are drawn for each origin, so each is a call of its own.
            (times[client],) = self._maths.flooding_times(
                origins=np.array([client]), start_s=links.clock.now, latency_s=latency_s, work_s=0.0
            )
        end_s = stop_s if stop_s < math.inf else self.agreement_s(times)
        return times if end_s < quiet_s else None

    def agreement_s(self, times: FloatArray) -> float:
        """Return the time at which all clients know the true top m, seconds; inf: never."""
        return float(times[self._client_of[: self._size]].max())

    def _apply_closed_form(self, times: FloatArray, end_s: float) -> None:
        """Set the state that events would have left at `end_s`; the clock must stand there."""
        # Items spread independently of each other, so each origin is one pass over all edges. A client sends an item on as it
        # learns it, over all edges but the one back to its giver: the sender of the message that arrived first.
        links, graph = self.links, self.links.graph
        agreed_s = self.agreement_s(times)
        self.agreed_s = agreed_s if agreed_s <= end_s else math.nan
        size = self._size_bytes(self.payload.item(0))
        arrived = np.zeros(graph.edges, np.int64)
        for origin, known_s in enumerate(times):
            sent_s = known_s[graph.source]
            arrival_s = self.draws.arrivals_s(sent_s, origin, size)
            # True (E,) for edges whose sender forwards the item by `end_s`, less those that lead back to a giver.
            sends = (known_s <= end_s)[graph.source]
            first_to_arrive = sends & (arrival_s == known_s[graph.target]) & (graph.target != origin)
            from_giver = self._first_edges(np.flatnonzero(first_to_arrive), known_s, origin)
            sends[graph.reverse[from_giver]] = False
            arrived += sends & (arrival_s <= end_s)
            news = self.payload.item(int(self._ranks[origin]))
            late = np.flatnonzero(sends & (arrival_s > end_s))
            links.put_in_flight(self.draws, late, origin, size, news, sent_s=sent_s[late], due_s=arrival_s[late])
        links.count(arrived, size)
        self._set_knowledge(times <= end_s)

    def _first_edges(self, first: IntArray, known_s: FloatArray, origin: int) -> IntArray:
        """Return the edge, among `first` (ascending), over which each client first hears of the item of `origin`.

        Messages of one instant arrive in the order in which they were sent; a client sends in the order of its neighbours.
        """
        graph = self.links.graph
        source, target = graph.source[first], graph.target[first]
        receivers, place = np.unique(target, return_index=True)
        # Fast path: no two messages reach a client at the same time, so there are no ties to decide.
        if len(receivers) == len(first):
            return first
        first_edges: IntArray = first[place]
        # Ties: go through the instants at which clients hear of the item, and number the clients in the order in which they send
        # it on. Of several messages that reach a client at one instant, the one whose sender has the lowest number came first.
        order = np.full(graph.clients, -1)  # place of each client in the order of forwarding; -1: does not know the item yet
        order[origin] = 0
        for time_s in np.unique(known_s[receivers]).tolist():
            open_edges = np.flatnonzero(known_s[target] == time_s)
            while open_edges.size:
                # Where messages take no time, clients that forward at this instant come after those that forwarded before.
                usable = open_edges[order[source[open_edges]] >= 0]
                # Of each receiver keep the edge whose sender forwarded first.
                usable = usable[np.lexsort((order[source[usable]], target[usable]))]
                clients, first_of_client = np.unique(target[usable], return_index=True)
                usable = usable[first_of_client]
                first_edges[np.searchsorted(receivers, clients)] = first[usable]
                in_turn = clients[np.argsort(order[source[usable]], kind="stable")]
                order[in_turn] = order.max() + 1 + np.arange(len(in_turn))
                open_edges = open_edges[order[target[open_edges]] < 0]
        return first_edges

    def _set_knowledge(self, knows: BoolArray) -> None:
        """Set the knowledge of all clients. `knows` (K, K): True if a client (column) knows the item of an origin (row)."""
        # Items in the order of their ranks.
        by_rank = knows[self._client_of].T
        for client, knows_rank in enumerate(by_rank):
            for rank in np.flatnonzero(knows_rank).tolist():
                self.held[client], _ = self.payload.merge(self.held[client], self.payload.item(rank))

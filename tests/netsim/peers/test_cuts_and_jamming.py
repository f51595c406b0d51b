"""The consensus phase where links are cut, heal and are jammed: what is lost, what is told again, who agrees."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from models.laws.channels import Bernoulli
from models.peers.belief import Ising, beliefs, settle
from models.peers.graph import PeerGraph
from models.peers.topologies import grid
from netsim.core.streams import Streams
from netsim.network.jamming import Dwells, Jammer, Jammers
from netsim.network.transport.link_outages import Outage, Outages
from netsim.peers.belief.exchange import BeliefRules
from netsim.peers.consensus import StartRule
from netsim.peers.gossip.exchange import GossipRules
from tests.helpers.peer_opinions import JITTER, geometric, opinions_of
from tests.helpers.peer_world import World, four, world

# Counts.


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("forwarding", ["flooding", "push", "push-pull"])
@pytest.mark.parametrize("payload", ["all", "best"])
def test_sent_is_delivered_and_lost_and_in_flight_at_every_instant(forwarding: Any, payload: str) -> None:
    graph = geometric(20, 7, 0.4)
    rules = GossipRules(forwarding=forwarding, interval_s=0.02)
    cut = Outage(start_s=0.1, end_s=0.4, groups=[list(range(10))])
    w = world(
        graph,
        per_round=3,
        delay=JITTER,
        channel=Bernoulli(success=0.8),
        max_resends=2,
        resend_after_s=0.01,
        gossip=rules,
        payload=payload,
        outages=[cut],
        record=True,
    )
    instants: list[tuple[float, int, int, int, int]] = []

    def look(_: None) -> None:
        links = w.links
        instants.append((w.clock.now, links.sent, links.delivered, links.lost, links.in_flight))
        assert links.sent == links.delivered + links.lost + links.in_flight
        if w.clock.now < 1.0:
            w.clock.call_in(0.0037, look)

    w.clock.call_in(0.0037, look)
    w.run(1, opinions_of(20))
    w.clock.run(until=w.clock.now + 2.0)
    assert w.links.in_flight == 0
    rows = w.recorder.messages
    assert len(rows) == w.links.sent
    assert sum(row.size_bytes for row in rows) == w.links.sent_bytes
    assert sum(row.resend > 0 for row in rows) == w.links.resent > 0
    for now, sent, delivered, lost, flying in instants:
        assert sent == sum(row.sent_s <= now for row in rows)
        assert delivered == sum(row.end_s <= now and row.outcome == "delivered" for row in rows)
        assert lost == sum(row.end_s <= now and row.outcome == "lost" for row in rows)
        assert flying == sum(row.sent_s <= now < row.end_s for row in rows)


@pytest.mark.parametrize("forwarding", ["flooding", "push", "push-pull"])
@pytest.mark.parametrize("payload", ["all", "best"])
def test_agreement_after_a_partition_heals(forwarding: Any, payload: Any) -> None:
    graph = grid(clients=24, rows=4)
    halves = Outage(start_s=0.0, end_s=5.0, groups=[[c for c in range(24) if c % 6 < 3]])
    w = world(
        graph,
        per_round=4,
        delay=JITTER,
        channel=Bernoulli(success=0.9),
        max_resends=3,
        gossip=GossipRules(forwarding=forwarding, interval_s=0.05),
        payload=payload,
        outages=[halves],
        belief=BeliefRules(exchanges=3),
    )
    index = opinions_of(24, 3)
    outcome = w.run(1, opinions_of(24), index)
    assert outcome.agreed_s > 5.0
    assert outcome.disagreement == 0.0
    assert outcome.members.tolist() == sorted(np.argsort(-index)[:4].tolist())


def test_before_the_heal_each_half_names_its_own() -> None:
    graph = grid(clients=24, rows=4)
    left = [c for c in range(24) if c % 6 < 3]
    w = world(
        graph,
        per_round=4,
        delay=JITTER,
        outages=[Outage(start_s=0.0, groups=[left])],
        start=StartRule(start="deadline", deadline_s=5.0),
        belief=BeliefRules(exchanges=3),
    )
    index = opinions_of(24, 3)
    outcome = w.run(1, opinions_of(24), index)
    right = [c for c in range(24) if c not in left]
    best = [sorted(half, key=lambda c: -index[c])[:4] for half in (left, right)]
    assert outcome.members.tolist() == sorted(best[0] + best[1])
    assert outcome.disagreement == 1.0


def test_no_agreement_in_a_graph_of_two_pieces_ends_when_nothing_is_left_to_say() -> None:
    graph = PeerGraph.from_links(
        clients=4, links=np.array([[0, 1], [2, 3]]), distance_km=np.array([1.0, 2.0]), allow_disconnected=True
    )
    for engine in ("events", "auto"):
        w = world(graph, per_round=1, belief=BeliefRules(exchanges=1), engine=engine)
        outcome = w.run(1, opinions_of(4), np.array([0.1, 0.2, 0.3, 0.4]))
        assert math.isnan(outcome.agreed_s)
        assert outcome.duration_s == 4.0
        assert outcome.members.tolist() == [1, 3]
    stuck = GossipRules(forwarding="push", interval_s=1.0, max_repetitions=7)
    outcome = world(graph, per_round=1, belief=BeliefRules(exchanges=1), gossip=stuck).run(1, opinions_of(4))
    assert outcome.duration_s == 2.0 + 6.0 + 2.0


def test_flooding_tells_every_neighbour_but_the_giver_once() -> None:
    graph = geometric(16, 9, 0.6)
    w = world(graph, per_round=16, delay=JITTER, belief=BeliefRules(exchanges=1), record=True)
    w.run(1, opinions_of(16))
    w.clock.run(until=w.clock.now + 1)
    rows = [row for row in w.recorder.messages if row.protocol == "gossip"]
    # E - (K - 1) messages an item in a connected graph, none over the same edge twice. Agreement on all 16 needs every item
    # everywhere; the last to hear forwards at that instant, too.
    assert len(rows) == 16 * (graph.edges - 15)
    assert len({(row.number, row.source, row.target) for row in rows}) == len(rows)


# Cuts and jamming.


def test_a_cut_loses_what_is_in_flight_at_any_instant_of_it() -> None:
    outages = Outages(
        graph=four(), outages=[Outage(start_s=1.0, end_s=2.0, links=[(0, 1)]), Outage(start_s=2.0, end_s=3.0, links=[(1, 0)])]
    )
    link = 0  # the first by its higher client
    flights = {(0.0, 1.0): False, (0.0, 1.5): True, (0.5, 4.0): True, (2.5, 2.6): True, (3.0, 4.0): False}
    flights |= {(1.0, 1.0): True, (3.0, 3.0): False, (0.0, 0.0): False, (2.0, 2.0): True}
    assert {flight: outages.cause(link, *flight) == "cut" for flight in flights} == flights
    assert outages.cause(1, 0.0, 10.0) is None
    assert outages.quiet_until(0.0) == 1.0
    assert outages.quiet_until(1.5) == -math.inf
    assert outages.next_return_s(0.0) == 3.0
    assert outages.returning(3.0) == [0]
    assert outages.next_return_s(3.0) == math.inf


def test_asynchronous_beliefs_are_told_again_when_a_link_comes_back() -> None:
    pair = PeerGraph.from_links(clients=2, links=np.array([[0, 1]]), distance_km=np.array([1.0]))
    r = np.array([0.9, 0.3])
    w = world(
        pair, per_round=1, belief=BeliefRules(update="asynchronous"), outages=[Outage(start_s=0.0, end_s=4.0, links=[(0, 1)])]
    )
    outcome = w.run(1, r)
    exact = settle(pair, w.belief.couplings, Ising.fields(r))
    assert outcome.beliefs == pytest.approx(beliefs(pair, Ising.fields(r), exact.messages), abs=1e-8)
    assert outcome.converged_s == 5.0


class Fixed:
    """Jams the same links in every dwell."""

    def __init__(self, links: list[int]) -> None:
        self.links = np.array(links)
        self.views: list[Any] = []

    def choose(self, view: Any) -> Any:
        self.views.append(view)
        return self.links[: view.allowed]

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        return None


def jammed_world(budget: int) -> tuple[World, Fixed]:
    w = world(four(), per_round=1, belief=BeliefRules(exchanges=2), jam=True, max_resends=9, record=True)
    law = Fixed([0])
    target: Any = w.links.jammed
    jammer = Jammer(name="a", law=law, target=target, draws=Streams(1)["jam"], dwells=Dwells(dwell_s=2.0), budget=budget)
    w.links.jammers = Jammers(jammers=[jammer], clock=w.clock, recorder=w.recorder)
    return w, law


def test_jammed_links_lose_and_messages_are_sent_again() -> None:
    # Link 0 is 0-1, 1 s long, jammed over [0, 2): both of its messages are lost at 1, and those sent then at 2; sent again at 2.
    w, law = jammed_world(budget=1)
    outcome = w.run(1, opinions_of(4))
    jammed = [(row.source, row.sent_s, row.end_s) for row in w.recorder.messages if row.cause == "jammed"]
    assert sorted(jammed) == [(0, 0.0, 1.0), (0, 1.0, 2.0), (1, 0.0, 1.0), (1, 1.0, 2.0)]
    assert outcome.disagreement == 0.0
    assert [(jam.hit, jam.destroyed, jam.end_s) for jam in w.recorder.jams] == [(4, 4, 2.0)]
    assert law.views[0].busy.tolist() == [False] * 4

"""The consensus phase on the clock: times by hand, closed forms against events, loss, cuts, jamming, counts, bad input."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from models.laws.channels import Bernoulli
from models.laws.delays import ShiftedExponential
from models.peers.belief import ConvergenceWarning, Ising, beliefs, settle, step
from models.peers.graph import PeerGraph
from models.peers.mathematics import PeerBelief
from models.peers.topologies import complete, erdos_renyi, grid, random_geometric
from netsim.core.streams import Streams
from netsim.network.jamming import Dwells, Jammer, Jammers
from netsim.peers.belief.exchange import BeliefRules, MessageStormWarning, warn_of_storms
from netsim.peers.consensus import StartRule
from netsim.peers.gossip.exchange import GossipRules
from netsim.peers.link_outages import Outage, Outages
from tests.helpers.peer_world import World, four, world

JITTER = ShiftedExponential(shift_s=0.01, mean_excess_s=0.02)
TWO = BeliefRules(exchanges=2)


def opinions_of(clients: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).random(clients)


def geometric(clients: int, seed: int, radius_km: float = 0.35) -> PeerGraph:
    rng = np.random.default_rng(seed)
    return random_geometric(clients=clients, generator=rng, radius_km=radius_km, allow_disconnected=True)


# By hand.


def test_synchronous_exchange_every_message_by_hand() -> None:
    w = world(four(), per_round=1, belief=TWO, record=True)
    outcome = w.run(1, opinions_of(4))
    # Exchange 1 leaves everyone at 0. Client 0 has both messages at 4, 1 at 2, 2 at 4 (from 0), 3 at 0.5.
    first = [(1, 0, 1, 0.0, 1.0), (1, 0, 2, 0.0, 4.0), (1, 1, 0, 0.0, 1.0), (1, 1, 2, 0.0, 2.0)]
    first += [(1, 2, 0, 0.0, 4.0), (1, 2, 1, 0.0, 2.0), (1, 2, 3, 0.0, 0.5), (1, 3, 2, 0.0, 0.5)]
    second = [(2, 0, 1, 4.0, 5.0), (2, 0, 2, 4.0, 8.0), (2, 1, 0, 2.0, 3.0), (2, 1, 2, 2.0, 4.0)]
    second += [(2, 2, 0, 4.0, 8.0), (2, 2, 1, 4.0, 6.0), (2, 2, 3, 4.0, 4.5), (2, 3, 2, 0.5, 1.0)]
    assert w.rows("belief") == first + second
    assert outcome.exchanges == 2
    # 8 s of belief propagation; two exchanges do not settle it on a triangle.
    assert math.isnan(outcome.converged_s)
    assert min(row.sent_s for row in w.recorder.messages if row.protocol == "gossip") == 8.0


def test_work_between_exchanges_by_hand() -> None:
    w = world(four(), per_round=1, belief=BeliefRules(exchanges=2, work_s=0.25), record=True)
    w.run(1, opinions_of(4))
    # Exchange 1 is finished at 4.25, 2.25, 4.25, 0.75; exchange 2 at 8.5 (0 and 2), 6.5, 5.
    starts = {source: sent for number, source, _, sent, _ in w.rows("belief") if number == 2}
    assert starts == {0: 4.25, 1: 2.25, 2: 4.25, 3: 0.75}
    assert min(row.sent_s for row in w.recorder.messages if row.protocol == "gossip") == 8.5


def test_flooding_every_message_by_hand() -> None:
    index = np.array([0.9, 0.1, 0.2, 0.3])
    w = world(four(), per_round=1, belief=BeliefRules(exchanges=1), record=True)
    outcome = w.run(1, opinions_of(4), index)
    # Belief propagation takes 4 s. The index of client 0, the best: 1 has it at 5, 2 over 1 at 7 (directly at 8), 3 at 7.5.
    of_best = [row for row in w.rows("gossip") if row[0] == 0]
    assert of_best == [(0, 0, 1, 4.0, 5.0), (0, 1, 2, 5.0, 7.0), (0, 2, 3, 7.0, 7.5)]
    assert outcome.agreed_s == outcome.duration_s == 7.5
    # Two more of its messages are still on their way as the slot starts: 0 -> 2 since 4, 2 -> 0 since 7.
    flying = sorted((m.key, m.sent_s, m.due_s) for m in w.links.flying.values() if m.key == 0)
    assert flying == [(0, 4.0, 8.0), (0, 7.0, 11.0)]
    assert outcome.members.tolist() == [0]
    assert outcome.disagreement == 0.0


def test_push_by_hand() -> None:
    pair = PeerGraph.from_links(clients=2, links=np.array([[0, 1]]), distance_km=np.array([1.0]))
    for forwarding, agreed in (("push", 3.0), ("push-pull", 3.0)):
        rules = GossipRules(forwarding=forwarding, interval_s=0.75)  # type: ignore[arg-type]
        w = world(pair, per_round=1, belief=BeliefRules(exchanges=2), gossip=rules, record=True)
        outcome = w.run(1, np.array([0.5, 0.4]))
        assert outcome.agreed_s == agreed
        assert [row[3:] for row in w.rows("gossip")] == [(2.0, 3.0), (2.0, 3.0)]
        # Of the second repetition, at 2.75, both are under way at 3, as are the answers to the first.
        assert sorted(m.sent_s for m in w.links.flying.values()) == [2.75, 2.75] + ([3.0, 3.0] if forwarding != "push" else [])


def test_bytes_over_bandwidth_and_resending_by_hand() -> None:
    pair = PeerGraph.from_links(clients=2, links=np.array([[0, 1]]), distance_km=np.array([0.5]))
    rules = BeliefRules(exchanges=1, message_bytes=100)
    w = world(
        pair,
        per_round=1,
        belief=rules,
        start=StartRule(deadline_s=20.0),
        channel=Bernoulli(success=0.0),
        bandwidth_bytes_per_s=np.array([400.0, 200.0]),
        max_resends=2,
        resend_after_s=0.25,
        record=True,
    )
    outcome = w.run(1, np.array([0.5, 0.4]))
    # 0 -> 1: 0.5 s + 100 / 400 = 0.75 s, then a pause of 0.25 s; three sendings. 1 -> 0: 1 s and 0.25 s.
    belief = [row for row in w.recorder.messages if row.protocol == "belief"]
    assert [(r.sent_s, r.end_s) for r in belief if r.source == 0] == [(0.0, 0.75), (1.0, 1.75), (2.0, 2.75)]
    assert [(r.sent_s, r.end_s) for r in belief if r.source == 1] == [(0.0, 1.0), (1.25, 2.25), (2.5, 3.5)]
    assert {(r.outcome, r.cause) for r in belief} == {("lost", "channel")}
    assert [r.resend for r in belief if r.source == 0] == [0, 1, 2]
    assert outcome.beliefs == pytest.approx(expit(Ising.fields(np.array([0.5, 0.4]))))
    # Nobody hears of anybody: both believe to be the best, and nobody disagrees but the worse one.
    assert outcome.members.tolist() == [0, 1]
    assert outcome.disagreement == 0.5


def test_a_deadline_cuts_belief_propagation_by_hand() -> None:
    r = opinions_of(4)
    w = world(four(), per_round=1, belief=BeliefRules(exchanges=5), start=StartRule(start="deadline", deadline_s=2.0))
    outcome = w.run(1, r)
    # At 2 client 1 has just finished exchange 1, client 3 too (exchange 2 takes it to 4.5), 0 and 2 none.
    graph, fields = four(), Ising.fields(r)
    one = step(graph, w.belief.couplings, fields, np.zeros(graph.edges))
    heard = np.where(np.isin(graph.target, [1, 3]), one, 0.0)
    assert outcome.beliefs == pytest.approx(beliefs(graph, fields, heard), abs=0)
    assert outcome.duration_s == 2.0
    assert outcome.members.tolist() == [0, 1, 2, 3]
    assert outcome.disagreement == 0.75
    assert math.isnan(outcome.agreed_s)


# Closed forms and events.


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from(["geometric", "grid", "complete", "random"]),
    st.sampled_from([None, 0.05, 0.5, 1.0, 3.0]),
    st.sampled_from([0.0, 0.004]),
)
def test_closed_forms_equal_events_to_the_last_bit(seed: int, kind: str, deadline_s: float | None, work_s: float) -> None:
    rng = np.random.default_rng(seed)
    graph = {
        "geometric": lambda: geometric(18, seed, 0.4),
        "grid": lambda: grid(clients=20),
        "complete": lambda: complete(clients=8, generator=rng),
        "random": lambda: erdos_renyi(clients=15, generator=rng, probability=0.3, allow_disconnected=True),
    }[kind]()
    start = StartRule(start="agreement" if deadline_s is None else "deadline", deadline_s=deadline_s)
    seen = []
    for engine in ("events", "auto"):
        w = world(
            graph,
            per_round=3,
            seed=seed,
            delay=JITTER,
            belief=BeliefRules(work_s=work_s, tolerance=1e-6),
            start=start,
            engine=engine,
            speed_km_per_s=100.0,
            bandwidth_bytes_per_s=1e4,
        )
        found: list[Any] = []
        for slot in (1, 2):
            o = w.run(slot, opinions_of(graph.clients, slot))
            counts = (w.links.sent, w.links.delivered, w.links.in_flight, w.links.sent_bytes)
            flying = sorted((m.edge, m.key, m.sent_s, m.due_s) for m in w.links.flying.values() if m.label == ("gossip", slot))
            found.append((repr(o), counts, flying))
        seen.append(found)
    assert seen[0] == seen[1]


def test_the_closed_form_is_what_auto_uses_and_wave_insists_on() -> None:
    graph = geometric(20, 3, 0.5)
    r = opinions_of(20)
    assert world(graph, per_round=3, engine="wave").run(1, r).disagreement == 0.0
    for change in (
        {"channel": Bernoulli(success=0.9)},
        {"belief": BeliefRules(update="asynchronous")},
        {"gossip": GossipRules(forwarding="push")},
        {"payload": "best"},
        {"record": True},
        {"outages": [Outage(start_s=0.1, end_s=0.2, links=[(int(graph.source[0]), int(graph.target[0]))])]},
        {"start": StartRule(start="deadline", deadline_s=0.1)},
    ):
        with pytest.raises(ValueError, match=r"engine = 'wave'"):
            world(graph, per_round=3, engine="wave", **change).run(1, r)


@pytest.mark.parametrize("best", range(12))
def test_flooding_time_is_the_weighted_eccentricity(best: int) -> None:
    graph = geometric(12, 5, 0.6)
    network = nx.Graph()
    for a, b, length in zip(graph.source.tolist(), graph.target.tolist(), graph.distance_km.tolist(), strict=True):
        network.add_edge(a, b, weight=length)
    index = np.where(np.arange(12) == best, 1.0, 0.5)
    w = world(graph, per_round=1, belief=BeliefRules(exchanges=1))
    outcome = w.run(1, opinions_of(12), index)
    belief_s = float(graph.distance_km.max())
    assert outcome.agreed_s - belief_s == pytest.approx(nx.eccentricity(network, best, weight="weight"), rel=1e-12)


# Values.


def test_synchronous_beliefs_are_those_without_time() -> None:
    graph = geometric(30, 2)
    r = opinions_of(30)
    outcome = world(graph, per_round=4, delay=JITTER, channel=Bernoulli(success=0.7), max_resends=60).run(1, r)
    fields, maths = Ising.fields(r), PeerBelief(graph=graph)
    untimed = settle(graph, maths.couplings, fields)
    assert outcome.beliefs == pytest.approx(beliefs(graph, fields, untimed.messages), abs=0)
    assert outcome.exchanges == untimed.iterations
    assert outcome.converged_s > 0


def test_what_never_arrived_is_missing_from_the_beliefs() -> None:
    graph = geometric(20, 4, 0.5)
    r = opinions_of(20)
    w = world(graph, per_round=4, delay=JITTER, channel=Bernoulli(success=0.6), max_resends=1, record=True)
    outcome = w.run(1, r)
    fields, messages, before = Ising.fields(r), np.zeros(graph.edges), np.zeros(graph.edges)
    place = {(s, t): e for e, (s, t) in enumerate(zip(graph.source.tolist(), graph.target.tolist(), strict=True))}
    arrived = {
        (m.number, place[m.source, m.target]) for m in w.recorder.messages if m.outcome == "delivered" and m.protocol == "belief"
    }
    for exchange in range(1, outcome.exchanges + 1):
        new = step(graph, w.belief.couplings, fields, messages)
        before = messages
        messages = np.array([new[e] if (exchange, e) in arrived else messages[e] for e in range(graph.edges)])
    assert outcome.beliefs == pytest.approx(beliefs(graph, fields, messages), abs=0)
    assert outcome.residual == np.abs(messages - before).max()
    assert len(arrived) < outcome.exchanges * graph.edges
    # Every exchange after the first waited for the outcome of all messages of the one before.
    assert outcome.residual <= 1e-9 or outcome.exchanges == 1000


@pytest.mark.parametrize(("damping", "work_s", "tolerance"), [(0.0, 0.0, 1e-5), (0.0, 0.02, 1e-10), (0.4, 0.02, 1e-10)])
def test_asynchronous_belief_propagation_reaches_the_same_fixed_point(damping: float, work_s: float, tolerance: float) -> None:
    graph = geometric(25, 6, 0.4)
    r = opinions_of(25)
    rules = BeliefRules(update="asynchronous", tolerance=tolerance, damping=damping, work_s=work_s)
    w = world(graph, per_round=3, delay=JITTER, channel=Bernoulli(success=0.7), max_resends=60, belief=rules)
    outcome = w.run(1, r)
    fields = Ising.fields(r)
    exact = settle(graph, w.belief.couplings, fields, tolerance=1e-14)
    # Each message is within tolerance / (1 - damping) of what it should be; the contraction sums such errors over edges.
    bound = graph.edges * tolerance / (1 - damping) / (1 - w.belief.convergence_constant)
    assert np.abs(outcome.beliefs - beliefs(graph, fields, exact.messages)).max() < bound
    assert outcome.converged_s > 0


def test_a_message_that_was_overtaken_is_not_heeded() -> None:
    # Delays of mean 1 s with changes every 10 ms: nearly all messages overtake one another.
    pair = PeerGraph.from_links(clients=2, links=np.array([[0, 1]]), distance_km=np.array([0.0]))
    delay = ShiftedExponential(shift_s=0.0, mean_excess_s=1.0)
    rules = BeliefRules(update="asynchronous", tolerance=1e-12, damping=0.5, work_s=0.01)
    w = world(pair, per_round=1, delay=delay, belief=rules, coupling=0.3, record=True)
    r = np.array([0.9, 0.2])
    outcome = w.run(1, r)
    exact = settle(pair, w.belief.couplings, Ising.fields(r), tolerance=1e-15)
    assert outcome.beliefs == pytest.approx(beliefs(pair, Ising.fields(r), exact.messages), abs=1e-10)
    order = [row.number for row in w.recorder.messages if row.protocol == "belief" and row.source == 0]
    assert order != sorted(order)


def test_the_printed_equations_say_nothing_and_need_one_exchange() -> None:
    r = np.array([0.3, 0.6, 0.1, 0.2])
    maths = PeerBelief(graph=four(), model="opinion")
    w = world(four(), per_round=2)
    w.consensus._belief = maths
    outcome = w.run(1, r)
    assert outcome.exchanges == 1
    assert outcome.beliefs == pytest.approx(r**2 / 0.5)


# Counts.


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
    jammer = Jammer(name="a", law=law, channels=4, draws=Streams(1)["jam"], dwells=Dwells(dwell_s=2.0), budget=budget)
    spectrum: Any = w.links.jammed
    w.consensus.jammers = Jammers(jammers=[jammer], clock=w.clock, spectrum=spectrum, recorder=w.recorder)
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


# Bad input.


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: BeliefRules(max_exchanges=0), r"max_exchanges = 0: must be >= 1"),
        (lambda: BeliefRules(exchanges=0), r"exchanges = 0"),
        (lambda: BeliefRules(exchanges=3, update="asynchronous"), r"exchanges = 3"),
        (lambda: BeliefRules(damping=1.0), r"damping = 1\.0"),
        (lambda: BeliefRules(damping=0.5, update="asynchronous"), r"damping = 0\.5: .* work_s > 0"),
        (lambda: BeliefRules(tolerance=-1.0), r"tolerance = -1\.0"),
        (lambda: BeliefRules(update="lazy"), r"update = 'lazy'"),  # type: ignore[arg-type]
        (lambda: BeliefRules(work_s=-1.0), r"work_s = -1\.0"),
        (lambda: GossipRules(forwarding="shout"), r"forwarding = 'shout'"),  # type: ignore[arg-type]
        (lambda: GossipRules(interval_s=-0.1), r"interval_s = -0\.1"),
        (lambda: GossipRules(max_repetitions=0), r"max_repetitions = 0"),
        (lambda: GossipRules(pair_bytes=-1), r"pair_bytes = -1"),
        (lambda: StartRule(start="deadline"), r"deadline_s = None"),
        (lambda: StartRule(deadline_s=0.0), r"deadline_s = 0\.0"),
        (lambda: StartRule(start="soon"), r"start = 'soon'"),  # type: ignore[arg-type]
        (lambda: Outage(start_s=2.0, end_s=2.0, links=[(0, 1)]), r"end_s = 2\.0"),
        (lambda: Outage(start_s=-1.0, links=[(0, 1)]), r"start_s = -1\.0"),
        (lambda: Outage(start_s=1.0), r"links = \[\]"),
        (lambda: world(four(), per_round=1, outages=[Outage(start_s=0, links=[(0, 3)])]), r"links has \(0, 3\)"),
        (lambda: world(four(), per_round=1, outages=[Outage(start_s=0, groups=[[0], [0]])]), r"groups has 0 twice"),
        (lambda: world(four(), per_round=1, outages=[Outage(start_s=0, groups=[[4]])]), r"groups has 4"),
        (lambda: world(four(), per_round=1, max_resends=-1), r"max_resends = -1"),
        (lambda: world(four(), per_round=1, resend_after_s=-1.0), r"resend_after_s = -1\.0"),
        (lambda: world(four(), per_round=1, speed_km_per_s=0.0), r"speed_km_per_s = 0\.0"),
        (lambda: world(four(), per_round=1, bandwidth_bytes_per_s=0.0), r"bandwidth_bytes_per_s = 0\.0"),
        (lambda: world(four(), per_round=5), r"size = 5"),
        (lambda: world(four(), per_round=1, engine="fast"), r"engine = 'fast'"),
    ],
)
def test_bad_input_is_refused_with_one_message(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=f"^{match}"):
        make()


def test_a_coupling_that_breaks_the_condition_warns_or_with_strict_is_refused() -> None:
    graph = grid(clients=9)
    with pytest.warns(ConvergenceWarning, match=r"coupling = 0\.5"):
        PeerBelief(graph=graph, coupling=0.5)
    with pytest.raises(ValueError, match=r"^coupling = 0\.5"):
        PeerBelief(graph=graph, coupling=0.5, strict=True)


def test_messages_that_multiply_are_bounded_and_warned_of() -> None:
    graph = complete(clients=12, generator=np.random.default_rng(0))
    storm = BeliefRules(update="asynchronous", tolerance=1e-9, max_exchanges=20)
    w = world(graph, per_round=3, delay=JITTER, belief=storm, record=True)
    with pytest.warns(MessageStormWarning, match=r"^work_s = 0\.0: .*max_exchanges = 20 an edge"):
        warn_of_storms(rules=storm, maths=w.belief)
    outcome = w.run(1, opinions_of(12))
    sent = len([row for row in w.recorder.messages if row.protocol == "belief"])
    assert 10 * graph.edges < sent <= 20 * graph.edges
    assert outcome.exchanges == 20
    assert math.isnan(outcome.converged_s)
    assert outcome.residual > 1e-9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for calm in ({"work_s": 0.01}, {"tolerance": 0.01}, {"update": "synchronous"}):
            warn_of_storms(rules=replace(storm, **calm), maths=w.belief)


# Randomness and state.


def test_draws_are_addressed_one_more_client_changes_nobody_elses() -> None:
    small = PeerGraph.from_links(clients=3, links=np.array([[0, 1], [1, 2]]), distance_km=np.zeros(2))
    large = PeerGraph.from_links(clients=4, links=np.array([[0, 1], [1, 2], [2, 3], [0, 3]]), distance_km=np.zeros(4))
    seen = []
    for graph in (small, large):
        w = world(graph, per_round=1, delay=JITTER, belief=BeliefRules(exchanges=1), record=True)
        w.run(7, opinions_of(graph.clients))
        seen.append({row[1:3]: row[4] for row in w.rows("belief")})
    assert seen[0].items() <= seen[1].items()


def test_same_seed_same_messages_other_seed_others() -> None:
    graph = geometric(15, 3, 0.5)
    runs = []
    for seed in (1, 1, 2):
        w = world(graph, per_round=3, seed=seed, delay=JITTER, channel=Bernoulli(success=0.8), max_resends=2, record=True)
        w.run(1, opinions_of(15))
        runs.append(w.recorder.messages)
    assert runs[0] == runs[1] != runs[2]


def test_memory_of_draws_may_be_forgotten_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = geometric(15, 3, 0.5)
    seen = []
    for cached in (1 << 21, 1):
        monkeypatch.setattr("netsim.peers.draws._CACHED_BYTES", cached)
        w = world(graph, per_round=3, delay=JITTER, channel=Bernoulli(success=0.8), max_resends=2, record=True)
        w.run(1, opinions_of(15))
        seen.append(w.recorder.messages)
    assert seen[0] == seen[1]


def test_state_between_two_consensus_phases_restores_messages_in_flight() -> None:
    graph = geometric(20, 3, 0.4)
    rules: Any = {"delay": JITTER, "channel": Bernoulli(success=0.8), "max_resends": 2, "record": True, "per_round": 3}
    whole = world(graph, **rules)
    whole.run(1, opinions_of(20, 1))
    state, now = whole.consensus.state_dict(), whole.clock.now
    assert len(state["links"]["flying"]) > 3
    half = world(graph, **rules)
    half.clock.start_at(now)
    half.consensus.load_state_dict(state, 1)
    done = len(whole.recorder.messages)
    assert repr(whole.run(2, opinions_of(20, 2))) == repr(half.run(2, opinions_of(20, 2)))
    assert whole.recorder.messages[done:] == half.recorder.messages
    assert (whole.links.sent, whole.links.lost) == (half.links.sent, half.links.lost)


def test_the_end_of_a_run_records_what_is_in_flight() -> None:
    w = world(four(), per_round=1, record=True)
    w.run(1, opinions_of(4), np.array([0.9, 0.1, 0.2, 0.3]))
    ended = len(w.recorder.messages)
    w.consensus.record_unfinished()
    assert [row.outcome for row in w.recorder.messages[ended:]] == ["in_flight"] * w.links.in_flight
    assert w.links.in_flight > 0


def test_one_message_ends_the_wait_of_its_receiver_alone() -> None:
    # A link of no length: client 2 and 3 are through with exchange 1 long before 0 and 1, and go on as far as they may.
    graph = PeerGraph.from_links(clients=4, links=np.array([[0, 1], [1, 2], [2, 3]]), distance_km=np.array([8.0, 1.0, 0.0]))
    w = world(graph, per_round=1, belief=BeliefRules(exchanges=3), record=True)
    w.run(1, opinions_of(4))
    sent = {(number, source): time for number, source, _, time, _ in w.rows("belief")}
    assert sent == {
        **{(1, c): 0.0 for c in range(4)},
        (2, 0): 8.0,
        (2, 1): 8.0,
        (2, 2): 1.0,
        (2, 3): 0.0,
        (3, 0): 16.0,
        (3, 1): 16.0,
        (3, 2): 9.0,
        (3, 3): 1.0,
    }

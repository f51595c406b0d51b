"""The consensus phase on the clock: times by hand, closed forms against events, draws, state, bad input."""

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
from models.laws.delays import Constant
from models.peers.belief import ConvergenceWarning, Ising, beliefs, step
from models.peers.graph import PeerGraph
from models.peers.mathematics import PeerBelief
from models.peers.topologies import complete, erdos_renyi, grid
from netsim.network.transport.link_outages import Outage
from netsim.peers.belief.exchange import BeliefRules, MessageStormWarning, warn_of_storms
from netsim.peers.consensus import StartRule
from netsim.peers.gossip.exchange import GossipRules
from tests.helpers.peer_opinions import JITTER, geometric, opinions_of
from tests.helpers.peer_world import four, world

TWO = BeliefRules(exchanges=2)


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
    flying = sorted((m.key, m.sent_s, m.due_s) for m in w.links.under_way() if m.key == 0)
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
        assert sorted(m.sent_s for m in w.links.under_way()) == [2.75, 2.75] + ([3.0, 3.0] if forwarding != "push" else [])


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


@settings(max_examples=25)
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
            flying = sorted((m.edge, m.key, m.sent_s, m.due_s) for m in w.links.under_way() if m.label == ("gossip", slot))
            found.append((repr(o), counts, flying))
        seen.append(found)
    assert seen[0] == seen[1]


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from(["geometric", "grid", "complete"]), st.booleans(), st.sampled_from([None, 3.0]))
def test_closed_forms_equal_events_where_messages_arrive_together(
    seed: int, kind: str, all_alike: bool, deadline_s: float | None
) -> None:
    # Messages take whole seconds, by their sender, or none: many bring the same at one instant, and who is not told it again
    # is who told it first.
    rng = np.random.default_rng(seed)
    graph = {
        "geometric": lambda: geometric(14, seed, 0.5),
        "grid": lambda: grid(clients=16),
        "complete": lambda: complete(clients=7, generator=rng),
    }[kind]()
    takes_s = rng.integers(0, 3, 1 if all_alike else graph.clients).astype(float)
    start = StartRule(start="agreement" if deadline_s is None else "deadline", deadline_s=deadline_s)
    seen = []
    for engine in ("events", "auto"):
        delay = Constant(value_s=np.broadcast_to(takes_s, graph.clients))
        rules: dict[str, Any] = {"belief": BeliefRules(exchanges=1), "start": start, "engine": engine}
        w = world(graph, per_round=2, seed=seed, delay=delay, speed_km_per_s=math.inf, **rules)
        w.links.count_bytes()
        outcome = w.run(1, opinions_of(graph.clients, seed))
        flying = sorted((m.edge, m.key, m.sent_s, m.due_s) for m in w.links.under_way())
        seen.append((repr(outcome), w.links.sent, w.links.delivered, flying, w.links.bytes_over.tolist()))
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


@pytest.mark.parametrize(
    "never", [{"belief": BeliefRules(update="asynchronous")}, {"gossip": GossipRules(forwarding="push")}, {"payload": "best"}]
)
def test_where_no_slot_has_a_closed_form_it_is_refused_before_the_first(never: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"engine = 'wave'"):
        world(geometric(20, 3, 0.5), per_round=3, engine="wave", **never)


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
        monkeypatch.setattr("netsim.network.transport.message_draws._CACHED_BYTES", cached)
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
    w.links.record_unfinished()
    assert [row.outcome for row in w.recorder.messages[ended:]] == ["in_flight"] * w.links.in_flight
    assert w.links.in_flight > 0

"""Beliefs that travel over links: those without time, those of messages that never arrived, and asynchronous ones."""

from __future__ import annotations

import numpy as np
import pytest

from models.laws.channels import Bernoulli
from models.laws.delays import ShiftedExponential
from models.peers.belief import Ising, beliefs, settle, step
from models.peers.graph import PeerGraph
from models.peers.mathematics import PeerBelief
from netsim.peers.belief.exchange import BeliefRules
from tests.helpers.peer_opinions import JITTER, geometric, opinions_of
from tests.helpers.peer_world import four, world

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

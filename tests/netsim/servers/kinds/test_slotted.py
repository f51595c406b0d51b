"""FL&FA and FL&DA servers: slots by hand, the untimed algorithm round for round, members that come and go, lost opinions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from models.laws.availability.presence import Always, Markov
from models.laws.changes import Unchanging
from models.laws.channels import Bernoulli
from models.laws.delays import Constant
from models.peers.belief import Ising, Opinion, beliefs, settle
from models.peers.gossip import AllPairs, BestPairs, believers, compute_ranks, spread
from models.peers.graph import PeerGraph
from models.peers.mathematics import PeerBelief
from models.peers.synthetic_opinions import SyntheticOpinions
from models.policies.slotted.bp_index import BpIndex
from models.policies.slotted.fixed_set import FixedSet
from models.policies.slotted.quick_init_ucb import QuickInitUcb
from netsim.core.streams import Streams
from netsim.peers.belief.exchange import BeliefRules
from netsim.peers.gossip.exchange import GossipRules
from netsim.servers.rounds.close import WaitRule
from tests.helpers.slot_world import WORTH, K, M, Run, Spy, still

# By hand.


def test_a_slot_of_fl_fa_by_hand() -> None:
    run = Run(
        kind="fl-fa",
        slots=2,
        rounds_per_slot=3,
        policy=FixedSet(clients=K, per_round=M, members=[9, 10, 11]),
        compute=still(2.0),
        upload=still(0.5),
        test=Unchanging(Constant(value_s=np.linspace(1.0, 2.0, K))),
        uplink={"delay": Constant(value_s=0.25)},
        learner={"worth": np.full(K, 0.5), "noise": 0.0, "own": 0.2},
    ).play()
    first, second = run.recorder.rounds
    # Three rounds of 2.5 s, the last test after 2 s, its opinion 0.25 s later.
    assert (first.start_s, first.end_s, second.start_s, second.end_s) == (0.0, 9.75, 9.75, 19.5)
    assert (first.selected, first.delivered, first.members) == (9, 9, 3)
    assert (first.bytes_down, first.bytes_up) == (900, 900)
    assert first.opinion_s == 2.25
    assert (first.consensus_s, first.opinions_missing, first.messages) == (0.0, 0, None)
    assert first.opinion == pytest.approx(0.5)
    assert first.genie_reward == pytest.approx(first.reward)
    assert [row.round for row in run.recorder.updates] == [r for r in range(1, 7) for _ in range(3)]
    assert first.version == 3


def test_a_slot_of_fl_da_by_hand() -> None:
    # A ring of 12 with links of 1 s: two exchanges of 1 s each; agreement when the best index has gone half way round, 6 s.
    ring = PeerGraph.from_links(clients=K, links=np.array([[i, (i + 1) % K] for i in range(K)]), distance_km=np.full(K, 1.0))
    run = Run(
        slots=2,
        rounds_per_slot=2,
        graph=ring,
        links={"speed_km_per_s": 1.0},
        belief=BeliefRules(exchanges=2, tolerance=1.0),
        compute=still(4.0),
        test=still(0.5),
    ).play()
    first, second = run.recorder.rounds
    # Slot 1 begins with a test of the first model: 0.5 + 2 + 6 + 2 * 4 + 0.5.
    assert (first.start_s, first.end_s, second.end_s) == (0.0, 17.0, 33.5)
    assert (first.converged_s, first.agreed_s, first.consensus_s) == (2.0, 8.0, 8.0)
    assert (first.exchanges, first.disagreement, first.members) == (2, 0.0, M)
    # Beliefs: 2 * 24 messages. Each of 12 items has crossed 2 links at every step of 1 s, at 0..5 s, and meets itself at 6 s:
    # the last client has it from both sides and tells one of them.
    assert first.messages == 48 + 12 * (2 * 6 + 1)
    assert first.message_bytes == 48 * 24 + 12 * 13 * 28
    assert first.messages_lost == first.messages_resent == 0
    # What was sent at 6 s has arrived long before the slot ends.
    assert first.messages_in_flight == 0
    assert first.messages_delivered == first.messages


# The untimed algorithm.


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("engine", ["auto", "events"])
@pytest.mark.parametrize("forwarding", ["flooding", "push", "push-pull"])
@pytest.mark.parametrize("payload", ["all", "best"])
@pytest.mark.parametrize(
    ("model", "update", "damping", "ties"),
    [
        pytest.param("ising", "synchronous", 0.0, "random", marks=pytest.mark.slow),
        pytest.param("ising", "synchronous", 0.3, "first", marks=pytest.mark.slow),
        ("ising", "asynchronous", 0.0, "random"),
        ("opinion", "synchronous", 0.0, "first"),
    ],
)
def test_with_zero_latency_and_no_loss_fl_da_is_the_untimed_algorithm(
    engine: str, forwarding: Any, payload: Any, model: Any, update: Any, damping: float, ties: Any
) -> None:
    slots = 6
    tolerance = 1e-7 if update == "synchronous" else 1e-4
    rules = BeliefRules(update=update, damping=damping, tolerance=tolerance)
    spreading = GossipRules(forwarding=forwarding, interval_s=0.0)
    run = Run(slots=slots, engine=engine, gossip=spreading, belief=rules, payload=payload, model=model, ties=ties, seed=3).play()

    streams = Streams(3)
    learner = SyntheticOpinions(clients=K, per_round=M, draws=streams["opinions"], worth=WORTH)
    policy, graph, maths = BpIndex(clients=K, per_round=M, mu=0.1), run.graph, PeerBelief(graph=run.graph)
    contacts = streams["gossip.contacts"]
    kept: Any = AllPairs() if payload == "all" else BestPairs(size=M)
    # Where updates come as they come, messages end within the tolerance of the fixed point, summed up by the contraction.
    near = 0.0 if update == "synchronous" else graph.edges * tolerance / (1 - maths.convergence_constant)
    opinions = learner.opinions(0)
    played = []
    for slot in range(1, slots + 1):
        fields = Ising.fields(opinions)
        settled = settle(graph, maths.couplings, fields, damping=damping, tolerance=tolerance)
        belief = beliefs(graph, fields, settled.messages) if model == "ising" else Opinion.beliefs(opinions)
        outcome = run.outcomes[slot - 1]
        assert np.abs(outcome.beliefs - belief).max() <= near
        index = policy.index(slot, belief)
        assert np.abs(outcome.index - index).max() <= near
        priority = streams["gossip.ties"].uniforms(slot, K) if ties == "random" else None
        ranks = compute_ranks(index, priority)
        heard = spread(
            graph, kept, ranks, size=M, forwarding=forwarding, uniforms=lambda k, at=slot: contacts.uniforms(at << 24 | k, K)
        )
        members = believers(kept, heard.held, ranks, M)
        assert members.tolist() == policy.top(index, priority).tolist()
        learner._sum, learner._count = float(learner.worth[members].sum()) * 2, 2 * M
        opinions = learner.opinions(slot)
        policy.observe_opinions(slot, members, opinions)
        played.append(members.tolist())
        assert run.recorder.rounds[slot - 1].reward == pytest.approx(opinions.mean(), abs=1e-12)
    assert [outcome.members.tolist() for outcome in run.outcomes] == played
    assert len({tuple(members) for members in played}) > 1
    assert run.clock.now == 0.0
    assert all(row.consensus_s == 0.0 and row.disagreement == 0.0 for row in run.recorder.rounds)


def test_fl_fa_with_nothing_lost_is_the_untimed_policy() -> None:
    slots = 80
    run = Run(kind="fl-fa", slots=slots, rounds_per_slot=1, seed=5).play()
    streams = Streams(5)
    learner = SyntheticOpinions(clients=K, per_round=M, draws=streams["opinions"], worth=WORTH)
    policy = QuickInitUcb(clients=K, per_round=M)

    class View:
        def __init__(self, slot: int) -> None:
            self.round, self.rng = slot, streams["policy"].generator(slot)

    chosen: dict[int, list[int]] = {}
    for row in run.recorder.updates:
        chosen.setdefault(row.round, []).append(row.client)
    for slot in range(1, slots + 1):
        members = policy.select(View(slot))
        assert members.tolist() == sorted(chosen[slot])
        learner._sum, learner._count = float(learner.worth[members].sum()), M
        policy.observe_opinions(slot, members, learner.opinions(slot))


# theta, opinions, who is there.


def test_theta_is_the_share_of_uploads_that_count() -> None:
    run = Run(kind="fl-fa", slots=200, rounds_per_slot=5, theta=Bernoulli(success=0.75)).play()
    delivered = sum(row.delivered for row in run.recorder.rounds)
    # 3,000 uploads: five standard deviations are 0.04.
    assert delivered / 3000 == pytest.approx(0.75, abs=5 * math.sqrt(0.75 * 0.25 / 3000))
    assert all(row.delivered + row.lost == row.selected == 15 for row in run.recorder.rounds)


def test_a_round_with_a_deadline_cuts_slow_members_off() -> None:
    slow = np.where(np.arange(K) < 6, 1.0, 3.0)
    policy = FixedSet(clients=K, per_round=M, members=[0, 1, 11])
    late = Run(
        kind="fl-fa",
        slots=1,
        policy=policy,
        compute=Unchanging(Constant(value_s=slow)),
        wait=WaitRule(deadline_s=2.0),
        whole=False,
    )
    row = late.play().recorder.rounds[0]
    # Round 1 ends at 2 s without client 11, which is busy until 3 s, and so has no part in round 2.
    assert (row.selected, row.delivered, row.late, row.end_s) == (5, 4, 1, 3.0)
    patient = Run(kind="fl-fa", slots=1, policy=policy, compute=Unchanging(Constant(value_s=slow)), wait=WaitRule(deadline_s=2.0))
    row = patient.play().recorder.rounds[0]
    # Waiting for all, round 2 begins at 3 s and ends at 5.
    assert (row.selected, row.delivered, row.late, row.end_s) == (6, 4, 1, 5.0)


def test_members_that_never_come_end_the_run() -> None:
    run = Run(kind="fl-fa", slots=1, policy=FixedSet(clients=K, per_round=M, members=[0, 1, 2]), availability=Gone())
    run.play()
    assert run.simulation.ended == "nobody left"


def test_members_that_are_away_are_waited_for() -> None:
    availability = Markov(clients=K, mean_on_s=5.0, mean_off_s=5.0)
    run = Run(kind="fl-fa", slots=40, policy=Spy(), availability=availability, compute=still(0.5)).play()
    assert all(row.selected == 6 for row in run.recorder.rounds)
    # Twice half a second of training a slot, and half of the time somebody is away.
    assert run.clock.now > 2 * 40
    assert sum(row.aborted for row in run.recorder.rounds) > 0


class Gone(Always):
    """Nobody is there, and nobody will come."""

    def __init__(self) -> None:
        super().__init__(clients=K)
        self.on = np.zeros(K, np.bool_)


def test_a_lost_opinion_leaves_the_last_one_in_its_place() -> None:
    spy = Spy()
    loss = {"channel": Bernoulli(success=0.5), "delay": Constant(value_s=1.0)}
    run = Run(kind="fl-fa", slots=30, policy=spy, uplink=loss, learner={"noise": 0.05}).play()
    told = [row.opinions_missing for row in run.recorder.rounds]
    streams = Streams(1)
    channel = streams["opinion.loss"]
    learner = SyntheticOpinions(clients=K, per_round=M, draws=Streams(1)["opinions"], worth=WORTH, noise=0.05)
    last = np.full(K, np.nan)
    for slot in range(1, 31):
        learner._sum, learner._count = float(learner.worth[:3].mean()), 1
        now = learner.opinions(slot)
        arrived = channel.uniforms(slot, K) < 0.5
        last = np.where(arrived, now, last)
        expected = np.where(np.isnan(last), np.nanmean(last), last)
        assert spy.heard[slot - 1] == pytest.approx(expected, abs=1e-12)
        assert told[slot - 1] == K - arrived.sum()
    assert 100 < sum(value or 0 for value in told) < 260


def test_opinions_are_sent_again_up_to_the_limit_and_waited_for_up_to_a_time() -> None:
    never: dict[str, Any] = {"channel": Bernoulli(success=0.0), "delay": Constant(value_s=1.0)}
    for extra, end_s in (({"max_resends": 3, "resend_after_s": 0.5}, 1 + 3 * 1.5), ({"max_resends": 3, "wait_s": 1.25}, 1.25)):
        run = Run(kind="fl-fa", slots=1, policy=Spy(), uplink=never | extra).play()
        row = run.recorder.rounds[0]
        assert (row.end_s, row.opinions_missing) == (end_s, K)
        assert run.policy.heard[0].tolist() == [0.5] * K

"""Clients that are cut off from everybody: messages and opinions are lost, named, and told again when they are back."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from models.laws.availability.presence import Markov
from models.laws.channels import Bernoulli, Perfect
from models.laws.delays import Constant, ShiftedExponential
from models.peers.belief import Ising, beliefs, settle
from models.peers.graph import PeerGraph
from models.peers.topologies import complete, random_geometric
from netsim.core.intervals import Intervals
from netsim.core.streams import Streams
from netsim.network.outages import ClientOutage, ClientOutages, CutOffs, IntervalInRounds, IntervalInSeconds, MarkovInSeconds
from netsim.network.transport.link_outages import Absences, AllCuts, CutOff, Outage, Outages, ScriptedCuts, link_between
from netsim.peers.belief.exchange import BeliefRules
from netsim.peers.consensus import StartRule
from netsim.peers.gossip.exchange import GossipRules
from netsim.servers.kinds.opinions import OpinionUplink
from tests.helpers.peer_world import collected, four, opinion_uplink, world

JITTER = ShiftedExponential(shift_s=0.01, mean_excess_s=0.02)


def opinions_of(clients: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).random(clients)


def mast(clients: int, members: list[int] | None, start_s: float, end_s: float = math.inf) -> ClientOutages:
    when = IntervalInSeconds(start_s=start_s, end_s=end_s)
    return ClientOutages([ClientOutage(name="mast", when=when, clients=clients, members=members)])  # type: ignore[arg-type]


def drawn(clients: int, members: list[int], up_s: float, down_s: float) -> ClientOutages:
    presence = Markov(clients=1, mean_on_s=up_s, mean_off_s=down_s)
    when = MarkovInSeconds(presence=presence, draws=Streams(7)["outage.mast"])
    return ClientOutages([ClientOutage(name="mast", when=when, clients=clients, members=np.array(members))])


def test_messages_of_a_client_that_is_cut_off_by_hand() -> None:
    # Client 2 is cut off over [1, 3). Links take 1 s (0-1), 2 s (1-2), 0.5 s (2-3) and 4 s (0-2).
    w = world(four(), per_round=1, belief=BeliefRules(exchanges=1), record=True, client_outages=mast(4, [2], 1.0, 3.0))
    w.run(1, opinions_of(4))
    told = {(row.source, row.target): row.cause for row in w.recorder.messages if row.protocol == "belief"}
    assert told == {
        (0, 1): None,
        (1, 0): None,
        (2, 3): None,  # over by 0.5
        (3, 2): None,
        (0, 2): "mast",
        (2, 0): "mast",
        (1, 2): "mast",
        (2, 1): "mast",
    }
    assert (w.links.delivered, w.links.lost) == (
        sum(row.outcome == "delivered" for row in w.recorder.messages),
        sum(row.outcome == "lost" for row in w.recorder.messages),
    )


@pytest.mark.parametrize("forwarding", ["flooding", "push", "push-pull"])
def test_exactly_what_meets_an_outage_is_lost_and_causes_are_told_in_order(forwarding: Any) -> None:
    graph = random_geometric(clients=14, generator=np.random.default_rng(1), radius_km=0.5)
    outages = drawn(14, [1, 5, 8], 0.2, 0.1)
    cut = [Outage(start_s=0.05, end_s=0.4, groups=[[0, 1, 2, 3]])]
    w = world(
        graph,
        per_round=4,
        delay=JITTER,
        channel=Bernoulli(success=0.9),
        max_resends=2,
        gossip=GossipRules(forwarding=forwarding, interval_s=0.02),
        outages=cut,
        record=True,
        client_outages=outages,
    )
    w.run(1, opinions_of(14))
    w.clock.run(until=w.clock.now + 1)
    (outage,) = outages
    causes = set()
    for row in w.recorder.messages:
        half = (row.source < 4) != (row.target < 4)
        met = [row.sent_s < end and row.end_s > start for start, end in outage.when.intervals]
        off = any(met) and not {row.source, row.target}.isdisjoint({1, 5, 8})
        expected = "cut" if half and row.sent_s < 0.4 and row.end_s > 0.05 else "mast" if off else row.cause
        assert row.cause == expected
        assert row.cause in (None, "channel") or row.outcome == "lost"
        causes.add(row.cause)
    assert causes == {None, "cut", "mast", "channel"}


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("deadline_s", [None, 0.5])
@pytest.mark.parametrize("seed", range(6))
def test_closed_forms_equal_events_between_outages(seed: int, deadline_s: float | None) -> None:
    rng = np.random.default_rng(seed)
    graph = random_geometric(clients=12, generator=rng, radius_km=0.5)
    found = []
    for engine in ("events", "auto"):
        w = world(
            graph,
            per_round=3,
            delay=JITTER,
            engine=engine,
            start=StartRule(deadline_s=deadline_s),
            client_outages=drawn(12, [0, 4], 1.0, 0.3),
            belief=BeliefRules(exchanges=3),
        )
        outcomes = [w.run(slot, opinions_of(12, seed)) for slot in range(1, 9)]
        w.clock.run(until=w.clock.now + 1)
        found.append(([repr(outcome) for outcome in outcomes], w.links.sent, w.links.delivered, w.links.lost))
    assert found[0] == found[1]
    assert found[0][3] > 0


def test_the_closed_form_is_refused_while_somebody_is_cut_off_and_holds_before_and_after() -> None:
    graph = complete(clients=5, generator=np.random.default_rng(0))
    for start_s, end_s, holds in ((0.0, 1.0, False), (900.0, 901.0, True)):
        w = world(graph, per_round=2, engine="wave", delay=Constant(value_s=0.1), client_outages=mast(5, [1], start_s, end_s))
        if holds:
            assert w.run(1, opinions_of(5)).disagreement == 0.0
        else:
            with pytest.raises(ValueError, match=r"engine = 'wave'"):
                w.run(1, opinions_of(5))
    # Nobody whom it cuts off has a link: nothing is disturbed.
    lonely = PeerGraph.from_links(
        clients=3, links=np.array([[0, 1]]), distance_km=np.array([1.0]), allow_disconnected=True
    )
    rule = StartRule(start="deadline", deadline_s=4.0)
    w = world(lonely, per_round=3, engine="wave", client_outages=mast(3, [2], 0.0), start=rule)
    assert w.run(1, opinions_of(3)).duration_s == 4.0


def test_a_client_that_is_back_is_told_again() -> None:
    pair = PeerGraph.from_links(clients=2, links=np.array([[0, 1]]), distance_km=np.array([1.0]))
    r = np.array([0.9, 0.3])
    rules = BeliefRules(update="asynchronous")
    w = world(pair, per_round=1, belief=rules, client_outages=mast(2, [1], 0.0, 4.0))
    outcome = w.run(1, r)
    exact = settle(pair, w.belief.couplings, Ising.fields(r))
    assert outcome.beliefs == pytest.approx(beliefs(pair, Ising.fields(r), exact.messages), abs=1e-8)
    assert outcome.converged_s == 5.0
    # By rounds nobody knows when it is over, so nobody waits: of what the other says nothing is heard.
    outage = ClientOutage(name="mast", when=IntervalInRounds(start=1), clients=2, members=np.array([1]))
    outage.when.open_round(1, 0.0)
    outcome = world(pair, per_round=1, belief=rules, client_outages=ClientOutages([outage])).run(1, r)
    assert math.isnan(outcome.converged_s)
    assert outcome.duration_s == 2.0


def test_nobody_waits_for_the_return_of_a_link_over_which_nothing_is_unheard() -> None:
    # Messages over 2-3 are lost to the channel; the outage is of client 0, whose messages have all arrived.
    graph = PeerGraph.from_links(
        clients=4, links=np.array([[0, 1], [2, 3]]), distance_km=np.array([1.0, 1.0]), allow_disconnected=True
    )

    class Over23(Perfect):
        memoryless = True

        def good(self, u: Any, entities: Any) -> Any:
            return entities < 2

        def success_probability(self, entities: Any) -> Any:
            return np.where(entities < 2, 1.0, 0.0)

    w = world(
        graph,
        per_round=1,
        belief=BeliefRules(update="asynchronous", max_exchanges=4),
        channel=Over23(),
        client_outages=drawn(4, [0], 500.0, 1.0),
    )
    outcome = w.run(1, opinions_of(4))
    assert math.isnan(outcome.converged_s)
    assert outcome.duration_s < 20.0


@pytest.mark.parametrize("payload", ["all", "best"])
def test_flooding_agrees_after_the_return(payload: Any) -> None:
    index = np.array([0.9, 0.1, 0.2, 0.3])
    w = world(four(), per_round=1, belief=BeliefRules(exchanges=1), payload=payload, client_outages=mast(4, [0], 0.0, 30.0))
    outcome = w.run(1, opinions_of(4), index)
    # Client 0, the best, is back at 30 and tells 1 at 31 (and 2 at 34); 2 hears it of 1 at 33, 3 at 33.5.
    assert outcome.agreed_s == 33.5
    # For good: each side ends when it has nothing left to say.
    outcome = world(four(), per_round=1, belief=BeliefRules(exchanges=1), client_outages=mast(4, [0], 0.0)).run(
        1, opinions_of(4), index
    )
    assert math.isnan(outcome.agreed_s)
    assert outcome.members.tolist() == [0, 3]


@pytest.mark.parametrize("belief", [BeliefRules(exchanges=1), BeliefRules(update="asynchronous", max_exchanges=4)])
@pytest.mark.parametrize("link", [(2, 3), (0, 2)])
def test_nobody_waits_for_links_that_return_again_and_again_and_help_nobody(link: tuple[int, int], belief: BeliefRules) -> None:
    # Client 3 is cut off for good. Of every 3 s a link is up for one: that to client 3, which stays cut off, or that between 0
    # and 2, too short for a message of 4 s: what each knows the other has heard of 1 long ago. Resends go on beyond 3 s.
    again = [Outage(start_s=3.0 * k + 1.0, end_s=3.0 * k + 3.0, links=[link]) for k in range(300)]
    w = world(
        four(), per_round=1, belief=belief, outages=again, client_outages=mast(4, [3], 0.0), max_resends=5, resend_after_s=1.0
    )
    outcome = w.run(1, opinions_of(4), np.array([0.9, 0.1, 0.2, 0.3]))
    assert math.isnan(outcome.agreed_s)
    assert outcome.members.tolist() == [0, 3]
    assert outcome.duration_s < 100.0


def test_which_links_are_lost_and_which_return() -> None:
    graph = four()
    links = {pair: link_between(graph, *pair) for pair in ((0, 1), (1, 2), (2, 3), (0, 2))}
    by_round = ClientOutage(name="power", when=IntervalInRounds(start=1), clients=4, members=np.array([3]))
    by_round.when.open_round(1, 0.0)
    by_time = ClientOutage(name="mast", when=IntervalInSeconds(start_s=1.0, end_s=4.0), clients=4, members=np.array([2]))
    clients = CutOffs()
    schedule = Outages(
        graph=graph, outages=[Outage(start_s=2.0, links=[(0, 1)]), Outage(start_s=3.0, end_s=4.0, links=[(0, 2)])]
    )
    scripted = ScriptedCuts()
    links_only = AllCuts([scripted, schedule])
    cuts = AllCuts([links_only, CutOff(graph=graph, clients=ClientOutages([by_round, by_time], cut_offs=clients))])

    def named(found: Iterable[int]) -> list[tuple[int, int]]:
        return [pair for pair, link in links.items() if link in set(found)]

    assert named(cuts.down_indefinitely(1.5)) == [(2, 3)]
    assert named(cuts.down_indefinitely(2.0)) == [(0, 1), (2, 3)]
    assert named(cuts.returning(4.0)) == [(1, 2), (0, 2)]
    scripted.cut([links[0, 2]], 3.5)
    assert named(cuts.down_indefinitely(3.5)) == [(0, 1), (2, 3), (0, 2)]
    assert named(cuts.returning(4.0)) == [(1, 2)]
    assert named(links_only.returning(4.0)) == []
    clients.cut([1], 3.6)
    assert named(cuts.down_indefinitely(3.6)) == [(0, 1), (1, 2), (2, 3), (0, 2)]
    assert named(cuts.returning(4.0)) == []
    scripted.restore([links[0, 2]], 3.7)
    clients.restore([1], 3.8)
    by_round.when.intervals.close(3.9)
    assert named(cuts.down_indefinitely(3.9)) == [(0, 1)]
    assert named(cuts.returning(4.0)) == [(1, 2), (2, 3), (0, 2)]


def test_which_links_are_down_for_ever() -> None:
    # A script's next act is at 9 s; client 2 is away and comes back, client 3 is away for good.
    next_act_s = [9.0]
    clients, scripted = CutOffs(), ScriptedCuts()
    for some in (clients, scripted):
        some.expect(lambda: next_act_s[0])
    schedule = Outages(
        graph=four(), outages=[Outage(start_s=2.0, links=[(0, 1)]), Outage(start_s=2.0, end_s=4.0, links=[(0, 2)])]
    )

    class Away:
        def reachable(self) -> np.ndarray:
            return np.array([True, True, False, False])

        def ever_present(self) -> np.ndarray:
            return np.array([True, True, True, False])

    absences = Absences(graph=four(), presence=Away())
    cuts = AllCuts([scripted, schedule, absences, CutOff(graph=four(), clients=ClientOutages([], cut_offs=clients))])
    assert pairs(absences.down_indefinitely(1.0)) == [(0, 2), (1, 2), (2, 3)]
    assert pairs(cuts.down_for_ever(1.0)) == [(2, 3)]
    assert pairs(cuts.down_for_ever(3.0)) == [(0, 1), (2, 3)]
    scripted.cut([link_between(four(), 0, 2)], 3.0)
    assert pairs(cuts.down_for_ever(3.0)) == [(0, 1), (2, 3)]
    next_act_s[0] = math.inf
    assert pairs(cuts.down_for_ever(3.0)) == [(0, 1), (0, 2), (2, 3)]
    clients.cut([1], 3.0)
    assert pairs(cuts.down_for_ever(3.0)) == [(0, 1), (0, 2), (1, 2), (2, 3)]


def pairs(links: Iterable[int]) -> list[tuple[int, int]]:
    """The clients at the ends of `links` of `four()`."""
    graph = four()
    ends = zip(graph.source.tolist(), graph.target.tolist(), graph.address.tolist(), strict=True)
    return sorted((a, b) for a, b, address in ends if a < b and address >> 1 in links)


def test_what_a_message_in_flight_has_met_is_not_forgotten() -> None:
    outages = mast(4, [2], 4.5, 5.0)
    w = world(four(), per_round=1, belief=BeliefRules(exchanges=1), record=True, client_outages=outages)
    w.run(1, opinions_of(4), np.array([0.9, 0.1, 0.2, 0.3]))
    flying = {(m.sent_s, m.due_s) for m in w.links.under_way() if m.edge in np.flatnonzero(four().source == 0)}
    assert (4.0, 8.0) in flying  # from 0 to 2, over the outage
    outages.forget(w.clock.now)
    w.clock.run(until=60.0)
    (row,) = [row for row in w.recorder.messages if (row.source, row.target, row.sent_s, row.end_s) == (0, 2, 4.0, 8.0)]
    assert row.cause == "mast"
    outages.forget(60.0)
    (outage,) = outages
    assert list(outage.when.intervals) == []


def uplink(outages: ClientOutages | None, **more: Any) -> OpinionUplink:
    still = Constant(value_s=np.array([1.0, 2.0, 0.0]))
    return opinion_uplink(clients=3, delay=still, streams=Streams(1), outages=outages, **more)


def test_opinions_of_clients_that_are_cut_off_are_missing_by_hand() -> None:
    ready = np.array([10.0, 10.5, 11.0])
    # Opinions are under way over [10, 11), [10.5, 12.5), and at 11.
    for outages, arrived in (
        (mast(3, None, 0.0, 10.0), [True, True, True]),
        (mast(3, None, 10.0, 10.5), [False, True, True]),
        (mast(3, None, 11.0, 11.5), [True, False, False]),
        (mast(3, [1], 0.0), [True, False, True]),
    ):
        end_s, heard = collected(uplink(outages), 1, ready, 10.0)
        assert (end_s, heard.tolist()) == (12.5, arrived)
    # Sent again 0.25 s after they would have arrived: at 11.25, and at 12.75 and 15 (client 1).
    end_s, heard = collected(uplink(mast(3, None, 10.2, 13.0), max_resends=2, resend_after_s=0.25), 1, ready, 10.0)
    assert heard.tolist() == [False, True, False]
    assert end_s == 17.0
    end_s, heard = collected(uplink(mast(3, None, 10.2, 11.2), max_resends=2, resend_after_s=0.25), 1, ready, 10.0)
    assert (end_s, heard.tolist()) == (14.75, [True, True, True])


def test_look_ups_are_those_of_the_list_of_intervals() -> None:
    rng = np.random.default_rng(3)
    intervals = Intervals((float(start), float(start + length)) for start, length in rng.integers(0, 40, (9, 2)) / [1, 20])
    intervals.add(60.0)
    starts = rng.integers(-2, 70, 400) / 2.0
    ends = starts + rng.integers(0, 6, 400) / 2.0
    listed = list(intervals)
    each = [intervals.overlap(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    meets = [any(a < max(end, start + 1e-9) and b > start for a, b in listed) for start, end in zip(starts, ends, strict=True)]
    assert each == meets
    assert 20 < sum(each) < 380
    assert not Intervals().overlap(0.0, 1.0)
    for time in starts.tolist():
        assert intervals.next_start(time) == min((start for start, _ in listed if start > time), default=math.inf)
        assert intervals.next_end(time) == min((end for _, end in listed if end > time), default=math.inf)
        assert intervals.ends_at(time) == any(end == time for _, end in listed)


class Deaf(Perfect):
    """Whatever `client` sends is lost."""

    memoryless = True

    def __init__(self, client: int) -> None:
        self._client = client

    def good(self, u: Any, entities: Any) -> Any:
        return entities != self._client

    def success_probability(self, entities: Any) -> Any:
        return np.where(entities != self._client, 1.0, 0.0)


@pytest.mark.parametrize("payload", ["all", "best"])
def test_nobody_waits_for_links_that_return_while_another_that_is_up_loses_all(payload: Any) -> None:
    # Nobody ever hears the best, client 3. The link 0-2 is up for 3 s of every 10 s, too short for its messages of 4 s; what 0, 1
    # and 2 know is the same.
    again = [Outage(start_s=10.0 * k + 3.0, end_s=10.0 * k + 10.0, links=[(0, 2)]) for k in range(300)]
    w = world(four(), per_round=1, belief=BeliefRules(exchanges=1), outages=again, channel=Deaf(3), payload=payload)
    outcome = w.run(1, opinions_of(4), np.array([0.1, 0.2, 0.3, 0.9]))
    assert math.isnan(outcome.agreed_s)
    assert outcome.duration_s < 20.0
    # What they do not know yet they wait for: 1 hears of 2 over 0-1, which is down until 50 s.
    again = [Outage(start_s=0.0, end_s=50.0, links=[(0, 1)]), Outage(start_s=0.0, end_s=20.0, links=[(1, 2)])]
    w = world(four(), per_round=1, belief=BeliefRules(exchanges=1), outages=again, channel=Deaf(1), payload=payload)
    outcome = w.run(1, opinions_of(4), np.array([0.1, 0.2, 0.9, 0.3]))
    assert outcome.agreed_s == 22.0


def test_beliefs_are_said_again_though_others_talk_as_the_link_returns() -> None:
    graph = PeerGraph.from_links(clients=3, links=np.array([[0, 1], [1, 2]]), distance_km=np.array([1.0, 5.0]))
    r = opinions_of(3)
    # At 1.5 s messages over 1-2 are under way, at 0.5 s the first over 0-1, which are lost as they would arrive.
    for end_s, again_s in ((1.5, 1.5), (0.5, 1.0)):
        w = world(
            graph,
            per_round=1,
            belief=BeliefRules(update="asynchronous"),
            outages=[Outage(start_s=0.0, end_s=end_s, links=[(0, 1)])],
            record=True,
        )
        outcome = w.run(1, r)
        exact = settle(graph, w.belief.couplings, Ising.fields(r))
        assert outcome.beliefs == pytest.approx(beliefs(graph, Ising.fields(r), exact.messages), abs=1e-8)
        assert not math.isnan(outcome.converged_s)
        assert (2, 0, 1, again_s, again_s + 1.0) in w.rows("belief")


def test_beliefs_wait_for_no_outage_that_is_yet_to_come() -> None:
    pair = PeerGraph.from_links(clients=2, links=np.array([[0, 1]]), distance_km=np.array([1.0]))
    later = [Outage(start_s=1000.0, end_s=1001.0, links=[(0, 1)])]
    w = world(pair, per_round=1, belief=BeliefRules(update="asynchronous"), outages=later, channel=Deaf(0))
    outcome = w.run(1, opinions_of(2))
    assert math.isnan(outcome.converged_s)
    assert outcome.duration_s == 2.0

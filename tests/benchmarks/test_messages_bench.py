"""Cost of messages between clients: events a second, and the closed form against events; run with `-m "" --benchmark-only -s`.

Times are of the process, not of the clock on the wall: what a core does, whoever else uses the machine.
"""

from __future__ import annotations

import heapq
import resource
from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from models.laws.channels import Bernoulli, Perfect
from models.laws.delays import ShiftedExponential
from models.peers.graph import PeerGraph
from models.peers.mathematics import PeerBelief, PeerGossip
from netsim.core.clock import Clock
from netsim.core.streams import Streams
from netsim.network.transport.message_draws import EdgeDraws
from netsim.peers.belief.exchange import BeliefRules
from netsim.peers.belief.synchronous import SynchronousBelief
from netsim.peers.consensus import ConsensusPhase, ConsensusRules, StartRule
from netsim.peers.gossip.exchange import GossipRules
from tests.helpers.peer_world import links_between

SLOWER_THAN_A_HEAP = 25
"""Where a bare heap does 2.5 million entries a second, the path of messages must do 100,000 a second."""

JITTER = ShiftedExponential(shift_s=0.01, mean_excess_s=0.02)


def ring_of_degree_six(clients: int) -> PeerGraph:
    """Everyone knows the three before and the three after: degree 6, whatever the size."""
    who = np.arange(clients)
    links = np.concatenate([np.stack((who, (who + step) % clients), axis=1) for step in (1, 2, 3)])
    return PeerGraph.from_links(clients=clients, links=links, distance_km=np.full(len(links), 0.1))


class Exchange:
    """Ten synchronous exchanges of belief propagation over one graph."""

    def __init__(self, graph: PeerGraph, *, channel: Any, exchanges: int = 10, **links: Any) -> None:
        self.clock, streams = Clock(), Streams(1)
        wire: dict[str, Any] = {"speed_km_per_s": 3e5, "bandwidth_bytes_per_s": 1e6}
        self.links = links_between(self.clock, graph, streams, delay=JITTER, channel=channel, **wire, **links)
        draws = EdgeDraws(self.links, "belief", streams)
        self.links.open_slot(1, 0.0)
        draws.open_slot(1, 0.0)
        # Values cost the same either way, and are no events: here there is nothing to say.
        maths = PeerBelief(graph=graph, model="opinion")
        self.protocol = SynchronousBelief(
            links=self.links, draws=draws, maths=maths, rules=BeliefRules(exchanges=exchanges), fields=np.zeros(graph.clients)
        )

    def by_events(self) -> float:
        self.protocol.begin()
        self.clock.run_until(self.protocol.over)
        return self.clock.now

    def by_wave(self) -> float:
        return float(self.protocol.times()[-1].max())


def cost_s(prepare: Callable[[], Callable[[], float]], repeats: int) -> tuple[float, float]:
    """Least process time of so many calls, each on a new world, and what the last gave."""
    least, result = float("inf"), 0.0
    for _ in range(repeats):
        call = prepare()
        start = process_time()
        result = call()
        least = min(least, process_time() - start)
    return least, result


def bare_heap(entries: int, under_way: int) -> float:
    """Entries a second of a heap that does nothing else: the earliest out, another one in, `under_way` of them at a time."""
    rng = np.random.default_rng(0)
    queue = [(time, number) for number, time in enumerate(rng.random(under_way).tolist())]
    heapq.heapify(queue)
    steps = rng.random(entries).tolist()
    start = process_time()
    for number, step in enumerate(steps, start=under_way):
        now, _ = heapq.heappop(queue)
        heapq.heappush(queue, (now + step, number))
    return entries / (process_time() - start)


def report(what: str, rate: float, reference: float) -> None:
    print(f"\n{what}, 1,000 clients, degree 6, loss 0.1, 3 resends: {rate:,.0f} messages/s of one core", end="")
    print(f" (a bare heap: {reference:,.0f} entries/s, {reference / rate:.1f} times as many)")


def test_events_with_loss_and_resending_at_1000_clients(benchmark: BenchmarkFixture) -> None:
    graph = ring_of_degree_six(1000)
    lossy: dict[str, Any] = {"channel": Bernoulli(success=0.9), "max_resends": 3, "resend_after_s": 0.005, "exchanges": 20}
    benchmark.pedantic(lambda: Exchange(graph, **lossy).by_events(), rounds=3)
    rates, references = [], []
    for _ in range(3):
        references.append(bare_heap(200_000, graph.edges))
        world = Exchange(graph, **lossy)
        start = process_time()
        world.by_events()
        rates.append(world.links.sent / (process_time() - start))
        assert world.links.resent > 10_000
        assert world.links.sent == world.links.delivered + world.links.lost
    report("belief propagation", max(rates), max(references))
    assert max(rates) * SLOWER_THAN_A_HEAP >= max(references)


@pytest.mark.parametrize("payload", ["all", "best"])
@pytest.mark.parametrize("forwarding", ["flooding", "push", "push-pull"])
def test_gossip_with_loss_and_resending_at_1000_clients(benchmark: BenchmarkFixture, forwarding: Any, payload: Any) -> None:
    graph = ring_of_degree_six(1000)

    def play() -> tuple[float, int]:
        clock, streams = Clock(), Streams(1)
        often: dict[str, Any] = {"max_resends": 3, "resend_after_s": 0.005}
        links = links_between(clock, graph, streams, delay=JITTER, channel=Bernoulli(success=0.9), **often)
        consensus = ConsensusPhase(
            links=links,
            belief=PeerBelief(graph=graph, model="opinion"),
            gossip=PeerGossip(graph=graph, size=5, payload=payload),
            rules=ConsensusRules(
                belief=BeliefRules(exchanges=1),
                gossip=GossipRules(forwarding=forwarding, interval_s=0.02),
                start=StartRule(deadline_s=3.0 if payload == "best" or forwarding != "flooding" else 0.5),
                per_round=5,
            ),
            streams=streams,
        )
        opinions = streams["test"].uniforms(1, 1000)
        start = process_time()
        clock.run_until(clock.process(consensus.run(1, opinions, lambda beliefs: opinions)))
        assert links.sent == links.delivered + links.lost + links.in_flight > 100_000
        assert links.resent > 5_000
        return links.sent / (process_time() - start), links.in_flight

    rates, references = [], []
    for _ in range(3):
        rate, under_way = play()
        rates.append(rate)
        references.append(bare_heap(200_000, max(under_way, graph.edges)))
    benchmark.pedantic(play, rounds=1)
    report(f"{forwarding}, {payload} pairs", max(rates), max(references))
    assert max(rates) * SLOWER_THAN_A_HEAP >= max(references)


def test_closed_form_against_events_at_20000_clients(benchmark: BenchmarkFixture) -> None:
    graph = ring_of_degree_six(20_000)
    benchmark.pedantic(lambda: Exchange(graph, channel=Perfect()).by_wave(), rounds=3)
    wave_s, wave_end = cost_s(lambda: Exchange(graph, channel=Perfect()).by_wave, repeats=5)
    events_s, events_end = cost_s(lambda: Exchange(graph, channel=Perfect()).by_events, repeats=1)
    messages = 10 * graph.edges
    print(f"\n20,000 clients, 10 exchanges, {messages:,} messages: {events_s:.2f} s by events, {wave_s * 1e3:.1f} ms by wave")
    print(f"  the closed form takes 1/{events_s / wave_s:,.0f} of the time")
    assert wave_end == events_end
    assert events_s >= 100 * wave_s


def test_closed_form_at_a_million_clients(benchmark: BenchmarkFixture) -> None:
    graph = ring_of_degree_six(1_000_000)
    world = Exchange(graph, channel=Perfect())
    start = process_time()
    benchmark.pedantic(world.by_wave, rounds=1)
    took_s = process_time() - start
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\n1,000,000 clients, degree 6, 10 exchanges: {took_s:.1f} s; the process has needed {peak_gib:.1f} GiB at most")
    assert took_s <= 10
    assert peak_gib <= 4

"""Cost of Quick-Init UCB, of waves in closed form and of belief propagation, as ratios within one run: `make bench`, or pytest
with `-m "" --benchmark-only -s` on this file."""

from __future__ import annotations

import gc
import heapq
import resource
import subprocess
import sys
import tracemalloc
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from models.peers.belief import Ising, node_messages, step
from models.peers.gossip import AllPairs, BestPairs
from models.peers.graph import FloatArray, PeerGraph
from models.peers.wave import exchange_times, flooding_times
from models.policies.slotted.quick_init_ucb import QuickInitUcb


@dataclass
class View:
    round: int
    rng: np.random.Generator


def regular(clients: int, degree: int, seed: int = 0) -> PeerGraph:
    """Rings through all clients in random orders, `degree` / 2 of them: neighbours are far apart in memory."""
    rng = np.random.default_rng(seed)
    rings = [rng.permutation(clients) for _ in range(degree // 2)]
    pairs = np.concatenate([np.stack((ring, np.roll(ring, 1)), axis=1) for ring in rings])
    keys = np.sort(pairs.min(axis=1) * clients + pairs.max(axis=1))
    keys = keys[np.diff(keys, prepend=-1) > 0]
    links = np.stack((keys // clients, keys % clients), axis=1)
    return PeerGraph.from_links(clients=clients, links=links, distance_km=np.ones(len(links)))


class Slots:
    """Quick-Init UCB, slot after slot, opinions being drawn beforehand."""

    def __init__(self, clients: int, per_round: int, mu: float, credit: str) -> None:
        self.policy = QuickInitUcb(clients=clients, per_round=per_round, mu=mu, credit=credit)  # type: ignore[arg-type]
        self.opinions = np.random.default_rng(0).random((64, clients))
        self.view = View(0, np.random.default_rng(1))

    def play(self, slots: int) -> None:
        for _ in range(slots):
            self.view.round += 1
            arm = self.policy.select(self.view)
            self.policy.observe_opinions(self.view.round, arm, self.opinions[self.view.round % 64])


@pytest.mark.parametrize("credit", ["average", "own"])
@pytest.mark.parametrize("mu", [1.0, 0.02])
def test_quick_init_round(benchmark: BenchmarkFixture, mu: float, credit: str) -> None:
    """A round at C(100, 5) and at C(1000, 10) costs at most 5 times one at C(20, 5)."""
    cost = {}
    for clients, per_round in ((20, 5), (100, 5), (1000, 10)):
        times = []
        for _ in range(3):
            slots = Slots(clients, per_round, mu, credit)
            slots.play(slots.policy.cold_slots + 1)
            start = perf_counter()
            slots.play(2000)
            times.append((perf_counter() - start) / 2000)
        cost[clients] = min(times)
        twice = slots.policy.repeats
        print(
            f"\nmu {mu}, credit {credit}, C({clients}, {per_round}): {cost[clients] * 1e6:.1f} us a round, {twice} repeats",
            end="",
        )
    assert cost[100] <= 5 * cost[20]
    assert cost[1000] <= 5 * cost[20]
    last = Slots(1000, 10, mu, credit)
    last.play(200)
    benchmark.pedantic(lambda: last.play(1), rounds=200)


def test_memory_goes_by_the_arms_played(benchmark: BenchmarkFixture) -> None:
    def bytes_after(clients: int, per_round: int, arms: int) -> int:
        slots = Slots(clients, per_round, 1.0, "average")
        slots.play(slots.policy.cold_slots + 1)
        # A full collection empties the interpreter's stock of freed tuples, which would hide what is allocated.
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        slots.play(arms)
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # All but the best of the first groups, which comes again, were new.
        assert slots.policy.repeats <= 1
        return after - before

    few, many, small = bytes_after(1000, 10, 4000), bytes_after(1000, 10, 16_000), bytes_after(100, 5, 8000)
    print(
        f"\nbytes an arm: {few / 4000:.0f} after 4,000 arms of C(1000, 10), {many / 16_000:.0f} after 16,000, "
        f"{small / 8000:.0f} after 8,000 of C(100, 5)"
    )
    assert many <= 5 * few
    assert many / 16_000 <= 1000
    benchmark.pedantic(lambda: bytes_after(100, 5, 200), rounds=1)


def by_events(graph: PeerGraph, exchanges: int, latency: FloatArray) -> FloatArray:
    """The least that an event loop does for the same exchanges: one heap, one entry a message, nothing recorded."""
    out = [graph.outgoing(np.array([n])).tolist() for n in range(graph.clients)]
    target, delay, degree = graph.target.tolist(), latency.tolist(), graph.degree.tolist()
    times = [0.0] * graph.clients
    done = [0] * graph.clients
    heard = [[0] * graph.clients for _ in range(exchanges + 2)]
    queue = [(delay[e], target[e], 1) for n in range(graph.clients) for e in out[n]]
    heapq.heapify(queue)
    while queue:
        now, n, k = heapq.heappop(queue)
        heard[k][n] += 1
        while done[n] < exchanges and heard[done[n] + 1][n] == degree[n]:
            done[n] += 1
            times[n] = now
            if done[n] < exchanges:
                for e in out[n]:
                    heapq.heappush(queue, (now + delay[e], target[e], done[n] + 1))
    return np.array(times)


def test_wave_at_20_000_nodes(benchmark: BenchmarkFixture) -> None:
    """Degree 6, 10 exchanges: equal to a bare event loop to the last bit, and at least 100 times as fast."""
    graph = regular(20_000, 6)
    latency = np.random.default_rng(1).exponential(0.05, graph.edges)
    start = perf_counter()
    played = by_events(graph, 10, latency)
    events_s = perf_counter() - start
    times = benchmark(lambda: exchange_times(graph, exchanges=10, start_s=0.0, latency_s=latency))
    closed_s = min(_timed(lambda: exchange_times(graph, exchanges=10, start_s=0.0, latency_s=latency)) for _ in range(20))
    messages = 10 * graph.edges
    print(
        f"\n{messages:,} messages: closed form {closed_s * 1e3:.1f} ms, bare event loop {events_s:.2f} s "
        f"({messages / events_s:,.0f} messages/s), {events_s / closed_s:,.0f} times as long"
    )
    assert np.array_equal(times[10], played)
    assert events_s >= 100 * closed_s


def _timed(call: object) -> float:
    start = perf_counter()
    call()  # type: ignore[operator]
    return perf_counter() - start


def million() -> None:
    """Ten exchanges and one flood among a million clients, latencies drawn again for each exchange; prints seconds and memory."""
    start = perf_counter()
    graph = regular(1_000_000, 6)
    built = perf_counter()
    rng = np.random.default_rng(1)
    exchange_times(graph, exchanges=10, start_s=0.0, latency_s=lambda k: rng.random(graph.edges))
    waved = perf_counter()
    flooding_times(graph, origins=np.array([0]), start_s=0.0, latency_s=rng.random(graph.edges))
    flooded = perf_counter()
    fields = Ising.fields(rng.random(graph.clients))
    step(graph, np.full(graph.edges, 0.05), fields, np.zeros(graph.edges))
    stepped = perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(built - start, waved - built, flooded - waved, stepped - flooded, peak)


def test_a_million_nodes(benchmark: BenchmarkFixture) -> None:
    """Ten exchanges within 10 s and 4 GiB, in a process of their own so that its memory is known."""
    code = "from tests.benchmarks.test_analytics_bench import million; million()"
    run = benchmark.pedantic(lambda: subprocess.run([sys.executable, "-c", code], capture_output=True, text=True), rounds=1)
    assert run.returncode == 0, run.stderr
    built, waved, flooded, stepped, peak = map(float, run.stdout.split())
    print(
        f"\na million nodes of degree 6: graph {built:.1f} s, 10 exchanges {waved:.1f} s, one flood {flooded:.1f} s, "
        f"contents of one exchange {stepped:.2f} s, peak {peak:.2f} GiB"
    )
    assert waved <= 10
    assert peak <= 4


def test_work_of_one_message(benchmark: BenchmarkFixture) -> None:
    """What an engine that delivers 100,000 messages a second spends on contents, at 1,000 nodes: well below 10 microseconds."""
    rng = np.random.default_rng(0)
    received, couplings, sent = (rng.random(6).tolist() for _ in range(3))
    update_s = (
        min(_timed(lambda: [node_messages(0.3, received, couplings, sent, 0.1) for _ in range(1000)]) for _ in range(5)) / 1000
    )
    whole, best = AllPairs(), BestPairs(size=5)
    a, b = (sum(1 << int(r) for r in rng.permutation(1000)[:500]) for _ in range(2))
    x, y = (tuple(sorted(rng.permutation(1000)[:5].tolist())) for _ in range(2))

    def merge_all() -> None:
        held, _ = whole.merge(a, b)
        whole.knows_top(held, 5)

    def merge_best() -> None:
        held, _ = best.merge(x, y)
        best.knows_top(held, 5)

    all_s = min(_timed(lambda: [merge_all() for _ in range(1000)]) for _ in range(5)) / 1000
    best_s = min(_timed(lambda: [merge_best() for _ in range(1000)]) for _ in range(5)) / 1000
    benchmark(merge_all)
    print(
        f"\nbelief update of a client with 6 neighbours {update_s * 1e6:.1f} us, merge of all pairs {all_s * 1e6:.2f} us, "
        f"of the best 5 {best_s * 1e6:.2f} us"
    )
    assert all_s < 5e-6
    assert best_s < 5e-6

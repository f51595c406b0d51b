"""Gossip: payloads by hand, nothing counted twice, agreement exactly when everyone knows the true top m."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.peers.gossip import AllPairs, BestPairs, believers, compute_ranks, disagreement, draw_contacts, message_bytes, spread
from models.peers.graph import PeerGraph
from models.peers.topologies import complete, erdos_renyi, grid
from models.peers.wave import flooding_times

RANKS = st.sets(st.integers(0, 30), max_size=12)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def bits(ranks: set[int]) -> int:
    return sum(1 << r for r in ranks)


def path_graph(clients: int) -> PeerGraph:
    links = np.stack((np.arange(clients - 1), np.arange(1, clients)), axis=1)
    return PeerGraph.from_links(clients=clients, links=links, distance_km=np.ones(clients - 1))


def two_pieces() -> PeerGraph:
    links = np.array([[0, 1], [1, 2], [3, 4], [4, 5]])
    return PeerGraph.from_links(clients=6, links=links, distance_km=np.ones(4), allow_disconnected=True)


def test_ranks_by_hand() -> None:
    index = np.array([0.2, 0.9, 0.2, 0.5])
    assert compute_ranks(index).tolist() == [2, 0, 3, 1]
    assert compute_ranks(index, priority=np.array([0.8, 0.1, 0.3, 0.5])).tolist() == [3, 0, 2, 1]
    with pytest.raises(ValueError, match=r"^index = nan of client 1"):
        compute_ranks(np.array([0.0, math.nan]))


def test_all_pairs_by_hand() -> None:
    payload = AllPairs()
    held, new = payload.merge(bits({0, 4}), bits({4, 7}))
    assert held == bits({0, 4, 7})
    assert new == bits({7})
    assert payload.merge(held, bits({0, 7})) == (held, 0)
    assert payload.difference(held, bits({0, 2})) == bits({4, 7})
    assert payload.pairs(held) == 3
    assert payload.top_ranks(held, 2) == (0, 4)
    assert payload.top_ranks(held, 9) == (0, 4, 7)
    assert payload.knows_top(held, 1)
    assert not payload.knows_top(held, 2)
    assert payload.item(5) == bits({5})


def test_best_pairs_by_hand() -> None:
    payload = BestPairs(size=3)
    held, new = payload.merge((1, 5, 9), (0, 5, 12))
    assert held == (0, 1, 5)
    assert new == (0,)
    assert payload.merge(held, (2, 7)) == ((0, 1, 2), (2,))
    assert payload.merge(held, (9,)) == (held, ())
    # Its sender showed 2, 4, 9: it lacks 0 and 5, and 11 would be of no use to it. A message that is not full leaves room.
    assert payload.difference((0, 5, 11), (2, 4, 9)) == (0, 5)
    assert payload.difference((0, 5, 11), (2, 4)) == (0, 5, 11)
    assert payload.knows_top((0, 1, 5), 2)
    assert not payload.knows_top((0, 1, 5), 3)
    assert not payload.knows_top((0,), 2)
    assert payload.top_ranks((0, 1, 5), 2) == (0, 1)
    with pytest.raises(ValueError, match=r"^size = 0: must be >= 1"):
        BestPairs(size=0)


@given(RANKS, RANKS, st.integers(1, 6))
def test_both_payloads_are_sets(a: set[int], b: set[int], size: int) -> None:
    """Merging is union: in any order, repeated, nothing lost and nothing twice; the best m are kept of it."""
    whole, best = AllPairs(), BestPairs(size=size)
    held, new = whole.merge(bits(a), bits(b))
    assert held == bits(a | b)
    assert new == bits(b - a)
    assert whole.merge(bits(b), bits(a))[0] == held
    assert whole.pairs(bits(a)) + whole.pairs(new) == whole.pairs(held)
    x, y = tuple(sorted(a))[:size], tuple(sorted(b))[:size]
    kept, fresh = best.merge(x, y)
    assert kept == tuple(sorted(a | b))[:size] == whole.top_ranks(held, size)
    assert set(fresh) == set(kept) - set(x)
    assert best.merge(kept, y) == (kept, ())
    # Push-pull: after the answer, the one who asked holds what both held.
    assert best.merge(x, best.difference(y, x))[0] == kept
    assert whole.merge(bits(a), whole.difference(bits(b), bits(a)))[0] == held
    assert best.knows_top(kept, size) == whole.knows_top(held, size)


def test_bytes() -> None:
    assert message_bytes(0) == 16
    assert message_bytes(5) == 16 + 60
    assert message_bytes(5, header_bytes=0, pair_bytes=8) == 40


def test_believers_by_hand() -> None:
    # Clients 0, 1, 2 have ranks 2, 0, 1; m = 1. Client 0 has heard of nobody and thinks it is best; client 2 knows of client 1.
    payload = AllPairs()
    held = [bits({2}), bits({0}), bits({0, 1})]
    ranks = np.array([2, 0, 1])
    assert believers(payload, held, ranks, 1).tolist() == [0, 1]
    assert disagreement(payload, held, 1) == pytest.approx(1 / 3)


@given(st.data())
def test_agreement_is_everyone_knowing_the_true_top(data: st.DataObject) -> None:
    """Whatever clients have heard besides themselves: all name the same m if and only if each knows ranks 0..m-1."""
    clients = data.draw(st.integers(1, 6))
    size = data.draw(st.integers(1, clients))
    payload = AllPairs()
    ranks = np.array(data.draw(st.permutations(range(clients))))
    heard = [data.draw(st.sets(st.integers(0, clients - 1))) for _ in range(clients)]
    held = [bits(h | {int(r)}) for h, r in zip(heard, ranks, strict=True)]
    names = [payload.top_ranks(h, size) for h in held]
    agree = len(set(names)) == 1 and len(names[0]) == size
    assert agree == all(payload.knows_top(h, size) for h in held)
    assert agree == (disagreement(payload, held, size) == 0)
    found = believers(payload, held, ranks, size)
    assert len(found) >= size
    assert set(np.flatnonzero(ranks < size)) <= set(found)


def test_flooding_by_hand() -> None:
    """0 - 1 - 2, m = 1, client 0 the best. Repetition 1: four messages of one pair, client 1 learns of 0 and 2. Repetition 2: it
    tells 0 of 2 and 2 of 0; then all know."""
    done = spread(path_graph(3), AllPairs(), np.array([0, 1, 2]), size=1)
    assert (done.repetitions, done.messages, done.pairs, done.agreed) == (2, 6, 6, True)
    assert done.held == [7, 7, 7]
    # Client 1 keeps only the best it heard of: it has nothing to tell 0.
    best = spread(path_graph(3), BestPairs(size=1), np.array([0, 1, 2]), size=1)
    assert (best.repetitions, best.messages, best.pairs, best.agreed) == (2, 5, 5, True)


@pytest.mark.parametrize("payload", [AllPairs(), BestPairs(size=4)])
def test_flooding_takes_as_long_as_the_top_is_far(payload: Any) -> None:
    """Repetitions = the greatest number of hops from one of the true top m, which is also the closed form with latency 1."""
    for seed in range(5):
        graph = erdos_renyi(clients=40, generator=rng(seed), probability=0.2)
        ranks = compute_ranks(rng(100 + seed).random(40))
        done = spread(graph, payload, ranks, size=4)
        made = nx.Graph(list(zip(graph.source.tolist(), graph.target.tolist(), strict=True)))
        top = np.flatnonzero(ranks < 4)
        assert done.agreed
        assert done.repetitions == max(nx.eccentricity(made, v=int(n)) for n in top)
        assert done.repetitions == flooding_times(graph, origins=top, start_s=0.0, latency_s=np.ones(graph.edges)).max()


@pytest.mark.parametrize("forwarding", ["push", "push-pull"])
@pytest.mark.parametrize("payload", [AllPairs(), BestPairs(size=5)])
def test_random_contacts_agree(forwarding: Any, payload: Any) -> None:
    graph = complete(clients=64, generator=rng())
    ranks = compute_ranks(rng(1).random(64))
    done = spread(graph, payload, ranks, size=5, forwarding=forwarding, uniforms=lambda k: rng(1000 + k).random(64))
    assert done.agreed
    # A single rumour needs at least log2(64) = 6 pushes; with 6 * 64 pushes on average everyone is told by many.
    assert 4 <= done.repetitions <= 25
    assert {payload.top_ranks(held, 5) for held in done.held} == {(0, 1, 2, 3, 4)}
    sent = 64 * done.repetitions
    assert done.messages == sent if forwarding == "push" else sent <= done.messages <= 2 * sent


def test_push_by_hand() -> None:
    """0 - 1: both push, both know after one repetition; push-pull answers to nobody who already got it."""
    graph, ranks = path_graph(2), np.array([1, 0])
    done = spread(graph, AllPairs(), ranks, size=2, forwarding="push", uniforms=lambda k: np.zeros(2))
    assert (done.repetitions, done.messages, done.pairs) == (1, 2, 2)
    done = spread(graph, AllPairs(), ranks, size=2, forwarding="push-pull", uniforms=lambda k: np.zeros(2))
    assert (done.repetitions, done.messages, done.pairs) == (1, 4, 4)


def test_partition_ends_without_agreement_and_heals() -> None:
    """Two pieces flood until they have nothing to say; over a new link, what they hold is enough to agree."""
    ranks = np.array([5, 4, 3, 2, 1, 0])
    cut = spread(two_pieces(), AllPairs(), ranks, size=2)
    assert not cut.agreed
    assert disagreement(AllPairs(), cut.held, 2) == 0.5
    assert believers(AllPairs(), cut.held, ranks, 2).tolist() == [1, 2, 4, 5]
    # The union of what clients know is all there is, and each piece knows itself.
    assert cut.held == [bits({3, 4, 5})] * 3 + [bits({0, 1, 2})] * 3
    healed = spread(path_graph(6), AllPairs(), ranks, size=2, held=cut.held)
    assert healed.agreed
    # As far as from client 3 to client 0.
    assert healed.repetitions == 3


def test_knowledge_is_conserved() -> None:
    graph = grid(clients=30)
    ranks = compute_ranks(rng(2).random(30))
    for limit in (1, 2, 5):
        done = spread(graph, AllPairs(), ranks, size=30, max_repetitions=limit)
        union = 0
        for n, held in enumerate(done.held):
            assert held >> int(ranks[n]) & 1
            union |= held
        assert union == (1 << 30) - 1
        assert done.repetitions == limit


def test_random_contacts_are_uniform_neighbours() -> None:
    graph = PeerGraph.from_links(
        clients=5, links=np.array([[0, 1], [0, 2], [0, 3]]), distance_km=np.ones(3), allow_disconnected=True
    )
    for u, neighbour in ((0.0, 1), (0.34, 2), (np.nextafter(1, 0), 3)):
        edges = draw_contacts(graph, np.full(5, u))
        assert graph.source[edges].tolist() == [0, 1, 2, 3]
        assert graph.target[edges].tolist() == [neighbour, 0, 0, 0]


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"size": 0}, r"^size = 0: must be between 1 and the number of clients, 3"),
        ({"size": 4}, r"^size = 4: "),
        ({"forwarding": "shout"}, r"^forwarding = 'shout': must be 'flooding', 'push' or 'push-pull'"),
        ({"forwarding": "push"}, r"^uniforms = None: "),
        ({"max_repetitions": 0}, r"^max_repetitions = 0: "),
    ],
)
def test_bad_values(parameters: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        spread(path_graph(3), AllPairs(), np.array([0, 1, 2]), **{"size": 1} | parameters)

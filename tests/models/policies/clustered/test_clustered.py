"""Clustered sampling (Fraboni et al. 2021): the distributions, what is drawn from them, and the tree of similar updates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.policies.clustered.clustered_by_similarity import ClusteredBySimilarity, compute_distances, cut_tree, fill_groups
from models.policies.clustered.clustered_by_size import ClusteredBySize
from models.policies.clustered.distributions import Distribution
from models.policies.protocols import BoolArray, FloatArray, IntArray
from netsim.core.protocols import RoundView
from netsim.core.reports import RoundOutcome


def view(clients: int, rng: np.random.Generator, selectable: BoolArray | None = None) -> RoundView:
    able = np.ones(clients, bool) if selectable is None else selectable
    return RoundView(1, 0.0, able, np.zeros(clients, np.int64), rng)


def outcome(clients: list[int], updates: FloatArray | None, censored: list[bool] | None = None) -> RoundOutcome:
    cut = np.zeros(len(clients), bool) if censored is None else np.array(censored)
    return RoundOutcome(1, 0.0, 1.0, np.array(clients, np.int64), np.ones(len(clients)), cut, updates)


def table(distributions: list[Distribution], clients: int) -> FloatArray:
    """r_{k,i} in full; shape (m, K)."""
    r = np.zeros((len(distributions), clients))
    for k, each in enumerate(distributions):
        np.add.at(r[k], each.clients, each.probabilities())
    return r


def assert_unbiased(distributions: list[Distribution], sizes: FloatArray, per_round: int) -> None:
    r = table(distributions, len(sizes))
    assert r.shape == (per_round, len(sizes))
    assert np.all(r >= 0)
    np.testing.assert_allclose(r.sum(axis=1), 1.0, atol=1e-9)
    np.testing.assert_allclose(r.sum(axis=0), per_round * sizes / sizes.sum(), atol=1e-7)


def test_filling_by_hand() -> None:
    # M = 12, m = 2: sizes 5, 3, 2, 2 count 10, 6, 4, 4 in two distributions of 12; client 1 is split 2 + 4.
    policy = ClusteredBySize(clients=4, per_round=2, data_sizes=np.array([2.0, 5.0, 3.0, 2.0]))
    np.testing.assert_allclose(table(policy.distributions, 4), [[0, 10 / 12, 2 / 12, 0], [4 / 12, 0, 4 / 12, 4 / 12]], atol=1e-12)


def test_client_with_much_data_fills_whole_distributions() -> None:
    policy = ClusteredBySize(clients=3, per_round=3, data_sizes=np.array([1.0, 7.0, 1.0]))
    np.testing.assert_allclose(table(policy.distributions, 3), [[0, 1, 0], [0, 1, 0], [1 / 3, 1 / 3, 1 / 3]], atol=1e-12)
    # It is drawn once only, as the clients of a round are a set.
    assert policy.select(view(3, np.random.default_rng(0))).tolist() == [0, 1, 2]


sizes_and_m = (
    st.lists(st.integers(0, 50), min_size=1, max_size=30)
    .filter(any)
    .flatmap(lambda sizes: st.tuples(st.just(np.array(sizes, float)), st.integers(1, len(sizes))))
)


@given(sizes_and_m)
def test_distributions_by_size_are_unbiased(case: tuple[FloatArray, int]) -> None:
    sizes, per_round = case
    assert_unbiased(ClusteredBySize(clients=len(sizes), per_round=per_round, data_sizes=sizes).distributions, sizes, per_round)


@given(sizes_and_m, st.integers(0, 2**32 - 1), st.sampled_from(["arccos", "l2", "l1"]))
def test_distributions_by_similarity_are_unbiased(case: tuple[FloatArray, int], seed: int, kind: str) -> None:
    sizes, per_round = case
    rng = np.random.default_rng(seed)
    policy = ClusteredBySimilarity(clients=len(sizes), per_round=per_round, data_sizes=sizes, similarity=kind)  # type: ignore[arg-type]
    assert_unbiased(policy.distributions, sizes, per_round)
    seen = np.flatnonzero(rng.random(len(sizes)) < 0.5)
    policy.observe(outcome(seen.tolist(), rng.normal(size=(len(seen), 4))))
    assert_unbiased(policy.distributions, sizes, per_round)


@given(sizes_and_m, st.integers(0, 2**32 - 1))
def test_draws_are_distinct_selectable_and_as_many_as_can_be(case: tuple[FloatArray, int], seed: int) -> None:
    sizes, per_round = case
    rng = np.random.default_rng(seed)
    able = rng.random(len(sizes)) < 0.6
    chosen = ClusteredBySize(clients=len(sizes), per_round=per_round, data_sizes=sizes).select(view(len(sizes), rng, able))
    assert chosen.dtype == np.int64
    assert len(set(chosen.tolist())) == len(chosen) == min(per_round, int(able.sum()))
    assert able[chosen].all()


def test_clients_are_selected_in_proportion_to_their_data() -> None:
    # Descending sizes 5 5 | 4 3 3 fill two distributions of 10 without a split: no draw is ever repeated, p_i m is exact.
    sizes = np.array([3.0, 5.0, 4.0, 5.0, 3.0])
    policy = ClusteredBySize(clients=5, per_round=2, data_sizes=sizes)
    rng = np.random.default_rng(17)
    draws = 10_000
    counts = np.zeros(5)
    for _ in range(draws):
        counts[policy.select(view(5, rng))] += 1
    p = 2 * sizes / sizes.sum()
    assert np.all(np.abs(counts - draws * p) < 4.5 * np.sqrt(draws * p * (1 - p)))


def test_first_draws_follow_split_distributions() -> None:
    policy = ClusteredBySize(clients=4, per_round=2, data_sizes=np.array([2.0, 5.0, 3.0, 2.0]))
    rng = np.random.default_rng(18)
    draws = 10_000
    counts = np.zeros((2, 4))
    for k, each in enumerate(policy.distributions):
        for u in rng.random(draws).tolist():
            counts[k, each.pick(u)] += 1
    r = table(policy.distributions, 4)
    assert np.all(np.abs(counts - draws * r) <= 4.5 * np.sqrt(draws * r * (1 - r)))


def test_distances_by_hand() -> None:
    rows = np.array([[3.0, 4.0], [0.0, 0.0]])
    others = np.array([[3.0, 4.0], [-8.0, 6.0], [-3.0, -4.0], [0.0, 0.0]])
    half = math.pi / 2
    angles = [[0, half, math.pi, half], [half, half, half, 0]]
    np.testing.assert_allclose(compute_distances("arccos", rows, others), angles, atol=1e-7)
    np.testing.assert_allclose(compute_distances("l2", rows, others)[0], [0, math.hypot(11, 2), 10, 5])
    np.testing.assert_allclose(compute_distances("l1", rows, others)[0], [0, 13, 14, 7])


def test_tree_is_cut_where_groups_would_hold_too_much() -> None:
    # Leaves 0..3 of mass .5, .4, .3, .8; joined (0,1), then with 2 (1.2: too much), then with 3.
    tree = np.array([[0, 1, 0.1, 2], [4, 2, 0.2, 3], [5, 3, 0.3, 4]])
    groups = cut_tree(tree, np.array([0.5, 0.4, 0.3, 0.8]))
    assert sorted(group.tolist() for group in groups) == [[0, 1], [2], [3]]
    # Two places: {0,1} .9 and {3} .8 stay, client 2 fills .1 and .2.
    filled = fill_groups(groups, np.array([0.5, 0.4, 0.3, 0.8]), 2)
    np.testing.assert_allclose(table(filled, 4), [[0.5, 0.4, 0.1, 0], [0, 0, 0.2, 0.8]], atol=1e-12)


@pytest.mark.parametrize("kind", ["arccos", "l2", "l1"])
def test_similar_clients_share_a_distribution(kind: str) -> None:
    policy = ClusteredBySimilarity(clients=6, per_round=3, data_sizes=np.ones(6), similarity=kind)  # type: ignore[arg-type]
    axes = np.eye(3)[[0, 1, 2, 0, 1, 2]] + 0.01 * np.random.default_rng(1).normal(size=(6, 3))
    policy.observe(outcome([5, 1, 2], axes[[5, 1, 2]]))
    policy.observe(outcome([0, 3, 4], axes[[0, 3, 4]]))
    assert {frozenset(each.clients.tolist()) for each in policy.distributions} == {frozenset({i, i + 3}) for i in range(3)}
    rng = np.random.default_rng(2)
    for _ in range(50):
        assert {k % 3 for k in policy.select(view(6, rng)).tolist()} == {0, 1, 2}


@pytest.mark.parametrize("kind", ["arccos", "l2", "l1"])
def test_distances_are_kept_up_to_date(kind: str) -> None:
    policy = ClusteredBySimilarity(clients=6, per_round=2, data_sizes=np.ones(6), similarity=kind)  # type: ignore[arg-type]
    rng = np.random.default_rng(5)
    for clients in ([3, 0], [4, 3, 5], [1], [0, 3]):
        policy.observe(outcome(clients, rng.normal(size=(len(clients), 7))))
        state = policy.state_dict()
        again = compute_distances(kind, state["gradients"], state["gradients"])  # type: ignore[arg-type]
        np.testing.assert_allclose(state["distances"], again, atol=1e-3)  # single precision, arccos near 1
        np.testing.assert_array_equal(state["distances"], state["distances"].T)


def test_lost_updates_leave_the_representative_as_it_was() -> None:
    policy = ClusteredBySimilarity(clients=3, per_round=1, data_sizes=np.ones(3))
    policy.observe(outcome([2, 0], np.array([[1.0, 2.0]]), [True, False]))
    np.testing.assert_array_equal(policy.state_dict()["gradients"], [[1, 2], [0, 0], [0, 0]])
    policy.observe(outcome([0, 1], np.array([[math.nan, 0.0], [1e300, 0.0]])))
    np.testing.assert_array_equal(policy.state_dict()["gradients"], [[1, 2], [0, 0], [0, 0]])
    policy.observe(outcome([0], None, [True]))
    with pytest.raises(ValueError, match=r"^updates: "):
        policy.observe(outcome([0], None))


def play(policy: ClusteredBySimilarity, rounds: range) -> list[list[int]]:
    played = []
    for t in rounds:
        chosen: IntArray = policy.select(view(12, np.random.default_rng([1, t])))
        content = np.random.default_rng([2, t]).normal(size=(12, 5)) + np.arange(12)[:, None] % 3
        policy.observe(outcome(chosen.tolist(), content[chosen]))
        played.append(chosen.tolist())
    return played


def test_state_in_mid_run_continues_exactly() -> None:
    def fresh() -> ClusteredBySimilarity:
        return ClusteredBySimilarity(clients=12, per_round=4, data_sizes=np.arange(1.0, 13.0))

    whole, resumed, third = fresh(), fresh(), fresh()
    play(whole, range(1, 10))
    state = whole.state_dict()
    resumed.load_state_dict(state)
    later = play(whole, range(10, 20))
    assert play(resumed, range(10, 20)) == later
    third.load_state_dict(state)
    assert play(third, range(10, 20)) == later


def test_bad_values_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^similarity = 'cosine': must be 'arccos', 'l2' or 'l1'"):
        ClusteredBySimilarity(clients=3, per_round=1, data_sizes=np.ones(3), similarity="cosine")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^clients = 1000000: "):
        ClusteredBySimilarity(clients=1_000_000, per_round=1, data_sizes=np.ones(1_000_000))
    with pytest.raises(ValueError, match=r"^per_round = 0: "):
        ClusteredBySize(clients=3, per_round=0, data_sizes=np.ones(3))
    with pytest.raises(ValueError, match=r"^data_sizes = "):
        ClusteredBySize(clients=2, per_round=1, data_sizes=np.zeros(2))

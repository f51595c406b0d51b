"""The order of super-arms made as it is used, against enumeration; the table of the arms played, by hand."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.policies.slotted.arm_order import Arm, ByMean, Shuffle, unrank_subset
from models.policies.slotted.arm_table import ArmTable


def test_subsets_by_rank() -> None:
    found = [unrank_subset(i, 3, 6) for i in range(20)]
    assert found == sorted(itertools.combinations(range(6), 3), key=lambda s: s[::-1])
    last = math.comb(1000, 10) - 1
    assert unrank_subset(last, 10, 1000) == tuple(range(990, 1000))


@given(st.integers(0, 40), st.integers(0, 2**32), st.sampled_from(["random", "first"]))
def test_shuffle_is_a_permutation(count: int, seed: int, ties: Any) -> None:
    rng = np.random.default_rng(seed)
    shuffle = Shuffle(count, ties)
    drawn = [shuffle.draw(rng) for _ in range(count)]
    assert sorted(drawn) == list(range(count))
    if ties == "first":
        assert drawn == sorted(drawn)


def test_shuffle_is_uniform() -> None:
    """All 24 orders of four: chi-squared with 23 degrees of freedom exceeds 52.6 with probability 0.0004."""
    rng = np.random.default_rng(1)
    counts: dict[tuple[int, ...], int] = {}
    n = 12_000
    for _ in range(n):
        shuffle = Shuffle(4, "random")
        order = tuple(shuffle.draw(rng) for _ in range(4))
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 24
    assert sum((c - n / 24) ** 2 / (n / 24) for c in counts.values()) < 52.6


def test_shuffle_of_more_numbers_than_64_bits_count() -> None:
    rng = np.random.default_rng(0)
    shuffle = Shuffle(math.comb(1000, 10), "random")
    drawn = [shuffle.draw(rng) for _ in range(200)]
    assert len(set(drawn)) == 200
    assert 0.35 < np.mean([number / shuffle.count for number in drawn]) < 0.65


@given(
    st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.7, 0.71, 1.0]), min_size=1, max_size=9),
    st.data(),
    st.sampled_from(["random", "first"]),
)
def test_by_mean_is_every_subset_once_in_order(values: list[float], data: st.DataObject, ties: Any) -> None:
    size = data.draw(st.integers(1, len(values)))
    order = ByMean(values=np.array(values), size=size, ties=ties)
    rng = np.random.default_rng(0)
    arms: list[Arm] = []
    means: list[float] = []
    while order.best() > -math.inf:
        means.append(order.best())
        arms.append(order.take(rng))
    assert sorted(arms) == list(itertools.combinations(range(len(values)), size))
    assert means == sorted(means, reverse=True)
    assert means == [math.fsum(values[i] for i in arm) / size for arm in arms]


def test_by_mean_first_rule_by_hand() -> None:
    """Values 2, 1, 1, 1: of the pairs of mean 1.5 the lowest clients come first."""
    order = ByMean(values=np.array([1.0, 2.0, 1.0, 1.0]), size=2, ties="first")
    rng = np.random.default_rng(0)
    assert [order.take(rng) for _ in range(6)] == [(0, 1), (1, 2), (1, 3), (0, 2), (0, 3), (2, 3)]


def test_by_mean_random_rule_is_uniform_among_equal_arms() -> None:
    """Of the 6 arms with one of two good clients and one of three others each comes first equally often (5 sd)."""
    values = np.array([0.9, 0.9, 0.4, 0.4, 0.4])
    counts: dict[Arm, int] = {}
    n = 6_000
    rng = np.random.default_rng(5)
    for _ in range(n):
        order = ByMean(values=values, size=2, ties="random")
        assert order.take(rng) == (0, 1)
        arm = order.take(rng)
        counts[arm] = counts.get(arm, 0) + 1
    assert len(counts) == 6
    assert max(abs(c - n / 6) for c in counts.values()) < 5 * math.sqrt(n * 5 / 36)


def test_arm_table_by_hand() -> None:
    table = ArmTable()
    assert table.best(1.0) == (-math.inf, 0)
    table.add((0, 1), 2, 0.5)
    table.add((0, 2), 2, 0.6)
    table.add((1, 2), 8, 0.8)
    # 0.6 + 0.4 / sqrt 2 = 0.883 against 0.8 + 0.4 / sqrt 8 = 0.941.
    assert table.best(0.4) == (pytest.approx(0.8 + 0.4 / math.sqrt(8)), 8)
    assert table.best(1.0) == (pytest.approx(0.6 + 1 / math.sqrt(2)), 2)
    table.replay(2, 0.0)
    assert table.best(1.0) == (pytest.approx(0.5 + 1 / math.sqrt(2)), 2)
    assert table.head(3) == (0, 2)
    assert len(table) == 3
    assert table.best(0.0) == (0.8, 8)
    # Equal indices: the arm played less often, whichever was entered first.
    for count in (9, 4):
        table.add((count, 20), count, 0.8)
    assert table.best(0.0) == (0.8, 4)
    for count in (1, 10):
        table.add((count, 30), count, 0.8)
    assert table.best(0.0) == (0.8, 1)

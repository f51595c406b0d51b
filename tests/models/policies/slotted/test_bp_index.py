"""The index of BP-UCB by hand: its average credit, cold start and ties."""

from __future__ import annotations

import math

import numpy as np
import pytest

from models.policies.slotted.bp_index import BpIndex

# --- BP-UCB


def test_bp_index_by_hand() -> None:
    policy = BpIndex(clients=4, per_round=2, mu=0.5)
    belief = np.array([0.4, 0.8, 0.4, 0.0])
    assert policy.index(1, belief) == pytest.approx([0.1, 0.2, 0.1, 0.0])
    assert policy.top(policy.index(1, belief)).tolist() == [0, 1]
    policy.observe_opinions(1, np.array([0, 1]), np.array([0.5, 0.7, 0.2, 0.9]))
    assert policy.means.tolist() == [0.5, 0.7, 0.2, 0.9]
    assert policy.counts.tolist() == [1, 1, 1, 1]
    width = 0.5 * math.sqrt(math.log(2))
    assert policy.index(2, belief) == pytest.approx(np.array([0.6, 0.9, 0.3, 0.9]) + width)
    policy.observe_opinions(2, np.array([1, 3]), np.array([1.0, 0.1, 1.0, 0.5]))
    assert policy.means == pytest.approx([0.5, 0.4, 0.2, 0.7])
    assert policy.counts.tolist() == [1, 2, 1, 2]
    expected = [0.5 + 0.1, 0.4 + 0.2, 0.2 + 0.1, 0.7] + 0.5 * np.sqrt(math.log(3) / np.array([1, 2, 1, 2]))
    assert policy.index(3, belief) == pytest.approx(expected)


def test_bp_index_average_credit() -> None:
    policy = BpIndex(clients=4, per_round=2, credit="average")
    policy.observe_opinions(1, np.array([0, 1]), np.array([0.5, 0.7, 0.2, 1.0]))
    assert policy.means == pytest.approx([0.6] * 4)
    policy.observe_opinions(2, np.array([3, 0]), np.full(4, 0.2))
    assert policy.means == pytest.approx([0.4, 0.6, 0.6, 0.4])


def test_bp_index_without_cold_start_locks_on_its_first_set() -> None:
    policy = BpIndex(clients=6, per_round=2, cold_start=False)
    policy.observe_opinions(1, np.array([2, 4]), np.full(6, 0.5))
    assert policy.means.tolist() == [0, 0, 0.5, 0, 0.5, 0]
    for t in range(2, 200):
        chosen = policy.top(policy.index(t, np.zeros(6)))
        assert chosen.tolist() == [2, 4]
        policy.observe_opinions(t, chosen, np.full(6, 0.5))


def test_bp_ties() -> None:
    policy = BpIndex(clients=4, per_round=2)
    index = np.array([0.5, 0.5, 0.7, 0.5])
    assert policy.top(index).tolist() == [0, 2]
    assert policy.top(index, priority=np.array([0.9, 0.8, 0.7, 0.1])).tolist() == [2, 3]


def test_bp_state_round_trip() -> None:
    policy = BpIndex(clients=5, per_round=2)
    policy.observe_opinions(1, np.array([0, 1]), np.linspace(0, 1, 5))
    policy.observe_opinions(2, np.array([0, 1]), np.linspace(0, 1, 5)[::-1])
    state = policy.state_dict()
    index = policy.index(9, np.full(5, 0.3))
    policy.observe_opinions(3, np.array([2, 3]), np.ones(5))
    again = BpIndex(clients=5, per_round=2)
    again.load_state_dict(state)
    assert np.array_equal(again.index(9, np.full(5, 0.3)), index)

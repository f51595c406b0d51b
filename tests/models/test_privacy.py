"""Privacy budgets, the ledger and the wording of guarantees (PAUSE eq. 5-7)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.privacy import ExplicitSchedule, GeometricSchedule, Ledger, NoPrivacy, NoSchedule, guarantee


def test_geometric_budgets_by_hand() -> None:
    # eta = ln 2: epsilon_i = 8 (2 - 1) 2^-i = 4, 2, 1, ...; leaks 4, 6, 7.
    schedule = GeometricSchedule(epsilon_total=8.0, eta=math.log(2))
    assert [schedule.epsilon(i) for i in (1, 2, 3)] == pytest.approx([4.0, 2.0, 1.0])
    np.testing.assert_allclose(schedule.leak(np.array([0, 1, 2, 3])), [0.0, 4.0, 6.0, 7.0])
    assert schedule.total == 8.0


@given(st.floats(0.01, 1000), st.floats(1e-3, 5), st.integers(0, 300))
def test_geometric_leak_is_the_sum_of_the_budgets(epsilon_total: float, eta: float, T: int) -> None:
    schedule = GeometricSchedule(epsilon_total=epsilon_total, eta=eta)
    spent = math.fsum(schedule.epsilon(i) for i in range(1, T + 1))
    assert schedule.leak(np.array([T]))[0] == pytest.approx(spent, rel=1e-12, abs=1e-300)
    assert spent <= epsilon_total * (1 + 1e-12)


def test_geometric_budget_is_the_papers_formula_and_never_ends() -> None:
    schedule = GeometricSchedule(epsilon_total=40.0, eta=0.04)
    for i in (1, 2, 17, 400):
        assert schedule.epsilon(i) == pytest.approx(40.0 * (math.exp(0.04) - 1) * math.exp(-0.04 * i), rel=1e-12)
    assert schedule.epsilon(10**6) > 0


def test_explicit_budgets_end() -> None:
    schedule = ExplicitSchedule(epsilons=[3.0, 2.0, 0.5])
    assert [schedule.epsilon(i) for i in (1, 2, 3, 4, 9)] == [3.0, 2.0, 0.5, 0.0, 0.0]
    np.testing.assert_array_equal(schedule.leak(np.array([[0, 1], [3, 7]])), [[0.0, 3.0], [5.5, 5.5]])
    assert schedule.total == 5.5


def test_ledger_by_hand() -> None:
    ledger = Ledger(clients=3, schedule=ExplicitSchedule(epsilons=[3.0, 2.0, 0.5]))
    assert ledger.charge(1) == (3.0, 3.0)
    assert ledger.charge(2) == (3.0, 3.0)
    assert ledger.charge(1) == (2.0, 5.0)
    assert ledger.max_leak() == 5.0
    np.testing.assert_array_equal(ledger.participations, [0, 2, 1])
    np.testing.assert_array_equal(ledger.leaks(), [0.0, 5.0, 3.0])
    assert ledger.participations.dtype == np.int64


def test_spent_client_is_marked_and_refused() -> None:
    ledger = Ledger(clients=2, schedule=ExplicitSchedule(epsilons=[1.0, 1.0]))
    ledger.charge(0)
    assert not ledger.exhausted.any()
    ledger.charge(0)
    np.testing.assert_array_equal(ledger.exhausted, [True, False])
    with pytest.raises(ValueError, match=r"client = 0: has spent its whole privacy budget in 2 releases"):
        ledger.charge(0)
    np.testing.assert_array_equal(ledger.participations, [2, 0])
    assert ledger.charge(1) == (1.0, 1.0)


def test_ledger_composes_any_order_of_releases() -> None:
    rng = np.random.default_rng(3)
    schedule = GeometricSchedule(epsilon_total=20.0, eta=0.04)
    ledger = Ledger(clients=7, schedule=schedule)
    spent = np.zeros(7)
    for client in rng.integers(0, 7, 500).tolist():
        epsilon, leak = ledger.charge(client)
        spent[client] += epsilon
        assert leak == pytest.approx(spent[client], rel=1e-12)
        assert ledger.max_leak() == pytest.approx(spent.max(), rel=1e-12)
    np.testing.assert_allclose(ledger.leaks(), spent, rtol=1e-12)


def test_ledger_continues_from_its_state() -> None:
    schedule = ExplicitSchedule(epsilons=[3.0, 2.0, 0.5])
    first = Ledger(clients=3, schedule=schedule)
    for client in (0, 0, 0, 2):
        first.charge(client)
    state = first.state_dict()
    live = Ledger(clients=3, schedule=schedule)
    seen = live.participations
    live.load_state_dict(state)
    first.charge(2)
    np.testing.assert_array_equal(state["participations"], [3, 0, 1])
    assert seen is live.participations
    np.testing.assert_array_equal(live.exhausted, [True, False, False])
    assert live.max_leak() == 5.5
    assert live.charge(2) == (2.0, 5.0)


def test_privacy_off_counts_and_leaks_nothing() -> None:
    ledger = NoPrivacy(clients=2)
    for _ in range(50):
        assert ledger.charge(1) == (math.inf, 0.0)
    assert ledger.max_leak() == 0.0
    assert not ledger.exhausted.any()
    np.testing.assert_array_equal(ledger.participations, [0, 50])
    np.testing.assert_array_equal(NoSchedule().leak(np.array([0, 9])), [0.0, 0.0])


def test_guarantees_in_words() -> None:
    vector = guarantee(mode="l1", leak=39.5, dimensions=1000)
    assert "whole update" in vector
    assert "39.5" in vector
    single = guarantee(mode="per_coordinate", leak=39.5, dimensions=1000)
    assert "single coordinates only" in single
    assert "39500" in single
    assert "no local differential privacy" in guarantee(mode="none", leak=0.0, dimensions=1)


def test_bad_values_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^epsilon_total = 0.0: must be finite and > 0"):
        GeometricSchedule(epsilon_total=0.0, eta=0.1)
    for eta in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"^eta = "):
            GeometricSchedule(epsilon_total=1.0, eta=eta)
    with pytest.raises(ValueError, match=r"^epsilons = \[\]"):
        ExplicitSchedule(epsilons=[])
    with pytest.raises(ValueError, match=r"^epsilons\[1\] = 0.0"):
        ExplicitSchedule(epsilons=[1.0, 0.0])
    with pytest.raises(ValueError, match=r"^epsilons: their sum must be finite"):
        ExplicitSchedule(epsilons=[1.0, 1e308, 1e308])
    with pytest.raises(ValueError, match=r"^clients = 0"):
        NoPrivacy(clients=0)
    for schedule in (GeometricSchedule(epsilon_total=1.0, eta=1.0), ExplicitSchedule(epsilons=[1.0]), NoSchedule()):
        with pytest.raises(ValueError, match=r"^i = 0: participations count from 1"):
            schedule.epsilon(0)
    with pytest.raises(ValueError, match=r"^mode = 'gauss'"):
        guarantee(mode="gauss", leak=1.0, dimensions=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", [GeometricSchedule(epsilon_total=5.0, eta=0.2), ExplicitSchedule(epsilons=[3.0, 2.0, 0.5])])
def test_charging_many_is_charging_each(schedule: Any) -> None:
    one, many = Ledger(clients=5, schedule=schedule), Ledger(clients=5, schedule=schedule)
    for clients in ([0, 1, 2], [2, 4], [1, 2, 3], [0]):
        expected = [one.charge(client) for client in clients]
        budgets, leaks = many.charge_all(np.array(clients))
        assert list(zip(budgets.tolist(), leaks.tolist(), strict=True)) == expected
        assert np.array_equal(one.participations, many.participations)
        assert np.array_equal(one.exhausted, many.exhausted)
        assert one.max_leak() == many.max_leak()


def test_none_of_many_is_charged_beyond_its_budget() -> None:
    ledger = Ledger(clients=3, schedule=ExplicitSchedule(epsilons=[1.0]))
    ledger.charge_all(np.array([1]))
    with pytest.raises(ValueError, match=r"client = 1.*whole privacy budget in 1 releases"):
        ledger.charge_all(np.array([0, 1]))
    assert ledger.participations.tolist() == [0, 1, 0]

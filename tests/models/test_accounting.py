"""Composed privacy of several releases: closed forms, known values, limits."""

from __future__ import annotations

import math

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from models.accounting import composed_epsilon, gaussian_scale
from models.errors import ParameterError

pytest.importorskip("dp_accounting")
BOTH = ("pld", "rdp")


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon of Gaussian noise at sensitivity over standard deviation `mu` (Balle and Wang 2018, Theorem 8)."""

    def left(epsilon: float) -> float:
        return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)) - delta

    return float(brentq(left, 0.0, 50.0))


def test_one_laplace_release_in_closed_form() -> None:
    # delta(e) = 1 - exp((e - epsilon)/2), so that e = epsilon + 2 ln(1 - delta).
    for budget, delta in ((0.5, 1e-3), (2.0, 0.1), (1.0, 0.3)):
        exact = budget + 2 * math.log1p(-delta)
        assert composed_epsilon("pld", "laplace", [budget], total_delta=delta) == pytest.approx(exact, abs=2e-4)
        assert composed_epsilon("rdp", "laplace", [budget], total_delta=delta) >= exact - 1e-9


def test_gaussian_releases_add_up_in_closed_form() -> None:
    # Of several the squares of mu add up; the standard deviations are those that each budget was calibrated to.
    budgets, delta = [0.5, 1.0, 1.0, 2.0], 1e-5
    mu = math.sqrt(sum(gaussian_scale(budget, delta) ** -2 for budget in budgets))
    exact = gaussian_epsilon(mu, 1e-4)
    pld, rdp = (composed_epsilon(one, "gaussian", budgets, total_delta=1e-4, delta=delta) for one in BOTH)
    assert pld == pytest.approx(exact, abs=1e-4)
    assert exact <= pld <= rdp < sum(budgets)


def test_a_single_gaussian_release_is_worth_its_budget() -> None:
    assert composed_epsilon("pld", "gaussian", [0.7], total_delta=1e-5, delta=1e-5) == pytest.approx(0.7, abs=1e-3)


def test_known_values() -> None:
    # dp-accounting's own, of 10 releases with delta 1e-5: sigma 2, exactly 7.51128; Laplace of scale 5, whose sum is 2.
    assert composed_epsilon("rdp", "laplace", [0.2] * 10, total_delta=1e-5) == pytest.approx(1.9903, abs=1e-4)
    assert composed_epsilon("pld", "laplace", [0.2] * 10, total_delta=1e-5) == pytest.approx(1.98996, abs=2e-5)
    budget = gaussian_epsilon(0.5, 1e-6)
    assert gaussian_scale(budget, 1e-6) == pytest.approx(2.0, rel=1e-6)
    ten = {one: composed_epsilon(one, "gaussian", [budget] * 10, total_delta=1e-5, delta=1e-6) for one in BOTH}
    assert ten["rdp"] == pytest.approx(8.0794, abs=1e-3)
    assert ten["pld"] == pytest.approx(7.51128, abs=1e-3)


def test_many_small_releases_are_worth_less_than_their_sum() -> None:
    # Of n releases of epsilon each: about epsilon sqrt(2 n ln(1/delta)) (advanced composition bounds it from above).
    budgets = [0.05] * 400
    pld, rdp = (composed_epsilon(one, "laplace", budgets, total_delta=1e-5) for one in BOTH)
    bound = math.sqrt(2 * 400 * math.log(1e5)) * 0.05 + 400 * 0.05 * math.expm1(0.05)
    assert pld <= rdp < bound < sum(budgets)


def test_laplace_noise_on_two_coordinates_leaks_no_more_than_on_one() -> None:
    for budget, share, delta in ((1.0, 0.5, 0.05), (2.0, 0.2, 0.01), (0.3, 0.4, 0.1), (4.0, 0.5, 1e-3)):
        apart = [budget * share, budget * (1 - share)]
        one = composed_epsilon("pld", "laplace", [budget], total_delta=delta)
        assert composed_epsilon("pld", "laplace", apart, total_delta=delta) <= one + 2e-4


def test_very_small_budgets_are_added_up_and_no_more_than_the_sum_is_ever_said() -> None:
    small = [1e-9] * 1000
    assert composed_epsilon("pld", "laplace", small, total_delta=1e-5) == pytest.approx(1e-6)
    large = composed_epsilon("pld", "laplace", [1.0], total_delta=1e-3)
    assert composed_epsilon("pld", "laplace", [1.0, *small], total_delta=1e-3) == pytest.approx(large + 1e-6, abs=1e-9)
    assert composed_epsilon("rdp", "laplace", [0.01], total_delta=1e-9) == 0.01
    assert composed_epsilon("pld", "laplace", [], total_delta=1e-9) == 0.0


def test_large_budgets_take_a_coarser_grid() -> None:
    # 100,000 steps of the grid at most, each rounded up.
    value = composed_epsilon("pld", "laplace", [200.0, 300.0], total_delta=1e-5)
    assert 499.0 < value <= 500.0


@pytest.mark.parametrize(
    ("named", "name"),
    [
        ({"budgets": [1.0, 0.0]}, "budgets"),
        ({"budgets": [math.inf]}, "budgets"),
        ({"total_delta": 0.0}, "total_delta"),
        ({"total_delta": 1.0}, "total_delta"),
        ({"noise": "gaussian"}, "delta"),
        ({"noise": "gaussian", "delta": 2.0}, "delta"),
    ],
)
def test_bad_values_are_refused(named: dict, name: str) -> None:
    given = {"accountant": "pld", "noise": "laplace", "budgets": [1.0], "total_delta": 1e-5} | named
    with pytest.raises(ParameterError) as error:
        composed_epsilon(given.pop("accountant"), given.pop("noise"), given.pop("budgets"), **given)
    assert error.value.name == name

"""Theorem 1 of the channel study: its constants by hand, and its bound against asynchronous training whose loss is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from models.theory.aoi import ages
from models.theory.convergence import Constants, Problem, printed_constants, proved_constants, stale_squares, terms

HAND = Problem(smoothness=2.0, growth=0.5, gradient_norm=3.0, noise=1.5, step_size=0.01, local_steps=4, clients=6)


def test_constants_by_hand() -> None:
    # eta lambda = 0.04, G^2 = 9, sigma^2 = 2.25.
    assert printed_constants(HAND) == pytest.approx(
        (
            1 - 0.04 * 2 + 9 * 1e-4 * 4 * 4,
            (6 * 2 * 0.0016 + 0.08) * 9,
            9 * 6 * 8 * 0.04**4 * 11.25,
            1.5 * 2 * 0.0016 * 2.25 + 3 * 8 * 1e-4 * 9 * 64 * 3 * 7 / 4,
        )
    )
    assert proved_constants(HAND) == pytest.approx(
        (1 - 0.04 * 0.5, 8 * 0.04 * 9, 2 * 0.04**3 * 4 * 9, 0.08 * (2.25 + 4 * 1e-4 * 9 * 3 * 7 / 6))
    )


def test_terms_by_hand() -> None:
    found = terms(
        Constants(omega=0.5, participation=2.0, age=3.0, floor=1.0),
        clients=4,
        gap=8.0,
        delivered=np.array([4, 2, 0]),
        squared_ages=np.array([0.0, 1.0, 4.0]),
    )
    np.testing.assert_allclose(found.start, [4.0, 2.0, 1.0])
    np.testing.assert_allclose(found.participation, [0.0, 0.5, 2.25])
    np.testing.assert_allclose(found.age, [0.0, 3.0, 13.5])
    np.testing.assert_allclose(found.floor, [1.0, 1.5, 1.75])
    np.testing.assert_allclose(found.total, [5.0, 7.0, 18.5])
    # Omega^T, and (1 - Omega^T) / (1 - Omega): eq. 10's own forms.
    assert found.floor[-1] == pytest.approx((1 - 0.5**3) / (1 - 0.5))


def test_squares_of_what_is_stale_by_hand() -> None:
    # Client 0 fails in rounds 1 and 2: ages 2, 3, 1; client 1 in round 2 only. Before the rounds: 1 1, 2 1, 3 2.
    after = ages(np.array([[0, 1], [0, 0], [1, 1]], bool))
    np.testing.assert_allclose(stale_squares(after), [0.0, 0.5, 2.5])


def train(
    arrived: np.ndarray,
    curvature: np.ndarray,
    centres: np.ndarray,
    *,
    step_size: float,
    local_steps: int,
    noise: float,
    runs: int,
) -> tuple[np.ndarray, float, float]:
    """The paper's rounds on F_k(w) = sum_d h_kd (w_d - c_kd)^2 / 2 for given deliveries (T, K); `curvature`, `centres` (K, D).

    Returns the mean over runs of F - F* before the first and after each round, the least G and the least sigma for which
    Assumption 2 and the noise hold over these runs.
    """
    rng = np.random.default_rng(12)
    clients, size = centres.shape
    best = (curvature * centres).sum(axis=0) / curvature.sum(axis=0)
    model = np.ones((runs, size))
    largest = loudest = 0.0

    def gap() -> float:
        return float((0.5 * curvature.mean(axis=0) * (model - best) ** 2).sum(axis=1).mean())

    def update(k: int) -> np.ndarray:
        nonlocal largest, loudest
        w, total = model.copy(), np.zeros_like(model)
        for _ in range(local_steps):
            disturbance = noise * rng.standard_normal(w.shape)
            gradient = curvature[k] * (w - centres[k])
            largest = max(largest, *[float((g**2).sum(axis=1).mean()) for g in (gradient, gradient + disturbance)])
            loudest = max(loudest, float((disturbance**2).sum(axis=1).mean()))
            total += gradient + disturbance
            w = w - step_size * (gradient + disturbance)
        return total

    held = [update(k) for k in range(clients)]
    gaps = [gap()]
    for good in arrived:
        if good.any():
            model = model - step_size * np.mean([held[k] for k in np.flatnonzero(good)], axis=0)
        for k in range(clients):
            # The assumption is of every point visited, the models themselves included.
            largest = max(largest, float(((curvature[k] * (model - centres[k])) ** 2).sum(axis=1).mean()))
            if good[k]:
                held[k] = update(k)
        gaps.append(gap())
    return np.array(gaps), math.sqrt(largest), math.sqrt(loudest)


CASES = {
    "some arrive, many steps, noise": ({"success": 0.5}, {"step_size": 0.05, "local_steps": 4, "noise": 0.3}),
    "few arrive": ({"success": 0.1}, {"step_size": 0.2, "local_steps": 1, "noise": 0.0}),
    "all arrive, drift": ({"success": 1.0}, {"step_size": 0.1, "local_steps": 8, "noise": 0.0}),
    "all arrive, noise": ({"success": 1.0}, {"step_size": 0.5, "local_steps": 1, "noise": 1.0}),
}


@pytest.mark.parametrize("case", CASES)
def test_no_loss_exceeds_what_is_proved(case: str) -> None:
    # No step of the proof takes a gradient's mean for the gradient, so that it holds for the mean over any runs, exactly.
    world, local = CASES[case]
    clients, rounds = 5, 120
    curvature, centres = (
        np.random.default_rng(3).uniform(0.1, 1.0, (clients, 3)),
        np.random.default_rng(5).normal(size=(clients, 3)),
    )
    arrived = np.random.default_rng(4).random((rounds, clients)) < world["success"]
    gaps, largest, loudest = train(arrived, curvature, centres, runs=40, **local)
    problem = Problem(
        smoothness=float(curvature.max()),
        growth=float(curvature.mean(axis=0).min()),
        gradient_norm=largest,
        noise=loudest,
        step_size=local["step_size"],
        local_steps=local["local_steps"],
        clients=clients,
    )
    bound = terms(
        proved_constants(problem),
        clients=clients,
        gap=float(gaps[0]),
        delivered=arrived.sum(axis=1),
        squared_ages=stale_squares(ages(arrived)),
    )
    assert (gaps[1:] <= bound.total).all()
    if world["success"] == 1.0:
        # Nobody is absent, so that what keeps F - F* from falling by Omega is noise or drift, and the last term is needed.
        assert (bound.participation == 0.0).all()
        assert (bound.age == 0.0).all()
        assert (gaps[1:] > bound.start).any()


def test_gradient_descent_keeps_to_what_is_proved_and_breaks_what_is_printed() -> None:
    # Nobody fails, nothing is stale, no noise, one step: F falls by (1 - eta mu)^2 a round along the flat direction. Omega as
    # printed has L in the place of mu and promises far more.
    arrived = np.ones((200, 3), bool)
    centres = np.array([[1.0, 0.0]] * 3)
    gaps, largest, _ = train(arrived, np.array([[1.0, 0.01]] * 3), centres, step_size=0.05, local_steps=1, noise=0.0, runs=1)
    problem = replace(
        HAND, smoothness=1.0, growth=0.01, gradient_norm=largest, noise=0.0, step_size=0.05, local_steps=1, clients=3
    )
    given = {"clients": 3, "gap": float(gaps[0]), "delivered": arrived.sum(axis=1)}
    kept = terms(proved_constants(problem), squared_ages=stale_squares(ages(arrived)), **given).total
    broken = terms(printed_constants(problem), squared_ages=ages(arrived).mean(axis=1) ** 2, **given).total
    assert (gaps[1:] <= kept).all()
    assert gaps[-1] > 0.9 * kept[-1]
    assert gaps[-1] > 10 * broken[-1]


@pytest.mark.parametrize(
    ("change", "start"),
    [
        ({"smoothness": 0.0}, "smoothness = 0.0"),
        ({"growth": 3.0}, "growth = 3.0: must be <= smoothness"),
        ({"noise": -1.0}, "noise = -1.0"),
        ({"gradient_norm": math.inf}, "gradient_norm = inf"),
        ({"local_steps": 0}, "local_steps = 0"),
        ({"clients": 0}, "clients = 0"),
    ],
)
def test_problems_that_cannot_be_are_refused(change: dict[str, float], start: str) -> None:
    with pytest.raises(ValueError, match=f"^{start}"):
        replace(HAND, **change)


def test_steps_too_long_for_the_theorem_are_refused() -> None:
    # 1 / (9 L) = 1/18 for one local step; eta lambda <= 1 / L for what is proved.
    printed_constants(replace(HAND, step_size=0.055))
    with pytest.raises(ValueError, match=r"^step_size = 0.056"):
        printed_constants(replace(HAND, step_size=0.056))
    proved_constants(replace(HAND, step_size=0.125))
    with pytest.raises(ValueError, match=r"^step_size = 0.126"):
        proved_constants(replace(HAND, step_size=0.126))


def test_records_that_cannot_be_are_refused() -> None:
    one = Constants(0.5, 1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match=r"^squared_ages has shape"):
        terms(one, clients=2, gap=1.0, delivered=np.array([1, 2]), squared_ages=np.zeros(3))
    with pytest.raises(ValueError, match=r"^delivered = "):
        terms(one, clients=2, gap=1.0, delivered=np.array([1, 3]), squared_ages=np.zeros(2))
    with pytest.raises(ValueError, match=r"^gap = -1.0"):
        terms(one, clients=2, gap=-1.0, delivered=np.array([1, 2]), squared_ages=np.zeros(2))

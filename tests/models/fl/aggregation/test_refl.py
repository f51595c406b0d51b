"""The aggregation of REFL: weights by hand, deviations beside the plain formula, and steps in the learner."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from models.errors import ParameterError
from models.fl.aggregation.refl import Refl, deviations
from models.fl.aggregation.rules import Arrivals, Equal
from tests.helpers.learners import deliver, make, model


def arrivals(staleness: list[int]) -> Arrivals:
    return Arrivals(np.ones(len(staleness)), np.array(staleness), None, lambda: np.random.default_rng(1))


def late(rule: Refl, staleness: int, others: float = 1.0) -> float:
    """The weight of a late update that goes farthest, beside a fresh one of weight 1, and beside it in a whole of 1."""
    weights = rule.weights(np.array([0.0, others]), np.array([0, staleness]))
    return float(weights[1] / weights[0])


def test_weights_by_hand() -> None:
    assert late(Refl(), 1) == pytest.approx(0.325 + 0.35 * (1 - math.exp(-1)), abs=1e-9)
    assert late(Refl(), 1) == pytest.approx(0.5462, abs=5e-5)
    assert late(Refl(scale=10.0), 1) == pytest.approx(0.3583, abs=5e-5)
    assert late(Refl(beta=0.0), 3) == pytest.approx(0.25)
    # Two late ones, of which one goes half as far in squares; all sum to 1.
    weights = Refl().weights(np.array([0.0, 2.0, 1.0]), np.array([0, 1, 3]))
    assert weights.sum() == pytest.approx(1.0)
    raw = [1.0, 0.65 / 2 + 0.35 * (1 - math.exp(-1)), 0.65 / 4 + 0.35 * (1 - math.exp(-0.5))]
    assert weights.tolist() == pytest.approx(np.array(raw) / sum(raw))


def test_deviations_are_the_papers_but_for_what_cancels() -> None:
    rng = np.random.default_rng(5)
    updates, staleness = rng.normal(size=(6, 9)), np.array([0, 2, 0, 1, 0, 4])
    fresh = updates[staleness == 0]
    mean = fresh.mean(0)
    paper = np.zeros(6)
    for k in np.flatnonzero(staleness):
        folded = np.concatenate([fresh, updates[[k]]]).mean(0)
        paper[k] = ((mean - folded) ** 2).sum() / (mean**2).sum()
    found = deviations(torch.from_numpy(updates), staleness)
    np.testing.assert_allclose(found / found.max(), paper / paper.max())


def test_without_fresh_updates_or_deviations_age_alone_counts() -> None:
    updates = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    assert deviations(updates, np.array([1, 3, 2])).tolist() == [0, 0, 0]
    assert deviations(updates, np.array([0, 0, 0])).tolist() == [0, 0, 0]
    step = Refl().step(torch.zeros(2), torch.zeros(3, 2), updates, arrivals([1, 3, 1]), np.ones(3))
    # 0.65 (1/2, 1/4, 1/2), made to sum to 1.
    assert step.tolist() == pytest.approx([0.8, 0.2])
    # A late one that is the mean of the fresh.
    step = Refl().step(torch.zeros(2), torch.zeros(2, 2), updates[[0, 2]], arrivals([0, 1]), np.array([1.0, 0.5]))
    # 1 and 0.325 of 1.325, the latter halved by a rule of staleness.
    assert step.tolist() == pytest.approx([(1 + 0.1625) / 1.325, 0.0])


def test_fresh_updates_count_alike() -> None:
    refl, equal = make(aggregation=Refl()), make(aggregation=Equal())
    for learner in (refl, equal):
        learner.aggregate(deliver(1, [0, 1, 2, 3], 0), want_updates=False)
    np.testing.assert_allclose(model(refl), model(equal), atol=1e-6)


def test_bad_values_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"beta = 1\.5"):
        Refl(beta=1.5)
    with pytest.raises(ParameterError, match="scale = 0"):
        Refl(scale=0.0)

"""The aggregation of Port: weights by hand, cosines, and steps in the learner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from models.fl.aggregation.port import Port, cosines
from models.fl.aggregation.rules import Arrivals
from models.fl.compression.none import NoCompression
from models.fl.compression.qsgd import Qsgd
from tests.helpers.learners import SIZES, deliver, make, model


def arrivals(sizes: list[int], staleness: list[int]) -> Arrivals:
    return Arrivals(np.array(sizes), np.array(staleness), None, lambda: np.random.default_rng(1))


def test_weights_by_hand() -> None:
    # Fresh and along: 2 n; as old as the bound and straight back: n / 2.
    assert Port().weights(np.array([1.0, -1.0]), arrivals([7, 7], [0, 10])).tolist() == pytest.approx([0.8, 0.2])
    assert Port(similarity=0.0).weights(np.zeros(2), arrivals([7, 7], [0, 10])).tolist() == pytest.approx([2 / 3, 1 / 3])
    # Of 10 and 30 samples with all else equal.
    assert Port().weights(np.full(2, 0.5), arrivals([10, 30], [3, 3])).tolist() == pytest.approx([0.25, 0.75])
    # Bound 4, w_s 2, w_t 3: (2 x 0.75 + 3 x 4/6) = 3.5 and (2 x 0.25 + 3 x 4/8) = 2.
    named: dict[str, Any] = {"bound": 4, "similarity": 2.0, "freshness": 3.0}
    assert Port(**named).weights(np.array([0.5, -0.5]), arrivals([1, 1], [2, 4])).tolist() == pytest.approx([3.5 / 5.5, 2 / 5.5])


def test_cosines_with_a_vector_of_zeros_are_zero() -> None:
    first = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0], [1e-30, 0.0], [2.0, 0.0]])
    second = torch.tensor([[4.0, 3.0], [-2.0, 0.0], [1.0, 1.0], [1e-30, 0.0], [0.0, 0.0]])
    assert cosines(first, second).tolist() == pytest.approx([0.96, -1.0, 0.0, 1.0, 0.0])


def test_a_step_is_the_weighted_mean_of_the_updates() -> None:
    # The model has gone from (0, 0) to (2, 0): the first update goes along, the second is fresh, so that nothing has moved.
    present, starts = torch.tensor([2.0, 0.0]), torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    updates = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    step = Port(bound=2).step(present, starts, updates, arrivals([5, 5], [2, 0]), np.ones(2))
    # 1 + 1/2 against 1/2 + 1.
    assert step.tolist() == pytest.approx([0.5, 0.5])
    halved = Port(bound=2).step(present, starts, updates, arrivals([5, 5], [2, 0]), np.array([1.0, 0.5]))
    assert halved.tolist() == pytest.approx([0.5, 0.25])


@pytest.mark.parametrize("down", [NoCompression(), Qsgd(levels=4)])
def test_fresh_updates_count_by_their_samples(down: Any) -> None:
    # Also where clients receive another model than the server has: it has not moved since.
    port, plain = make(aggregation=Port(), down_compression=down), make(down_compression=down)
    for learner in (port, plain):
        learner.aggregate(deliver(1, [0, 1, 2, 3], 0), want_updates=False)
    assert sum(SIZES) == 100
    np.testing.assert_allclose(model(port), model(plain), atol=1e-6)


def test_old_updates_are_compared_with_what_the_server_did_since() -> None:
    learner = make(aggregation=Port(bound=1), versions_kept=9)
    seen: list[np.ndarray[Any, np.dtype[np.float64]]] = []
    weights = learner._methods.aggregation.weights  # type: ignore[attr-defined]

    def watched(cosine: Any, told: Arrivals) -> Any:
        seen.append(cosine)
        return weights(cosine, told)

    learner._methods.aggregation.weights = watched  # type: ignore[attr-defined]
    learner.aggregate(deliver(1, [0, 1, 2, 3], 0), want_updates=False)
    learner.aggregate(deliver(2, [0, 1], np.array([0, 1])), want_updates=False)
    assert seen[0].tolist() == [0.0] * 4
    assert seen[1][1] == 0.0
    assert 0.0 < abs(seen[1][0]) <= 1.0

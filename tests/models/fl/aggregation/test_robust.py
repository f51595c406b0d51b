"""Robust aggregations and adaptive server optimizers: numbers by hand, plain references, limits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from models.errors import ParameterError
from models.fl.aggregation.robust import Krum, Median, TrimmedMean
from models.fl.aggregation.rules import Arrivals, Equal
from models.fl.aggregation.server_optimizers import FedAdagrad, FedAdam, FedAvgM, FedYogi


def step(aggregation, updates, factors=None):
    rows = torch.tensor(updates, dtype=torch.float32)
    n = len(rows)
    arrivals = Arrivals(np.arange(1, n + 1), np.zeros(n, np.int64), None, lambda: np.random.default_rng(0))
    weights = np.ones(n) if factors is None else np.array(factors)
    start = torch.zeros(rows.shape[1])
    return aggregation.step(start, torch.zeros_like(rows), rows, arrivals, weights).tolist()


def test_median_and_trimmed_mean_by_hand():
    odd = [[1.0, 9.0], [2.0, -5.0], [100.0, 0.0]]
    assert step(Median(), odd) == [2.0, 0.0]
    assert step(Median(), [*odd, [4.0, 2.0]]) == [3.0, 1.0]
    # floor(0.25 * 4) = 1 at each end.
    assert step(TrimmedMean(share=0.25), [*odd, [4.0, 2.0]]) == [3.0, 1.0]
    assert step(TrimmedMean(share=0.2), [*odd, [4.0, 2.0]]) == pytest.approx([107 / 4, 6 / 4])
    assert step(Median(), [[7.0, -1.0]]) == [7.0, -1.0]
    # A stale update is scaled first.
    assert step(Median(), odd, factors=[1.0, 0.5, 0.01]) == [1.0, 0.0]


def test_krum_by_hand():
    # On a line: 0, 1, 3, 10. With f = 0 the two nearest others count: 0: 1 + 9, 1: 1 + 4, 3: 4 + 9, 10: 49 + 81.
    line = [[0.0], [1.0], [3.0], [10.0]]
    assert step(Krum(wrong=0), line) == [1.0]
    assert step(Krum(wrong=0, selected=2), line) == [0.5]
    # f = 1: the nearest alone; 0 and 1 are as near to each other, and 0 came first.
    assert step(Krum(wrong=1), line) == [0.0]
    # More wrong ones than updates allow: the nearest still counts. More selected than there are: all.
    assert step(Krum(wrong=9), line) == [0.0]
    assert step(Krum(wrong=0, selected=9), line) == [3.5]
    assert step(Krum(), [[5.0, 6.0]]) == [5.0, 6.0]


def test_krum_is_the_plain_loop():
    rng = np.random.default_rng(4)
    for n, wrong in ((7, 2), (9, 1), (5, 0)):
        rows = rng.normal(size=(n, 6)).astype(np.float32)
        scores = []
        for i in range(n):
            away = sorted(float(((rows[i] - rows[j]).astype(np.float64) ** 2).sum()) for j in range(n) if j != i)
            scores.append(sum(away[: n - wrong - 2]))
        assert step(Krum(wrong=wrong), rows.tolist()) == pytest.approx(rows[int(np.argmin(scores))].tolist())


def test_a_minority_of_wrong_updates_moves_little():
    rng = np.random.default_rng(5)
    good = rng.normal(1.0, 0.1, size=(11, 20))
    wrong = np.full((4, 20), -1e6)
    everyone = np.concatenate((good, wrong)).tolist()
    for aggregation in (Median(), TrimmedMean(share=0.3), Krum(wrong=4), Krum(wrong=4, selected=5)):
        moved = np.array(step(aggregation, everyone))
        assert np.abs(moved - 1.0).max() < 0.5
    assert np.abs(np.array(step(Equal(), everyone)) * 15 / 15).min() > 1e5


def test_without_extremes_a_trimmed_mean_is_the_mean():
    rows = np.random.default_rng(6).normal(size=(6, 5)).tolist()
    assert step(TrimmedMean(share=0.0), rows) == pytest.approx(np.mean(rows, axis=0).tolist(), rel=1e-5)
    assert step(Krum(selected=6), rows) == pytest.approx(np.mean(rows, axis=0).tolist(), rel=1e-5)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: TrimmedMean(share=0.5), "aggregation.share"),
        (lambda: TrimmedMean(share=-0.1), "aggregation.share"),
        (lambda: Krum(wrong=-1), "aggregation.wrong"),
        (lambda: Krum(selected=0), "aggregation.selected"),
        (lambda: FedYogi(beta2=1.0), "server_optimizer.beta2"),
        (lambda: FedAdagrad(tau=0.0), "server_optimizer.tau"),
    ],
)
def test_bad_values_are_refused(make, name):
    with pytest.raises(ParameterError) as error:
        make()
    assert error.value.name == name


def moved(optimizer, *deltas):
    return [float(optimizer.step(torch.tensor([delta], dtype=torch.float64))) for delta in deltas]


def test_first_steps_of_the_adaptive_optimizers_by_hand():
    # d = 1, delta = 1, m = 0, v = 1e-6, rate 1, beta1 0.9.
    assert moved(FedAdagrad(learning_rate=1.0, beta1=0.9), 1.0) == pytest.approx([0.09990], abs=5e-6)
    assert moved(FedAdagrad(learning_rate=1.0), 1.0) == pytest.approx([0.99900], abs=5e-6)
    # Then delta = 0: v stays under Yogi, and falls to 0.99 of it under Adam.
    assert moved(FedYogi(learning_rate=1.0), 1.0, 0.0) == pytest.approx([0.99005, 0.89104], abs=1e-5)
    assert moved(FedAdam(learning_rate=1.0), 1.0, 0.0) == pytest.approx([0.99005, 0.89549], abs=1e-5)


@pytest.mark.parametrize("kind", [FedAdagrad, FedAdam, FedYogi])
def test_with_a_large_tau_the_step_is_that_of_momentum(kind):
    tau = 1e6
    adaptive = kind(learning_rate=tau, tau=tau, beta1=0.9)
    momentum = FedAvgM(learning_rate=1.0, momentum=0.9)
    deltas = [0.3, -0.1, 0.7, 0.2]
    # v >= tau^2 at first, so that the root is about tau: half of (1 - beta1) times FedAvgM's step.
    expected = [0.1 * one / 2 for one in moved(momentum, *deltas)]
    assert moved(adaptive, *deltas) == pytest.approx(expected, rel=0.05)


def test_states_of_the_adaptive_optimizers_continue():
    for kind in (FedAdagrad, FedYogi):
        whole = kind(learning_rate=0.1)
        whole.step(torch.tensor([1.0, -2.0]))
        state = whole.state_dict()
        fresh = kind(learning_rate=0.1)
        fresh.load_state_dict(state, torch.device("cpu"))
        later = torch.tensor([0.5, 0.5])
        assert whole.step(later.clone()).tolist() == fresh.step(later.clone()).tolist()

"""Losses fitted to outcomes: Wilson's interval by hand, bursts recovered, likelihoods against enumeration of hidden states."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from scenarios.fit.chains import forward_backward
from scenarios.fit.losses import UNSEEN, _emission, fit_losses


def test_wilsons_interval_by_hand() -> None:
    # 2 of 10: (0.2 + 1.92073 / 10 +- ...) / 1.384146: from 0.0567 to 0.5098 (Brown, Cai and DasGupta 2001).
    (law, *_) = fit_losses(np.array([[1, 1, 0, 0, 0, 0, 0, 0, 0, 0]]))
    assert (law.lost.value, round(law.lost.low, 4), round(law.lost.high, 4)) == (0.2, 0.0567, 0.5098)


def test_no_loss_is_a_perfect_channel() -> None:
    (law,) = fit_losses(np.zeros((3, 5), np.int64))
    assert law.table() == {"kind": "perfect"}


def test_the_likelihood_of_a_chain_is_the_sum_over_its_hidden_states() -> None:
    outcomes = np.array([[0, 1, UNSEEN, 1], [1, 0, 0, UNSEEN]])
    loss = np.array([0.1, 0.8])
    move = np.array([[0.8, 0.2], [0.5, 0.5]])
    first = np.array([0.5, 0.2]) / 0.7
    expected = 0.0
    for row in outcomes:
        total = 0.0
        for states in product((0, 1), repeat=4):
            p = first[states[0]] * np.prod([move[a, b] for a, b in pairwise(states)])
            for state, outcome in zip(states, row, strict=True):
                p *= 1.0 if outcome == UNSEEN else loss[state] if outcome == 1 else 1.0 - loss[state]
            total += p
        expected += np.log(total)
    likelihood, gamma, _ = forward_backward(_emission(outcomes, loss), move, first)
    assert likelihood == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(gamma.sum(axis=2), 1.0)


def bursts(rng: np.random.Generator, clients: int, rounds: int) -> np.ndarray:
    bad = rng.random(clients) < 0.25
    table = np.empty((clients, rounds), np.int64)
    for t in range(rounds):
        if t:
            bad = np.where(bad, rng.random(clients) > 0.3, rng.random(clients) < 0.1)
        table[:, t] = rng.random(clients) < np.where(bad, 0.9, 0.02)
    return table


@pytest.mark.slow
def test_bursts_are_told_from_independent_losses() -> None:
    rng = np.random.default_rng(1)
    table = bursts(rng, 60, 400)
    table[rng.random(table.shape) < 0.5] = UNSEEN
    best = fit_losses(table)[0]
    assert best.kind == "gilbert-elliott"
    # Standard errors are some 0.01 to 0.02 with 12,000 transmissions, half of which are seen beside their neighbours.
    truth = {"to_bad": 0.1, "to_good": 0.3, "loss_good": 0.02, "loss_bad": 0.9}
    for key, value in truth.items():
        assert best.parameters[key] == pytest.approx(value, abs=0.06), key
    assert fit_losses((rng.random((20, 300)) < 0.1).astype(np.int64))[0].kind == "bernoulli"


def test_bursts_are_found_in_a_large_table_and_nowhere_else() -> None:
    rng = np.random.default_rng(5)
    table = bursts(rng, 300, 600)
    best = fit_losses(table)[0]
    assert best.kind == "gilbert-elliott"
    assert best.parameters["to_good"] == pytest.approx(0.3, abs=0.03)
    assert best.number == table.size
    (only,) = fit_losses((rng.random((300, 600)) < 0.1).astype(np.int64))
    assert only.kind == "bernoulli"

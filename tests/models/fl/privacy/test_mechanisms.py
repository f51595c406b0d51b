from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from models.accounting import gaussian_scale
from models.fl.privacy.mechanisms import L1, L2, GaussianPerCoordinate, NoMechanism, PerCoordinate, draw_laplace

INF = np.inf


def generators(seed: int = 0):
    return lambda row: np.random.default_rng([seed, row])


def test_laplace_noise_has_its_law():
    draws = draw_laplace(200_000, 3.0, np.random.default_rng(5)).numpy().astype(np.float64)
    # 200,000 draws: a scale wrong by 1 % moves the distribution function by .0018 and gives p < 1e-2 on average, by 3 % p < 1e-9.
    assert stats.kstest(draws, stats.laplace(scale=3.0).cdf).pvalue > 1e-3
    assert stats.kstest(draws, stats.laplace(scale=3.1).cdf).pvalue < 1e-6


def test_scale_is_sensitivity_over_epsilon_in_every_row():
    epsilon = np.array([0.5, 2.0])
    noise = PerCoordinate(sensitivity=0.1).protect(torch.zeros(2, 100_000), epsilon, generators()).numpy().astype(np.float64)
    for row, scale in ((0, 0.2), (1, 0.05)):
        assert stats.kstest(noise[row], stats.laplace(scale=scale).cdf).pvalue > 1e-3
    # Rows and coordinates are independent: a correlation of 100,000 pairs has sd .0032.
    assert abs(np.corrcoef(noise)[0, 1]) < 0.015
    assert abs(np.corrcoef(noise[0, ::2], noise[0, 1::2])[0, 1]) < 0.02


@pytest.mark.parametrize(
    "mechanism",
    [
        NoMechanism(),
        PerCoordinate(sensitivity=0.1),
        L1(sensitivity=0.1),
        GaussianPerCoordinate(sensitivity=0.1, delta=1e-5),
        L2(sensitivity=0.1, delta=1e-5),
    ],
)
def test_an_infinite_budget_changes_nothing(mechanism):
    updates = torch.tensor([[3.0, -7.0], [0.01, 0.0]])
    assert torch.equal(mechanism.protect(updates, np.array([INF, INF]), generators()), updates)
    assert updates.tolist() == [[3.0, -7.0], pytest.approx([0.01, 0.0])]


def without_noise(mechanism, updates):
    # The same generator: the noise is what comes out for an update of zeros.
    epsilon = np.ones(len(updates))
    noise = mechanism.protect(torch.zeros_like(updates), epsilon, generators())
    return mechanism.protect(updates, epsilon, generators()) - noise


def test_per_coordinate_clamps_by_hand():
    updates = torch.tensor([[3.0, -7.0, 0.04, -0.05], [float("nan"), INF, -INF, 0.0]])
    bounded = without_noise(PerCoordinate(sensitivity=0.1), updates)
    torch.testing.assert_close(bounded, torch.tensor([[0.05, -0.05, 0.04, -0.05], [0.0, 0.05, -0.05, 0.0]]), atol=1e-6, rtol=0)


def test_l1_scales_by_hand():
    updates = torch.tensor([[3.0, -1.0, 0.0, 0.0], [0.01, 0.0, -0.02, 0.01], [0.0, 0.0, 0.0, 0.0], [float("nan"), 1.0, 0.0, 0.0]])
    bounded = without_noise(L1(sensitivity=0.2), updates)
    expected = torch.tensor([[0.075, -0.025, 0.0, 0.0], [0.01, 0.0, -0.02, 0.01], [0.0] * 4, [0.0, 0.1, 0.0, 0.0]])
    torch.testing.assert_close(bounded, expected, atol=1e-6, rtol=0)


def test_any_two_updates_are_within_the_sensitivity():
    updates = torch.from_numpy(np.random.default_rng(1).normal(size=(40, 30)) * np.logspace(-4, 4, 40)[:, None]).float()
    bounded = without_noise(L1(sensitivity=0.5), updates).double()
    assert torch.cdist(bounded, bounded, p=1).max() <= 0.5 + 1e-4
    coordinates = without_noise(PerCoordinate(sensitivity=0.5), updates)
    assert coordinates.abs().max() <= 0.25 + 1e-5


def test_the_ratio_of_output_densities_is_the_budget():
    # One coordinate, the two extreme inputs of sensitivity 1: log of the ratio of histogram cells within epsilon = 1 (+ 5 sd).
    mechanism, epsilon = PerCoordinate(sensitivity=1.0), np.array([1.0])
    outputs = [
        mechanism.protect(torch.full((1, 400_000), sign), epsilon, generators(k))[0].numpy() for k, sign in enumerate((9.0, -9.0))
    ]
    counts = [np.histogram(out, np.linspace(-3, 3, 25))[0] for out in outputs]
    ratio = np.abs(np.log(counts[0] / counts[1]))
    deviation = np.sqrt(1 / counts[0] + 1 / counts[1])
    assert (ratio < 1 + 5 * deviation).all()
    assert ratio.max() > 0.95


def test_an_underflown_budget_is_infinite_noise():
    out = PerCoordinate(sensitivity=0.1).protect(torch.zeros(1, 3), np.array([0.0]), generators())
    assert not out.isfinite().any()


@pytest.mark.parametrize("sensitivity", [0.0, -1.0, INF, float("nan")])
@pytest.mark.parametrize("kind", [PerCoordinate, L1])
def test_bad_sensitivities_are_refused(kind, sensitivity):
    with pytest.raises(ValueError, match=r"^mechanism\.sensitivity = "):
        kind(sensitivity=sensitivity)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, float("nan")])
@pytest.mark.parametrize("kind", [GaussianPerCoordinate, L2])
def test_bad_deltas_are_refused(kind, delta):
    with pytest.raises(ValueError, match=r"^mechanism\.delta = "):
        kind(sensitivity=1.0, delta=delta)
    with pytest.raises(ValueError, match=r"^mechanism\.sensitivity = "):
        kind(sensitivity=delta, delta=0.1) if delta != 1.0 else kind(sensitivity=INF, delta=0.1)


def hockey_stick(sigma: float, epsilon: float) -> float:
    """The largest P(E) - e^epsilon Q(E) over events E, for P and Q normal and one apart."""
    p, q = stats.norm(1, sigma), stats.norm(0, sigma)
    # The densities' ratio rises: it exceeds e^epsilon from this point on.
    point = 0.5 + epsilon * sigma**2
    return float(p.sf(point) - np.exp(epsilon + q.logsf(point)))


@pytest.mark.parametrize("epsilon", [1e-9, 0.01, 0.5, 1.0, 4.0, 40.0, 200.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.1])
def test_gaussian_noise_is_calibrated_exactly(epsilon, delta):
    sigma = gaussian_scale(epsilon, delta)
    assert hockey_stick(sigma, epsilon) <= delta * (1 + 1e-5)
    assert hockey_stick(sigma * 0.999, epsilon) > delta
    if epsilon < 1:
        # The classic calibration is enough there, and more than enough.
        assert sigma < np.sqrt(2 * np.log(1.25 / delta)) / epsilon


def test_gaussian_noise_has_its_law():
    mechanism = L2(sensitivity=0.1, delta=1e-3)
    noise = mechanism.protect(torch.zeros(2, 100_000), np.array([0.5, 8.0]), generators()).numpy().astype(np.float64)
    for row, epsilon in ((0, 0.5), (1, 8.0)):
        law = stats.norm(scale=0.1 * gaussian_scale(epsilon, 1e-3))
        assert stats.kstest(noise[row], law.cdf).pvalue > 1e-3
    assert abs(np.corrcoef(noise)[0, 1]) < 0.015


def test_l2_scales_by_hand():
    updates = torch.tensor([[3.0, -4.0, 0.0], [0.01, 0.02, 0.02], [0.0, 0.0, 0.0], [float("nan"), 1.0, INF]])
    bounded = without_noise(L2(sensitivity=0.2, delta=0.1), updates)
    expected = torch.tensor([[0.06, -0.08, 0.0], [0.01, 0.02, 0.02], [0.0] * 3, [0.0, 0.1, 0.0]])
    torch.testing.assert_close(bounded, expected, atol=1e-6, rtol=0)
    clamped = without_noise(GaussianPerCoordinate(sensitivity=0.1, delta=0.1), updates)
    expected = torch.tensor([[0.05, -0.05, 0.0], [0.01, 0.02, 0.02], [0.0] * 3, [0.0, 0.05, 0.05]])
    torch.testing.assert_close(clamped, expected, atol=1e-6, rtol=0)


def test_any_two_updates_are_within_the_l2_sensitivity():
    updates = torch.from_numpy(np.random.default_rng(1).normal(size=(40, 30)) * np.logspace(-4, 4, 40)[:, None]).float()
    bounded = without_noise(L2(sensitivity=0.5, delta=0.1), updates).double()
    assert torch.cdist(bounded, bounded, p=2).max() <= 0.5 + 1e-4


def test_a_spent_budget_still_has_its_delta():
    out = L2(sensitivity=0.1, delta=1e-3).protect(torch.zeros(1, 10_000), np.array([0.0]), generators())
    # (0, delta)-LDP: total variation delta, sigma = 1/(2 Phi^-1((1 + delta)/2)).
    assert out.std().item() == pytest.approx(0.1 / 2 / stats.norm.ppf((1 + 1e-3) / 2), rel=0.03)

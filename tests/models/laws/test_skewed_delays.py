"""Gamma and Weibull laws of durations, against distribution theory and the exponential law that both contain."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from models.errors import ParameterError
from models.laws.skewed_delays import Gamma, Weibull

U = np.array([0.0, 0.001, 0.3, 0.5, 0.9, 1.0 - 2.0**-53])
FIRST = np.zeros(len(U), np.int64)


@pytest.mark.parametrize("shape", [0.5, 1.0, 4.0])
def test_quantiles_are_those_of_the_named_law(shape: float) -> None:
    gamma, weibull = Gamma(mean_s=3.0, shape=shape), Weibull(scale_s=3.0, shape=shape)
    np.testing.assert_allclose(gamma.quantile(U, FIRST), stats.gamma(shape, scale=3.0 / shape).ppf(U), rtol=1e-9)
    np.testing.assert_allclose(weibull.quantile(U, FIRST), stats.weibull_min(shape, scale=3.0).ppf(U), rtol=1e-9)


@pytest.mark.parametrize("law", [Gamma(mean_s=2.0, shape=1.0), Weibull(scale_s=2.0, shape=1.0)])
def test_shape_one_is_the_exponential_law(law: Gamma | Weibull) -> None:
    np.testing.assert_allclose(law.quantile(U, FIRST), -2.0 * np.log1p(-U), rtol=1e-9)


@pytest.mark.parametrize("law", [Gamma(mean_s=2.5, shape=3.0), Weibull(scale_s=2.5, shape=1.5)])
def test_the_stated_mean_is_the_integral_of_the_quantiles(law: Gamma | Weibull) -> None:
    mean, error = integrate.quad(lambda u: law.quantile(np.array([u]), np.zeros(1, np.int64)).item(), 0.0, 1.0)
    assert law.mean_s(np.zeros(1, np.int64)).item() == pytest.approx(mean, abs=max(1e-6, 10 * error))


def test_parameters_may_differ_between_clients() -> None:
    law = Weibull(scale_s=np.array([1.0, 2.0]), shape=np.array([1.0, 1.0]))
    np.testing.assert_allclose(law.quantile(np.array([0.5, 0.5]), np.array([1, 0])), 2.0 * np.log(2.0) / np.array([1.0, 2.0]))


@pytest.mark.parametrize(
    ("law", "parameters", "message"),
    [
        (Gamma, {"mean_s": 1.0, "shape": 0.0}, "shape = 0.0: must be finite and in \\[0.01, 1e"),
        (Gamma, {"mean_s": -1.0, "shape": 1.0}, "mean_s = -1.0"),
        (Weibull, {"scale_s": np.inf, "shape": 1.0}, "scale_s = inf"),
        (Weibull, {"scale_s": [1.0, 2.0], "shape": [1.0, 2.0, 3.0]}, "shape has 3 entries: must have 2"),
    ],
)
def test_bad_parameters_are_refused(law: type[Gamma | Weibull], parameters: dict[str, float], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        law(**parameters)

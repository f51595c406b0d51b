"""Laws fitted to durations that a deadline cut off: by hand, against theory, and the coverage of intervals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from scenarios.fit.durations import Durations, UnfitError, curvature, fit_laws


def cut(times: np.ndarray, deadline_s: float) -> Durations:
    """Return `times` as a server with a deadline sees them."""
    return Durations.sort(np.minimum(times, deadline_s), times > deadline_s)


def law(durations: Durations, kind: str):
    return next(law for law in fit_laws(durations) if law.kind == kind)


def test_the_shifted_exponential_by_hand() -> None:
    # Complete 2, 3 and 5 s, one bound at 6 s: beyond the first they sum to 0 + 1 + 3 + 4 = 8 s over 3 - 1 ends, 4 s; the shift
    # is 2 - 4 / 4 = 1 s.
    fitted = law(Durations.sort(np.array([3.0, 6.0, 2.0, 5.0]), np.array([False, True, False, False])), "shifted-exponential")
    assert fitted.parameters["mean_excess_s"].value == pytest.approx(4.0)
    assert fitted.parameters["shift_s"].value == pytest.approx(1.0)


def test_complete_log_normal_times_give_mean_and_deviation_of_the_logarithms() -> None:
    times = np.exp(np.array([0.1, 0.5, 0.9, 1.4, 2.0]))
    fitted = law(Durations.sort(times, np.zeros(5, bool)), "log-normal")
    assert fitted.parameters["median_s"].value == pytest.approx(np.exp(0.98), rel=1e-5)
    assert fitted.parameters["sigma"].value == pytest.approx(np.std([0.1, 0.5, 0.9, 1.4, 2.0]), rel=1e-5)


def test_the_survival_estimate_is_that_of_scipy() -> None:
    rng = np.random.default_rng(3)
    times, censored = np.round(rng.gamma(2.0, 1.0, 300), 1) + 0.1, rng.random(300) < 0.3
    expected = stats.ecdf(stats.CensoredData(times[~censored], right=times[censored])).sf
    at, survival = Durations.sort(times, censored).survival()
    np.testing.assert_allclose(survival, expected.probabilities[np.isin(expected.quantiles, at)], atol=1e-12)


@pytest.mark.parametrize("quantile", [0.66, 0.41])
def test_a_deadline_biases_naive_means_and_not_the_censored_estimate(quantile: float) -> None:
    times = np.random.default_rng(5).lognormal(np.log(4.0), 0.6, 400)
    deadline_s = float(np.quantile(times, quantile))
    mean_s = 4.0 * np.exp(0.18)
    fitted = law(cut(times, deadline_s), "log-normal")
    estimate = fitted.parameters["median_s"].value * np.exp(0.5 * fitted.parameters["sigma"].value ** 2)
    assert times[times <= deadline_s].mean() < 0.72 * mean_s
    assert np.minimum(times, deadline_s).mean() < 0.85 * mean_s
    # The standard error of the censored mean is some 5 % here.
    assert estimate == pytest.approx(mean_s, rel=0.15)


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(("deviation", "late_s"), [(0.01, 2.0), (0.001, 1.2), (0.05, 100.0)])
def test_one_censored_time_far_beyond_the_others_keeps_no_law_from_its_maximum(deviation: float, late_s: float) -> None:
    times = 1.0 + deviation * np.random.default_rng(1).standard_normal(200)
    times[-1] = late_s
    durations = Durations.sort(times, np.arange(200) == 199)
    for kind, distribution in DISTRIBUTIONS.items():
        fitted = law(durations, kind)
        logs = np.log([estimate.value for estimate in fitted.parameters.values()])
        assert all(estimate.low < estimate.value < estimate.high < np.inf for estimate in fitted.parameters.values())
        for shift in 0.002 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]]):
            other = distribution(*np.exp(logs + shift))
            assert other.logpdf(times[:-1]).sum() + other.logsf(late_s) < fitted.log_likelihood


DISTRIBUTIONS = {
    "log-normal": lambda median, sigma: stats.lognorm(sigma, scale=median),
    "gamma": lambda mean, shape: stats.gamma(shape, scale=mean / shape),
    "weibull": lambda scale, shape: stats.weibull_min(shape, scale=scale),
}
FAMILIES = {
    "gamma": (lambda rng, n: rng.gamma(3.0, 2.0 / 3.0, n), {"mean_s": 2.0, "shape": 3.0}),
    "weibull": (lambda rng, n: 2.0 * rng.weibull(1.5, n), {"scale_s": 2.0, "shape": 1.5}),
    "log-normal": (lambda rng, n: rng.lognormal(np.log(2.0), 0.5, n), {"median_s": 2.0, "sigma": 0.5}),
    "shifted-exponential": (lambda rng, n: 1.0 + rng.exponential(2.0, n), {"shift_s": 1.0, "mean_excess_s": 2.0}),
}


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("kind", sorted(FAMILIES))
def test_the_true_law_is_chosen_from_many_durations(kind: str) -> None:
    draw, truth = FAMILIES[kind]
    best, *_ = fit_laws(cut(draw(np.random.default_rng(7), 3000), 4.0))
    assert best.kind == kind
    for key, value in truth.items():
        assert best.parameters[key].value == pytest.approx(value, rel=0.1)
        assert best.parameters[key].low < best.parameters[key].value <= best.parameters[key].high


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(FAMILIES))
def test_intervals_cover_the_truth_as_often_as_they_say(kind: str) -> None:
    draw, truth = FAMILIES[kind]
    covered = dict.fromkeys(truth, 0)
    seeds = 100
    for seed in range(seeds):
        fitted = law(cut(draw(np.random.default_rng(seed), 150), 3.0), kind)
        for key, value in truth.items():
            covered[key] += fitted.parameters[key].low <= value <= fitted.parameters[key].high
    # 95 % of 100 is 95; with fixed seeds a right interval lies outside of these bounds with probability 1e-4.
    least = stats.binom.ppf(1e-4, seeds, 0.95)
    assert min(covered.values()) >= least, covered


def test_equal_durations_are_a_constant() -> None:
    (only,) = fit_laws(Durations.sort(np.full(5, 2.5), np.zeros(5, bool)))
    assert only.table() == {"kind": "constant", "value_s": 2.5}


@pytest.mark.parametrize(
    ("seconds", "censored", "message"),
    [([1.0, 2.0], [True, True], "all 2 durations are cut off"), ([1.0, 2.0], [False, True], "at least 2 complete durations")],
)
def test_durations_that_determine_nothing_are_refused(seconds: list[float], censored: list[bool], message: str) -> None:
    with pytest.raises(UnfitError, match=message):
        fit_laws(Durations.sort(np.array(seconds), np.array(censored)))


def test_many_durations_are_counted_and_give_the_same_law(monkeypatch: pytest.MonkeyPatch) -> None:
    times = np.random.default_rng(11).gamma(2.0, 1.0, 3000)
    exact = cut(times, 4.0)
    monkeypatch.setattr("scenarios.fit.durations._MOST_EXACT", 1000)
    counted = cut(times, 4.0)
    assert counted.number == exact.number == len(exact.seconds) == 3000
    assert len(counted.seconds) < 3000
    for key in ("mean_s", "shape"):
        assert law(counted, "gamma").parameters[key].value == pytest.approx(law(exact, "gamma").parameters[key].value, rel=0.01)


def test_the_empirical_law_has_the_quantiles_of_the_data() -> None:
    times = np.random.default_rng(2).gamma(2.0, 1.0, 5000)
    fitted = law(Durations.sort(times, np.zeros(5000, bool)), "empirical")
    values = np.array(fitted.table()["values_s"])
    np.testing.assert_allclose(np.median(values), np.median(times), rtol=0.02)
    np.testing.assert_allclose(values.mean(), times.mean(), rtol=0.02)


def test_the_curvature_of_a_quadratic_is_its_matrix() -> None:
    matrix = np.array([[4.0, 1.0, -2.0], [1.0, 3.0, 0.5], [-2.0, 0.5, 5.0]])
    found = curvature(lambda at: float(at @ matrix @ at) / 2.0, np.array([0.3, -1.0, 2.0]))
    np.testing.assert_allclose(found, matrix, atol=1e-6)

"""Laws of durations: by hand, against distribution theory, and the properties that every law must have."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from models.laws.delays import (
    ByGroup,
    Constant,
    DelayLaw,
    Empirical,
    Gaussian,
    LogNormal,
    ShiftedExponential,
    SizeDependent,
    Uniform,
)

ONE = np.zeros(1, dtype=np.int64)
LAST_U = 1.0 - 2.0**-53


def q(law: DelayLaw, u: float, client: int = 0) -> float:
    return float(law.quantile(np.array([u]), np.array([client]))[0])


def mean(law: DelayLaw, client: int = 0) -> float:
    return float(law.mean_s(np.array([client]))[0])


# --- by hand


def test_constant() -> None:
    law = Constant(value_s=np.array([1.0, 2.5]))
    np.testing.assert_array_equal(law.quantile(np.array([0.0, 0.9, 0.5]), np.array([1, 0, 1])), [2.5, 1.0, 2.5])
    np.testing.assert_array_equal(Constant(value_s=3).mean_s(np.array([5, 9])), [3.0, 3.0])


def test_gaussian_by_hand() -> None:
    law = Gaussian(mean_s=np.array([0.2, 0.06]), std_s=0.05, floor_s=0.05)
    # Phi(1) = 0.841344746...; Phi(-1) of client 1 is 0.01 s, clipped to the floor.
    assert q(law, 0.5) == 0.2
    assert q(law, 0.8413447460685429) == pytest.approx(0.25, abs=1e-12)
    assert q(law, 1 - 0.8413447460685429, client=1) == 0.05
    # Floor at the mean: E max(X, mean) = mean + std / sqrt(2 pi); conditioned on X >= mean the excess is twice that.
    assert mean(Gaussian(mean_s=1.0, std_s=0.5, floor_s=1.0)) == pytest.approx(1 + 0.5 / math.sqrt(2 * math.pi), rel=1e-14)
    half = Gaussian(mean_s=1.0, std_s=0.5, floor_s=1.0, floor="resample")
    assert mean(half) == pytest.approx(1 + 1.0 / math.sqrt(2 * math.pi), rel=1e-14)
    # The median of a half-normal law is the upper quartile of the normal law.
    assert q(half, 0.5) == pytest.approx(1 + 0.5 * stats.norm.ppf(0.75), rel=1e-14)


@pytest.mark.parametrize("floor", ["clip", "resample"])
def test_gaussian_without_deviation_is_the_larger_of_mean_and_floor(floor: Any) -> None:
    law = Gaussian(mean_s=np.array([0.3, 0.01]), std_s=0.0, floor_s=0.05, floor=floor)
    for u in (0.0, 0.5, LAST_U):
        assert [q(law, u, 0), q(law, u, 1)] == [0.3, 0.05]
    assert [mean(law, 0), mean(law, 1)] == [0.3, 0.05]
    assert law.constant
    mixed = Gaussian(mean_s=0.3, std_s=np.array([0.0, 0.1]), floor_s=0.05, floor=floor)
    assert not mixed.constant
    assert q(mixed, 0.9, 0) == 0.3
    assert q(mixed, 0.9, 1) > 0.3


def test_exponential_lognormal_and_size_by_hand() -> None:
    exponential = ShiftedExponential(shift_s=2.0, mean_excess_s=3.0)
    assert q(exponential, 0.0) == 2.0
    assert q(exponential, 0.5) == pytest.approx(2 + 3 * math.log(2), rel=1e-15)
    assert mean(exponential) == 5.0
    lognormal = LogNormal(median_s=2.0, sigma=0.5)
    assert q(lognormal, 0.5) == 2.0
    assert mean(lognormal) == pytest.approx(2 * math.exp(0.125), rel=1e-15)
    sized = SizeDependent(payload_bytes=1000, bandwidth_bytes_per_s=np.array([100.0, 500.0]), delay=exponential)
    assert [q(sized, 0.0, 0), q(sized, 0.0, 1)] == [12.0, 4.0]
    assert [mean(sized, 0), mean(sized, 1)] == [15.0, 7.0]


def test_groups_by_hand() -> None:
    law = ByGroup(laws=[Constant(value_s=1.0), ShiftedExponential(shift_s=2.0, mean_excess_s=1.0)], group_of=np.array([1, 0, 1]))
    np.testing.assert_array_equal(law.quantile(np.zeros(4), np.array([2, 1, 0, 1])), [2.0, 1.0, 2.0, 1.0])
    np.testing.assert_array_equal(law.mean_s(np.array([0, 1])), [3.0, 1.0])
    assert not law.constant
    assert ByGroup(laws=[Constant(value_s=1.0)], group_of=np.array([0, 0])).constant


# --- files


def test_empirical_from_values_and_files(tmp_path: Path) -> None:
    law = Empirical(values_s=[3.0, 1.0, 2.0, 2.0])
    assert [q(law, u) for u in (0.0, 0.2499, 0.25, 0.7499, 0.75, LAST_U)] == [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
    assert mean(law) == 2.0
    plain = tmp_path / "plain.txt"
    plain.write_text("# measured\n3\n\n1.0\n2\n2e0\n")
    table = tmp_path / "table.csv"
    table.write_text("client,duration_s\na,3\nb,1\nc,2\nd,2\n")
    for path in (plain, table):
        np.testing.assert_array_equal(Empirical(path=str(path)).values_s, [1.0, 2.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no durations"),
        ("duration_s\n", "holds no durations"),
        ("1\n2\nfast\n", "line 3: 'fast' is not a number"),
        ("1\n-2\n", "line 2: '-2': must be finite and >= 0"),
        ("1\nnan\n", "line 2: 'nan': must be finite"),
        ("inf\n", "line 1: 'inf': must be finite"),
        ("client,latency\na,3\n", "line 1: no column is headed duration_s, but client, latency"),
        ("client,duration_s\na,3\nb\n", "line 3: '' is not a number"),
    ],
)
def test_malformed_files_are_refused_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "durations.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        Empirical(path=str(path))
    assert str(caught.value).startswith(f"path = {str(path)!r}")


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    binary = tmp_path / "x.bin"
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "none.csv", tmp_path, binary):
        with pytest.raises(ValueError, match=r"^path = .*cannot be read"):
            Empirical(path=str(path))


# --- bad values


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constant(value_s=-1.0), r"^value_s = -1.0: must be finite and >= 0 seconds"),
        (lambda: Constant(value_s=np.array([1.0, math.nan])), "^value_s = nan for client 1"),
        (lambda: Constant(value_s=np.ones((2, 2))), r"^value_s has shape \(2, 2\)"),
        (lambda: Constant(value_s="fast"), "^value_s = 'fast': must be a number"),
        (lambda: Gaussian(mean_s=math.inf, std_s=1.0), "^mean_s = inf"),
        (lambda: Gaussian(mean_s=1.0, std_s=-0.1), "^std_s = -0.1"),
        (lambda: Gaussian(mean_s=1.0, std_s=0.1, floor_s=-1.0), "^floor_s = -1.0"),
        (lambda: Gaussian(mean_s=1.0, std_s=0.1, floor="cut"), "^floor = 'cut': must be 'clip' or 'resample'"),
        (lambda: Gaussian(mean_s=np.ones(3), std_s=np.ones(4)), "^std_s has 4 entries: must have 3"),
        (lambda: ShiftedExponential(shift_s=0.0, mean_excess_s=-1.0), "^mean_excess_s = -1.0"),
        (lambda: LogNormal(median_s=1.0, sigma=31.0), r"^sigma = 31.0: must be finite and in \[0, 30\]"),
        (lambda: Empirical(), "^path = None: give either path or values_s"),
        (lambda: Empirical(path="x", values_s=[1.0]), "give either path or values_s"),
        (lambda: Empirical(values_s=[]), "^values_s = "),
        (lambda: Empirical(values_s=[1.0, -2.0]), "^values_s = -2.0"),
        (
            lambda: ByGroup(laws=[Constant(value_s=1.0)], group_of=np.array([0, 1])),
            "^group_of runs from 0 to 1: must lie in 0..0",
        ),
        (lambda: ByGroup(laws=[Constant(value_s=1.0)], group_of=np.array([0.0])), "^group_of has shape"),
        (
            lambda: SizeDependent(payload_bytes=1, bandwidth_bytes_per_s=0.0, delay=Constant(value_s=0.0)),
            "^bandwidth_bytes_per_s = 0.0: must be finite and > 0 bytes per second",
        ),
        (
            lambda: SizeDependent(payload_bytes=-1, bandwidth_bytes_per_s=1.0, delay=Constant(value_s=0.0)),
            "^payload_bytes = -1.0",
        ),
    ],
)
def test_bad_values_are_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# --- theory

U = np.concatenate((2.0 ** -np.arange(1, 50.0), np.linspace(0.001, 0.999, 200), 1 - 2.0 ** -np.arange(2, 50.0)))
AT = np.zeros(len(U), dtype=np.int64)


@pytest.mark.parametrize("floor_s", [0.0, 0.05, 0.2, 0.24, 0.5, 0.9])
def test_truncated_normal_agrees_with_scipy(floor_s: float) -> None:
    law = Gaussian(mean_s=0.2, std_s=0.05, floor_s=floor_s, floor="resample")
    reference = stats.truncnorm((floor_s - 0.2) / 0.05, np.inf, loc=0.2, scale=0.05)
    x = law.quantile(U, AT)
    middle = (U > 0.001) & (U < 0.999)
    np.testing.assert_allclose(x[middle], reference.ppf(U[middle]), rtol=1e-9)
    assert mean(law) == pytest.approx(reference.mean(), rel=1e-9)
    # At both ends by the definition, in the tail that keeps its digits: P(X > x) = (1 - u) P(X > floor). A duration near
    # the floor has a resolution of 1e-16 s; the density times that is what u can be off.
    z, a = (x - 0.2) / 0.05, (floor_s - 0.2) / 0.05
    np.testing.assert_allclose(stats.norm.sf(z), (1 - U) * stats.norm.sf(a), rtol=1e-11)
    if a < 0:
        np.testing.assert_allclose(stats.norm.cdf(z) - stats.norm.cdf(a), U * stats.norm.sf(a), rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("depth", [30.0, 45.0, 1e3, 0.99e4, 1.01e4, 1e6, 1e300])
def test_truncation_far_in_the_tail_is_exponential(depth: float) -> None:
    # P(Z > a + e/a | Z > a) -> exp(-e): with a the floor in deviations, (x - floor) a / std is exponential to within O(1/a^2).
    std = 1.0 / depth
    law = Gaussian(mean_s=0.0, std_s=std, floor_s=1.0, floor="resample")
    u = np.array([0.0, 0.1, 0.5, 0.9, 0.999])
    excess = law.quantile(u, np.zeros(5, dtype=np.int64)) - 1.0
    assert (excess >= 0).all()
    # Durations near 1 s are good to 1e-12 s.
    np.testing.assert_allclose(excess, -np.log1p(-u) * std / depth, rtol=30.0 / depth / depth, atol=1e-12)
    assert mean(law) - 1.0 == pytest.approx(std / depth, rel=3.0 / depth / depth, abs=1e-12)


def test_deep_and_ordinary_clients_side_by_side() -> None:
    floors = np.array([0.05, 0.9, 2.0])
    law = Gaussian(mean_s=0.2, std_s=np.array([0.05, 0.05, 1e-5]), floor_s=floors, floor="resample")
    for u in (0.0, 0.3, LAST_U):
        together = law.quantile(np.full(3, u), np.arange(3))
        alone = [
            q(Gaussian(mean_s=0.2, std_s=s, floor_s=f, floor="resample"), u)
            for s, f in zip((0.05, 0.05, 1e-5), floors, strict=True)
        ]
        np.testing.assert_array_equal(together, alone)


def test_quantiles_agree_with_scipy() -> None:
    clip = Gaussian(mean_s=0.2, std_s=0.1, floor_s=0.05)
    np.testing.assert_allclose(clip.quantile(U, AT), np.maximum(stats.norm(0.2, 0.1).ppf(U), 0.05), rtol=1e-12)
    exponential = ShiftedExponential(shift_s=0.1, mean_excess_s=0.4)
    np.testing.assert_allclose(exponential.quantile(U, AT), stats.expon(0.1, 0.4).ppf(U), rtol=1e-12)
    lognormal = LogNormal(median_s=0.3, sigma=0.7)
    np.testing.assert_allclose(lognormal.quantile(U, AT), stats.lognorm(0.7, scale=0.3).ppf(U), rtol=1e-12)


LAWS: list[Any] = [
    Constant(value_s=0.3),
    Gaussian(mean_s=0.2, std_s=0.05, floor_s=0.05),
    Gaussian(mean_s=0.06, std_s=0.05, floor_s=0.05),
    Gaussian(mean_s=0.06, std_s=0.05, floor_s=0.2),
    Gaussian(mean_s=0.06, std_s=0.05, floor_s=0.05, floor="resample"),
    Gaussian(mean_s=0.06, std_s=0.05, floor_s=0.8, floor="resample"),
    ShiftedExponential(shift_s=0.1, mean_excess_s=0.4),
    LogNormal(median_s=0.3, sigma=0.7),
    Uniform(low_s=0.1, high_s=0.5),
    Empirical(values_s=[0.1, 0.2, 0.2, 0.7, 1.3]),
    ByGroup(laws=[LogNormal(median_s=0.3, sigma=0.2)], group_of=np.zeros(3, dtype=np.int64)),
    SizeDependent(payload_bytes=10, bandwidth_bytes_per_s=40.0, delay=ShiftedExponential(shift_s=0.0, mean_excess_s=1.0)),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_mean_is_the_integral_of_the_quantile(law: Any) -> None:
    # Over the normal score z, u = Phi(z); the steps of the sample, at multiples of 1/5, are given to the quadrature.
    ends = [-8.2, *stats.norm.ppf([0.2, 0.4, 0.6, 0.8]), *stats.norm.ppf(stats.norm.cdf([-0.2, 2.8])), 8.2]

    def integrand(z: float) -> float:
        return q(law, min(float(stats.norm.cdf(z)), LAST_U)) * float(np.exp(-z * z / 2)) / math.sqrt(2 * math.pi)

    ends = sorted(ends)
    total = sum(integrate.quad(integrand, a, b, epsabs=1e-11, epsrel=1e-9, limit=200)[0] for a, b in pairwise(ends))
    assert mean(law) == pytest.approx(total, rel=1e-7)


@pytest.mark.parametrize(
    ("law", "cdf"),
    [
        (
            Gaussian(mean_s=0.06, std_s=0.05, floor_s=0.05, floor="resample"),
            stats.truncnorm(-0.2, np.inf, loc=0.06, scale=0.05).cdf,
        ),
        (Gaussian(mean_s=1.0, std_s=0.05), stats.norm(1.0, 0.05).cdf),
        (ShiftedExponential(shift_s=0.1, mean_excess_s=0.4), stats.expon(0.1, 0.4).cdf),
        (LogNormal(median_s=0.3, sigma=0.7), stats.lognorm(0.7, scale=0.3).cdf),
    ],
)
def test_samples_follow_the_law(law: Any, cdf: Any) -> None:
    u = np.random.default_rng(5).random(20_000)
    assert stats.kstest(law.quantile(u, np.zeros(len(u), dtype=np.int64)), cdf).pvalue > 1e-4


# --- properties

seconds = st.floats(0.0, 1e6)
per_client = st.lists(seconds, min_size=4, max_size=4).map(np.array) | seconds
small = st.floats(0.0, 30.0)


@st.composite
def any_law(draw: st.DrawFn) -> Any:
    kind = draw(st.integers(0, 5))
    a, b, c = draw(per_client), draw(per_client), draw(per_client)
    if kind == 0:
        return Gaussian(mean_s=a, std_s=b, floor_s=c, floor=draw(st.sampled_from(["clip", "resample"])))
    if kind == 1:
        return ShiftedExponential(shift_s=a, mean_excess_s=b)
    if kind == 2:
        return LogNormal(median_s=a, sigma=draw(small))
    if kind == 3:
        return Empirical(values_s=draw(st.lists(seconds, min_size=1, max_size=9)))
    if kind == 4:
        laws = [Constant(value_s=a), ShiftedExponential(shift_s=b, mean_excess_s=c)]
        return ByGroup(laws=laws, group_of=np.array(draw(st.lists(st.integers(0, 1), min_size=4, max_size=4))))
    return SizeDependent(
        payload_bytes=draw(seconds), bandwidth_bytes_per_s=np.add(1e-3, a), delay=LogNormal(median_s=b, sigma=1.0)
    )


@example(law=Gaussian(mean_s=0.0, std_s=1e-305, floor_s=1000.0, floor="resample"), us=[0.0])
@given(law=any_law(), us=st.lists(st.floats(0, LAST_U), min_size=1, max_size=8))
@settings(max_examples=100)
def test_every_law_is_finite_nonnegative_monotone_and_addressed(law: Any, us: list[float]) -> None:
    u = np.sort(np.array([0.0, *us, LAST_U]))
    for client in range(4):
        who = np.full(len(u), client)
        x = law.quantile(u, who)
        assert x.shape == u.shape
        assert np.isfinite(x).all()
        assert (x >= 0).all()
        # Rounding may move neighbours by a few units in the last place.
        assert (np.diff(x) >= -1e-14 * x[1:]).all()
        average = law.mean_s(who[:1])
        assert average.shape == (1,)
        assert x[0] * (1 - 1e-12) <= average[0] < np.inf
        if law.constant:
            np.testing.assert_allclose(x, average[0], rtol=1e-14)
    # A client's duration depends on its own draw and parameters only: not on its place, nor on who else is asked for.
    entities = np.array([3, 1, 0, 2, 1])
    draws = np.resize(u, 5)
    whole = law.quantile(draws, entities)
    means = law.mean_s(entities)
    for i in range(5):
        # Vectorised transcendental functions may differ from the scalar ones in the last place.
        np.testing.assert_allclose(law.quantile(draws[i : i + 1], entities[i : i + 1])[0], whole[i], rtol=1e-14)
        np.testing.assert_allclose(law.mean_s(entities[i : i + 1])[0], means[i], rtol=1e-14)
    assert law.quantile(np.empty(0), np.empty(0, dtype=np.int64)).shape == (0,)


def test_a_law_keeps_its_own_copy_of_its_parameters() -> None:
    given_s = np.array([1.0, 2.0])
    law = Constant(value_s=given_s)
    given_s[0] = 9.0
    answer = law.mean_s(np.arange(2))
    answer[1] = 9.0
    np.testing.assert_array_equal(law.mean_s(np.arange(2)), [1.0, 2.0])

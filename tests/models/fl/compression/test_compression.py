"""Compressions by hand, against their theory, and against an encoder that writes the bits of a message."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from models.errors import ParameterError
from models.fl.compression.bits import count_kept, share_of
from models.fl.compression.declared import Declared
from models.fl.compression.int8 import Int8
from models.fl.compression.none import NoCompression
from models.fl.compression.one_bit import OneBit
from models.fl.compression.qsgd import Qsgd
from models.fl.compression.random_k import RandomK
from models.fl.compression.sign import Sign
from models.fl.compression.top_k import TopK
from tests.helpers import message_codes as codes

SIZES = [6, 1, 10, 20]
NUMBERS = sum(SIZES)


def generators(seed: int = 0):
    return lambda row: np.random.default_rng([seed, row])


def refused_draws(row):
    raise AssertionError("this compression draws nothing")


def some(rows: int, numbers: int = NUMBERS, seed: int = 1) -> torch.Tensor:
    return torch.randn(rows, numbers, generator=torch.Generator().manual_seed(seed))


def bits(compression, *tensors: int) -> int:
    return compression.message_bytes(tensors) * 8


def test_sizes_by_hand():
    assert bits(NoCompression(), 700, 300) == 32_000
    # 10 of 1000 numbers: 32 bits each, and 10 bits that tell which of 1024; or a bit for each of the 1000.
    top = {"indices": 424, "bitmap": 1320, "shorter": 424}  # 420 bits are 53 bytes
    assert {how: bits(TopK(share=0.01, positions=how), 1000) for how in top} == top
    assert bits(RandomK(share=0.01), 1000) == 424
    assert bits(RandomK(share=0.01, positions="seed"), 1000) == 384
    # Where many are sent the bitmap is shorter: 500 x 10 bits against 1000.
    assert bits(TopK(share=0.5, positions="shorter"), 1000) == bits(RandomK(share=0.5, positions="bitmap"), 1000) == 17_000
    assert bits(TopK(share=0.5), 1000) == 21_000
    assert bits(Qsgd(levels=1), 1000) == 2032
    assert bits(Qsgd(levels=4), 1000) == 4032
    assert bits(Qsgd(levels=3, bucket=400), 700, 300) == 3000 + 3 * 32
    assert bits(Sign(), 1000) == 1000
    assert bits(OneBit(), 700, 300) == 1064
    assert bits(Sign(scale="mean"), 1000) == 1032
    assert bits(Int8(), 700, 300) == 8000 + 2 * 64
    assert bits(Declared(ratio=0.1), 1000) == 3200
    # A single number has one position, which takes no bit.
    assert bits(TopK(share=0.1), 1) == 32


def test_shares_are_of_what_is_written():
    # 0.07 x 100 and 0.1 x 30 are above 7 and 3 in binary.
    assert (share_of(0.07, 100), share_of(0.1, 30), share_of(1.0, 5)) == (7, 3, 5)
    assert (count_kept(0.001, 5), count_kept(0.3, 10), count_kept(0.31, 10)) == (1, 3, 4)


def test_top_k_by_hand():
    rows = torch.tensor([[1.0, -3.0, 2.0, 0.0], [5.0, 5.0, -5.0, 5.0], [0.0, 0.0, 0.0, 0.0]])
    assert TopK(share=0.5).compress(rows, [4], refused_draws).tolist() == [[0, -3, 2, 0], [5, 5, 0, 0], [0, 0, 0, 0]]
    assert TopK(share=0.01).compress(rows, [4], refused_draws).tolist() == [[0, -3, 0, 0], [5, 0, 0, 0], [0, 0, 0, 0]]
    assert TopK(share=1.0).compress(rows, [4], refused_draws).tolist() == rows.tolist()


@given(
    st.integers(1, 12).flatmap(lambda d: st.lists(st.lists(st.integers(-4, 4), min_size=d, max_size=d), min_size=1, max_size=4)),
    st.floats(0.01, 1.0),
)
def test_top_k_equals_a_sort_and_contracts(values, share):
    rows = torch.tensor(values, dtype=torch.float32)
    numbers = rows.shape[1]
    kept = count_kept(share, numbers)
    sent = TopK(share=share).compress(rows, [numbers], refused_draws)
    for row, after in zip(values, sent.tolist(), strict=True):
        largest = sorted(range(numbers), key=lambda i: (-abs(row[i]), i))[:kept]
        assert after == [row[i] if i in largest else 0 for i in range(numbers)]
    # ||x - C(x)||^2 <= (1 - k/d) ||x||^2
    assert ((rows - sent).square().sum(1) <= (1 - kept / numbers) * rows.square().sum(1) + 1e-9).all()


def test_qsgd_by_hand():
    # ||(3, 4)|| = 5, one level: each coordinate is 0 or 5, with probabilities .6 and .8.
    rows = torch.tensor([[3.0, 4.0]]).expand(4000, 2)
    sent = Qsgd(levels=1).compress(rows, [2], generators())
    assert sent.unique().tolist() == [0.0, 5.0]
    for column, probability in ((0, 0.6), (1, 0.8)):
        times = int((sent[:, column] == 5.0).sum())
        assert stats.binomtest(times, 4000, probability).pvalue > 1e-3
        assert stats.binomtest(times, 4000, probability + 0.05).pvalue < 1e-3
    # (||x||/s)^2 sum f (1 - f) = 25 (.24 + .16) = 10; the square error has a standard deviation of about 11.
    error = (sent - rows).square().sum(1).double()
    assert abs(float(error.mean()) - 10) < 4 * float(error.std()) / math.sqrt(4000)
    # Zeros stay zeros, without a division by their norm.
    assert Qsgd(levels=2).compress(torch.zeros(2, 3), [3], generators()).tolist() == [[0.0] * 3] * 2
    # Nor is there one where a norm is so small that the levels over it are beyond float32.
    assert Qsgd(levels=4).compress(torch.tensor([[1e-40, 0.0]]), [2], generators()).tolist() == [[0.0, 0.0]]
    # A vector of one number is its norm.
    assert Qsgd(levels=3).compress(torch.tensor([[-7.0]]), [1], generators()).tolist() == [[-7.0]]


@pytest.mark.parametrize("bucket", [None, 16])
def test_qsgd_is_unbiased_with_the_variance_of_its_levels(bucket):
    times, levels = 3000, 3
    x = some(1)
    sent = Qsgd(levels=levels, bucket=bucket).compress(x.expand(times, NUMBERS), SIZES, generators(5)).double()
    norms = torch.cat([piece.double().norm().expand(len(piece)) for piece in x[0].split(bucket or NUMBERS)])
    exact = x[0].abs().double() * levels / norms
    fraction = exact - exact.floor()
    variance = (norms / levels).square() * fraction * (1 - fraction)
    # The means of 37 coordinates, each with the standard deviation that theory gives it.
    z = (sent.mean(0) - x[0]) / (variance / times).sqrt()
    assert stats.chi2(NUMBERS).sf(float(z.square().sum())) > 1e-3
    measured = (sent - x[0]).square().sum(1)
    whole = float(variance.sum())
    assert abs(float(measured.mean()) - whole) < 4 * float(measured.std()) / math.sqrt(times)
    if bucket is None:
        assert whole <= min(NUMBERS / levels**2, math.sqrt(NUMBERS) / levels) * float(x.double().square().sum())


def test_random_k_is_unbiased_and_takes_every_set_alike():
    times, share = 4000, 0.25
    kept = count_kept(share, NUMBERS)
    x = some(1).abs() + 0.5
    sent = RandomK(share=share).compress(x.expand(times, NUMBERS), SIZES, generators(3))
    assert ((sent != 0).sum(1) == kept).all()
    torch.testing.assert_close(sent[sent != 0], (x * NUMBERS / kept).expand(times, NUMBERS)[sent != 0])
    probability = kept / NUMBERS
    counts = (sent != 0).sum(0).double()
    deviations = (counts - times * probability).square() / (times * probability * (1 - probability))
    # Sets without replacement: the deviations' sum is d/(d - 1) times a chi-square of d - 1 degrees.
    assert stats.chi2(NUMBERS - 1).sf(float(deviations.sum()) * (NUMBERS - 1) / NUMBERS) > 1e-3
    # Two neighbours are both sent with probability k (k - 1)/(d (d - 1)).
    pairs = int(((sent[:, 0] != 0) & (sent[:, 1] != 0)).sum())
    assert stats.binomtest(pairs, times, kept * (kept - 1) / (NUMBERS * (NUMBERS - 1))).pvalue > 1e-3
    unscaled = RandomK(share=share, scaled=False).compress(x, SIZES, generators())
    assert unscaled[unscaled != 0].tolist() == x[unscaled != 0].tolist()
    # E ||x - C(x)||^2 = (1 - k/d) ||x||^2
    left = (
        (x - RandomK(share=share, error_feedback=True).compress(x.expand(times, NUMBERS), SIZES, generators(4))).square().sum(1)
    )
    expected = (1 - probability) * float(x.square().sum())
    assert abs(float(left.mean()) - expected) < 4 * float(left.std()) / math.sqrt(times)


def test_int8_by_hand():
    rows = torch.tensor([[0.0, 255.0, 100.25, 7.0, 7.0, 7.0, -3.0]])
    nearest = Int8(rounding="nearest").compress(rows, [3, 3, 1], refused_draws)
    assert nearest.tolist() == [[0.0, 255.0, 100.0, 7.0, 7.0, 7.0, -3.0]]
    up = Int8().compress(rows.expand(2000, 7), [3, 3, 1], generators())[:, 2]
    assert up.unique().tolist() == [100.0, 101.0]
    assert stats.binomtest(int((up == 101.0).sum()), 2000, 0.25).pvalue > 1e-3


def test_int8_is_unbiased_within_a_step_of_each_tensor():
    times = 3000
    x = some(1, seed=4)
    sent = Int8().compress(x.expand(times, NUMBERS), SIZES, generators(2)).double()
    for values, after in zip(x[0].double().split(SIZES), sent.split(SIZES, 1), strict=True):
        step = float(values.max() - values.min()) / 255
        assert float((after - values).abs().max()) <= step * (1 + 1e-4)
        exact = (values - values.min()) / step if step else torch.zeros_like(values)
        fraction = exact - exact.floor()
        inside = (fraction > 0.02) & (fraction < 0.98)
        z = (after.mean(0) - values)[inside] / (step * (fraction * (1 - fraction) / times).sqrt()[inside])
        assert stats.chi2(max(1, int(inside.sum()))).sf(float(z.square().sum())) > 1e-3


def test_one_bit_by_hand():
    # Means of 2, 0, 1 and of -6, -3; of numbers that are all on one side, of zeros, and of one number.
    rows = torch.tensor([[2.0, -6.0, 0.0, -3.0, 1.0], [-1.0, -2.0, -3.0, -4.0, -5.0], [0.0] * 5])
    sent = OneBit().compress(rows, [5], refused_draws)
    assert sent.tolist() == [[1, -4.5, 1, -4.5, 1], [-3] * 5, [0] * 5]
    assert OneBit().compress(torch.tensor([[7.0]]), [1], refused_draws).tolist() == [[7]]
    # Of all ways to send one of two numbers for each, by these two sides, it leaves the least.
    x = some(1)
    left = (x - OneBit().compress(x, SIZES, refused_draws)).square().sum()
    for shift in (-0.1, 0.1):
        assert (x - OneBit().compress(x, SIZES, refused_draws) - shift * (x >= 0)).square().sum() > left
        assert (x - OneBit().compress(x, SIZES, refused_draws) - shift * (x < 0)).square().sum() > left


def test_signs_by_hand():
    rows = torch.tensor([[2.0, -6.0, 1.0, -3.0]])
    assert Sign().compress(rows, [4], refused_draws).tolist() == [[1, -1, 1, -1]]
    assert Sign(scale="mean").compress(rows, [4], refused_draws).tolist() == [[3, -3, 3, -3]]
    # The sign of a zero is as often + as -.
    zeros = torch.tensor([[0.0, 5.0]]).expand(2000, 2)
    sent = Sign().compress(zeros, [2], generators())
    assert (sent[:, 1] == 1).all()
    assert sent[:, 0].unique().tolist() == [-1.0, 1.0]
    assert stats.binomtest(int((sent[:, 0] == 1).sum()), 2000, 0.5).pvalue > 1e-3


ALL = {
    "none": NoCompression(),
    "top-k": TopK(share=0.1),
    "top-k-bitmap": TopK(share=0.3, positions="bitmap"),
    "random-k": RandomK(share=0.1),
    "random-k-seed": RandomK(share=0.2, positions="seed"),
    "random-k-bitmap": RandomK(share=0.5, positions="bitmap"),
    "qsgd": Qsgd(levels=5),
    "qsgd-buckets": Qsgd(levels=1, bucket=8),
    "int8": Int8(),
    "int8-nearest": Int8(rounding="nearest"),
    "one-bit": OneBit(),
    "sign": Sign(),
    "sign-mean": Sign(scale="mean"),
}


def written(name: str, row: torch.Tensor, sent: torch.Tensor) -> tuple[bytes, torch.Tensor]:
    """The message in which `sent` is written, and what a reader makes of it."""
    numbers = len(row)
    if name.startswith(("top-k", "random-k")):
        share = {"top-k": 0.1, "top-k-bitmap": 0.3, "random-k": 0.1, "random-k-seed": 0.2, "random-k-bitmap": 0.5}[name]
        positions = name.rpartition("-")[2] if name.endswith(("bitmap", "seed")) else "indices"
        data = codes.sparse(sent, count_kept(share, numbers), positions, seed=99)
        return data, codes.read_sparse(data, numbers, count_kept(share, numbers), positions)
    if name.startswith("qsgd"):
        levels, bucket = (5, numbers) if name == "qsgd" else (1, 8)
        data = codes.qsgd(row, sent, levels, bucket)
        return data, codes.read_qsgd(data, numbers, levels, bucket)
    if name.startswith("int8"):
        data = codes.bytes_of_levels(row, sent, SIZES)
        return data, codes.read_levels(data, SIZES)
    if name == "one-bit":
        return codes.two_means(sent, row >= 0), codes.read_two_means(codes.two_means(sent, row >= 0), numbers)
    if name.startswith("sign"):
        data = codes.signs(sent, name == "sign-mean")
        return data, codes.read_signs(data, numbers, name == "sign-mean")
    return row.numpy().tobytes(), torch.frombuffer(bytearray(row.numpy().tobytes()), dtype=torch.float32)


@pytest.mark.parametrize("name", ALL)
def test_a_message_of_the_stated_size_holds_what_arrives(name):
    rows = torch.cat([some(2), torch.zeros(1, NUMBERS)])
    rows[1, 4:9] = 0.0
    sent = ALL[name].compress(rows, SIZES, lambda row: np.random.default_rng(99))
    for row, after in zip(rows, sent, strict=True):
        data, read = written(name, row, after)
        assert len(data) == ALL[name].message_bytes(SIZES)
        torch.testing.assert_close(read, after, rtol=0, atol=0)


@pytest.mark.parametrize("name", ALL)
def test_clients_are_compressed_alike_in_any_company(name):
    rows = torch.cat([some(6), torch.zeros(1, NUMBERS)])
    before = rows.clone()
    together = ALL[name].compress(rows, SIZES, generators())
    for row in range(7):
        alone = ALL[name].compress(rows[row : row + 1], SIZES, lambda _, row=row: generators()(row))
        assert torch.equal(alone[0], together[row])
    assert torch.equal(rows, before)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: TopK(share=0.0), "share = 0.0: must be > 0 and <= 1"),
        (lambda: RandomK(share=1.5), "share = 1.5: must be > 0 and <= 1"),
        (lambda: Declared(ratio=2.0), "ratio = 2.0: must be > 0 and <= 1"),
        (lambda: RandomK(share=0.5, scaled=True, error_feedback=True), "scaled = True: with error_feedback"),
        (lambda: TopK(share=0.5, positions="seed"), "positions = 'seed': must be indices, bitmap or shorter"),  # type: ignore[arg-type]
        (lambda: RandomK(share=0.5, positions="x"), "positions = 'x': must be seed, indices,"),  # type: ignore[arg-type]
        (lambda: Qsgd(levels=0), "levels = 0: must be >= 1"),
        (lambda: Qsgd(levels=2, bucket=0), "bucket = 0: must be >= 1"),
        (lambda: Int8(rounding="down"), "rounding = 'down': must be stochastic or nearest"),  # type: ignore[arg-type]
        (lambda: Sign(error_feedback=True), "error_feedback = True: a sign alone does not show how much"),
        (lambda: Sign(scale="max"), "scale = 'max': must be none or mean"),  # type: ignore[arg-type]
    ],
)
def test_what_a_compression_cannot_be_is_refused(make, said):
    with pytest.raises(ParameterError) as refusal:
        make()
    assert str(refusal.value).startswith(said)

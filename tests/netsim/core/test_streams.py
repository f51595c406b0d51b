"""Addressed randomness: a draw belongs to seed, name, index and entity, and to nothing else."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from netsim.core.streams import RepeatedStreams, Stream, Streams

WORD = (1 << 64) - 1


def philox(counter: list[int], key: list[int]) -> list[int]:
    """One block of Philox4x64-10 (Salmon et al. 2011, table 2 and section 3.3), written from the paper."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        left, right = c0 * 0xD2E7470EE14C6C93, c2 * 0xCA5A826395121157
        c0, c1, c2, c3 = (right >> 64) ^ c1 ^ k0, right & WORD, (left >> 64) ^ c3 ^ k1, left & WORD
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & WORD, (k1 + 0xBB67AE8584CAA73B) & WORD
    return [c0, c1, c2, c3]


@pytest.mark.parametrize(
    ("seed", "name", "index"), [(7, "uplink", 3), (0, "", 0), (2**70, "a/b", 2**64 - 1), (7, "x", 5 << 64 | 3)]
)
def test_draws_are_philox_blocks_at_the_address(seed: int, name: str, index: int) -> None:
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
    key = [int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")]
    words = [word for block in (1, 2, 3) for word in philox([block, index & WORD, index >> 64, 0], key)]
    np.testing.assert_array_equal(Stream(seed=seed, name=name).uniforms(index, 12), [(word >> 11) / 2**53 for word in words])


def test_golden_values() -> None:
    expected = ["0x1.058a61ca05642p-1", "0x1.d02b21dae2900p-9", "0x1.b9dee8753e2b8p-4", "0x1.1da50d1169258p-4"]
    assert [float(u).hex() for u in Stream(seed=7, name="uplink").uniforms(3, 4)] == expected
    assert Streams(7).generator("policy", 2).integers(0, 1000, 5).tolist() == [559, 123, 919, 245, 216]
    assert Streams(7).integer_seed("torch", 1) == 5503898760625282115


@given(
    seed=st.integers(0, 2**32),
    index=st.integers(0, 2**64 - 1),
    size=st.integers(1, 3000),
    picks=st.lists(st.floats(0, 1, exclude_max=True), max_size=20),
)
@settings(max_examples=60)
def test_reading_some_entities_equals_reading_all_both_ways(seed: int, index: int, size: int, picks: list[float]) -> None:
    stream = Stream(seed=seed, name="x")
    entities = np.array([int(p * size) for p in picks], dtype=np.int64)
    whole = stream.uniforms(index, size)
    np.testing.assert_array_equal(stream.uniforms_at(index, entities, size), whole[entities])
    # A size so large that every read is positioned, on the same address.
    np.testing.assert_array_equal(stream.uniforms_at(index, entities, 10**9), whole[entities])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 127, 128, 129, 10_000, 1_000_000])
def test_positioned_reads_equal_the_vector_up_to_a_million(size: int) -> None:
    stream = Stream(seed=3, name="delay")
    entities = np.unique(np.linspace(0, size - 1, 50).astype(np.int64))[::-1]
    np.testing.assert_array_equal(stream.uniforms_at(11, entities, 10**9), stream.uniforms(11, size)[entities])


def test_one_more_entity_changes_nobodys_draw() -> None:
    stream = Stream(seed=1, name="x")
    long = stream.uniforms(5, 1000)
    for size in (0, 1, 2, 3, 4, 5, 250, 999):
        np.testing.assert_array_equal(stream.uniforms(5, size), long[:size])


def test_order_of_reading_changes_nothing() -> None:
    forward, backward = Stream(seed=1, name="x"), Stream(seed=1, name="x")
    first = [forward.uniforms(i, 7) for i in range(20)]
    for i in reversed(range(20)):
        backward.uniforms_at(i, np.array([3]), 10**9)
        np.testing.assert_array_equal(backward.uniforms(i, 7), first[i])


def test_names_seeds_and_indices_give_different_draws() -> None:
    addresses = [(seed, name, index) for seed in (0, 1, 11) for name in ("a", "b", "1/a", "") for index in (0, 1, 2**63)]
    draws = np.concatenate([Stream(seed=s, name=n).uniforms(i, 100) for s, n, i in addresses])
    # 3600 draws of 2^53 values: a repetition by chance has probability 1e-9.
    assert len(np.unique(draws)) == len(draws)


def test_uniform_along_entities_and_along_indices() -> None:
    stream = Stream(seed=2024, name="x")
    for sample in (stream.uniforms(0, 50_000), np.array([stream.uniforms(i, 3)[2] for i in range(20_000)])):
        assert sample.min() >= 0.0
        assert sample.max() < 1.0
        assert stats.kstest(sample, "uniform").pvalue > 1e-4


def test_neighbours_are_uncorrelated() -> None:
    stream = Stream(seed=99, name="x")
    table = np.array([stream.uniforms(i, 257) for i in range(257)])
    other = np.array([Stream(seed=99, name="y").uniforms(i, 257) for i in range(257)])
    pairs = [
        (table[1:], table[:-1]),
        (table[:, 1:], table[:, :-1]),
        (table[:, 4:], table[:, :-4]),
        (table, other),
        (table, table.T),
    ]
    for a, b in pairs:
        # Twice as many standard deviations for the transposed table, where each pair counts twice.
        limit = (4.9 if b is not table.T else 7.0) / np.sqrt(a.size)
        keep = ~np.eye(257, dtype=bool) if a.shape == b.shape == (257, 257) else np.ones(a.shape, dtype=bool)
        # |r| sqrt(n) is standard normal: beyond 4.9 with probability 1e-6.
        assert abs(np.corrcoef(a[keep], b[keep])[0, 1]) < limit


def test_streams_are_opened_once_and_generators_are_fresh() -> None:
    streams = Streams(4)
    assert streams["a"] is streams["a"]
    a, b = streams.generator("p", 1), streams.generator("p", 1)
    assert a.random() == b.random()
    assert a.random() != streams.generator("p", 2).random()
    assert streams.integer_seed("p", 1) != streams.integer_seed("p", 2)
    assert 0 <= streams.integer_seed("p", 1) < 2**63
    with pytest.raises(ValueError, match="at most 3 numbers"):
        streams.generator("p", 1, 2, 3, 4)


def test_generators_do_not_repeat_the_uniforms_of_their_address() -> None:
    streams = Streams(1)
    uniforms = set(streams["a"].uniforms(5, 1000).tolist())
    assert uniforms.isdisjoint(streams.generator("a", 5).random(1000).tolist())
    assert uniforms.isdisjoint(streams["a"].generator(5).random(1000).tolist())


def test_a_generator_is_philox_at_its_key_and_address() -> None:
    streams = Streams(7, "run/")
    digest = hashlib.blake2b(b"7/run/batches", digest_size=16).digest()
    key = np.frombuffer(digest, np.uint64)
    for address in ((), (3,), (3, 1, 4)):
        counter = np.array([1 << 63, *address, *[0] * (3 - len(address))], np.uint64)
        expected = np.random.Generator(np.random.Philox(key=key, counter=counter)).random(5)
        assert np.array_equal(streams.generator("batches", *address).random(5), expected)
    # A stream's generator draws the same at the address whose second number is the upper word of the index.
    moved = [streams["batches"].generator(client << 64 | 3).random(5) for client in (4, 1)]
    assert np.array_equal(moved, [streams.generator("batches", 3, client).random(5) for client in (4, 1)])


def test_draws_of_an_address_used_again_are_of_the_seed_and_of_nobody_else() -> None:
    def drawn(seed: int, times: int) -> list[float]:
        streams = RepeatedStreams(seed, prefix="probe.")
        stream = streams["loss"]
        streams.repeat(times)
        return stream.uniforms(3, 4).tolist()

    assert drawn(1, 0) == Streams(1)["probe.loss"].uniforms(3, 4).tolist()
    assert drawn(1, 2) == drawn(1, 2)
    assert len({tuple(drawn(seed, times)) for seed in (1, 2) for times in (0, 1, 2)}) == 6

"""Columns are those that pyarrow itself makes of the same values, and come back as they were."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.records.columns import column, count_words, numbers

WORDS = pa.dictionary(pa.int8(), pa.string())
TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.float64(): st.floats(),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.bool_(): st.booleans(),
    pa.string(): st.text("aö€\0"),
    WORDS: st.sampled_from(["lost", "late", "delivered", "", "größer"]),
}


@given(st.data(), st.sampled_from(list(TYPES)), st.booleans())
def test_a_column_is_what_pyarrow_makes_of_the_values(data: st.DataObject, kind: pa.DataType, nulls: bool) -> None:
    value = TYPES[kind] | st.sampled_from([None, math.nan] if kind == pa.float64() else [None]) if nulls else TYPES[kind]
    values = data.draw(st.lists(value, max_size=40))
    made, expected = column(values, kind), pa.array(values, type=kind, from_pandas=True)
    made.validate(full=True)
    assert made.equals(expected)
    assert made.null_count == expected.null_count


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.float64()])
def test_numpy_scalars_are_numbers_like_others(kind: pa.DataType) -> None:
    values = [np.int64(3), 4, np.float64(5.0) if kind == pa.float64() else np.int32(5)]
    assert column(values, kind).to_pylist() == [3, 4, 5]


@pytest.mark.parametrize(
    ("values", "kind", "error"),
    [
        ([1, 2.5], pa.int64(), TypeError),
        (["a", 1], pa.int64(), TypeError),
        ([None, 2.5], pa.int64(), TypeError),
        ([1], pa.bool_(), TypeError),
        ([2**31], pa.int32(), OverflowError),
        ([-129, None], pa.int8(), OverflowError),
        ([f"{i}" for i in range(129)], WORDS, OverflowError),
    ],
)
def test_what_does_not_fit_is_refused(values: list[Any], kind: pa.DataType, error: type[Exception]) -> None:
    with pytest.raises(error):
        column(values, kind)


def test_numbers_come_back_from_pieces_and_parts_of_pieces() -> None:
    whole = pa.chunked_array([column([1.0, None, 3.0, 4.0], pa.float64()), column([5.0], pa.float64()), column([], pa.float64())])
    assert numbers(whole, -1.0).tolist() == [1.0, -1.0, 3.0, 4.0, 5.0]
    assert numbers(whole.slice(1, 3), -1.0).tolist() == [-1.0, 3.0, 4.0]
    assert numbers(whole.slice(0, 0), 0.0).tolist() == []
    none = pa.chunked_array([], pa.int32())
    assert numbers(none, 0).dtype == np.int32
    assert numbers(pa.chunked_array([pa.nulls(9, pa.int64())]), 7).tolist() == [7] * 9


def test_words_are_counted_over_pieces_with_dictionaries_of_their_own() -> None:
    pieces = [column(["a", None, "b", "a"], WORDS), column(["b", "c"], WORDS), column([None], WORDS)]
    assert count_words(pa.chunked_array(pieces)) == Counter(a=2, b=2, c=1)
    assert count_words(pa.chunked_array(pieces).slice(1, 3)) == Counter(a=1, b=1)

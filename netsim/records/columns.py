"""Conversion of Python values to columns of Arrow tables, and back to NumPy arrays, by their buffers.

`pyarrow.array`, `empty_table`, `to_numpy`, `to_pylist` and `pyarrow.compute` do the same, but import pandas on the first call,
which takes as long as all else that a short run of a latency study imports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def column(values: list[Any] | NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return `values` as an Arrow array of type `kind`: numbers, booleans, texts, or texts by a dictionary in order of
    appearance.

    None and NaN, which stand for "not reached" and "not measured" in the engine, become nulls. Raises TypeError for a value of
    another type, OverflowError for a value that does not fit.
    """
    # Fast path: many columns are null throughout a run.
    if isinstance(values, list) and values and values[0] is None and values.count(None) == len(values):
        return pa.nulls(len(values), kind)
    if pa.types.is_dictionary(kind):
        return _words_by_number(list(values), kind)
    if pa.types.is_string(kind):
        return _words(list(values))
    if pa.types.is_floating(kind):
        numbers = np.array(values, kind.to_pandas_dtype())
        return _array(numbers, ~np.isnan(numbers), kind)
    # Integers and booleans have no NaN. With None or NaN among them the array has another type: put False, which is 0, in their
    # places, and mark them as null.
    numbers, known = np.array(values), np.ones(len(values), bool)
    # Letters of NumPy's kinds of types: integers, unsigned ones, booleans.
    allowed = "b" if pa.types.is_boolean(kind) else "iub"
    if numbers.dtype.kind not in allowed and len(values):
        known = np.array([value is not None and value == value for value in values])
        numbers = np.array([value if is_known else False for value, is_known in zip(values, known, strict=True)])
    if numbers.dtype.kind not in allowed and len(values):
        raise TypeError(f"{values[:5]!r}...: must all be of type {kind}, or null")
    if pa.types.is_boolean(kind):
        bits = np.packbits(numbers.astype(bool), bitorder="little")
        return pa.Array.from_buffers(kind, len(values), [_bitmap(known), pa.py_buffer(bits)])
    dtype = np.dtype(kind.to_pandas_dtype())
    if len(values) and not (np.iinfo(dtype).min <= numbers.min() and numbers.max() <= np.iinfo(dtype).max):
        raise OverflowError(f"{numbers.min()} to {numbers.max()}: do not fit into {kind}")
    return _array(numbers.astype(dtype), known, kind)


def empty(schema: pa.Schema) -> pa.Table:
    """Return a table without rows."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def words_at(places: NDArray[np.int64], words: Sequence[str], kind: pa.DataType) -> pa.Array:
    """Return the Arrow array of the `words` at `places` (n,); -1: null.

    The result equals that of `column`: its dictionary has the words that occur, in order of appearance.
    """
    # Sort the words that occur by their first appearance.
    distinct, first = np.unique(places, return_index=True)
    used = distinct[np.argsort(first)]
    used = used[used >= 0]
    # Number of each word in the dictionary. The last entry stands for null: place -1.
    numbers = np.zeros(len(words) + 1, np.int64)
    numbers[used] = np.arange(len(used))
    indices = numbers[places].astype(kind.index_type.to_pandas_dtype())
    used_words = [words[place] for place in used.tolist()]
    return pa.DictionaryArray.from_arrays(_array(indices, places >= 0, kind.index_type), _words(used_words))


def numbers(column: pa.ChunkedArray, null: float) -> NDArray[Any]:
    """Return the values (n,) of a column of numbers, with `null` in place of nulls."""
    if not column.chunks:
        return np.empty(0, column.type.to_pandas_dtype())
    pieces = []
    for chunk in column.chunks:
        values, known = _values_and_marks(chunk)
        pieces.append(np.where(known, values, values.dtype.type(null)))
    return np.concatenate(pieces)


def count_words(column: pa.ChunkedArray) -> Counter[str]:
    """Return the number of times that each word occurs in a column of words; nulls do not count."""
    total = Counter[str]()
    for piece in column.chunks:
        chunk = piece if pa.types.is_dictionary(piece.type) else piece.dictionary_encode()
        indices, known = _values_and_marks(chunk.indices)
        counts = np.bincount(indices[known], minlength=len(chunk.dictionary)).tolist()
        for word, count in zip(chunk.dictionary, counts, strict=True):
            if count:
                total[word.as_py()] += count
    return total


def _array(values: NDArray[Any], known: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    """Return numbers (n,) as an Arrow array, null where `known` (n,) is False."""
    return pa.Array.from_buffers(kind, len(values), [_bitmap(known), pa.py_buffer(values)])


def _bitmap(known: NDArray[np.bool_]) -> pa.Buffer | None:
    """Return Arrow's bitmap of values that are not null; None if no value is null."""
    return None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))


def _words(values: Sequence[str | None]) -> pa.Array:
    """Return an Arrow array of strings; None becomes null."""
    texts = [b"" if value is None else value.encode() for value in values]
    ends = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=ends[1:])
    if ends[-1] > np.iinfo(np.int32).max:
        raise OverflowError(f"{ends[-1]} bytes of text: do not fit into one column")
    known = _bitmap(np.array([value is not None for value in values], bool))
    return pa.Array.from_buffers(
        pa.string(), len(texts), [known, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(texts))]
    )


def _words_by_number(values: list[str | None], kind: pa.DataType) -> pa.Array:
    """Return an Arrow array of texts as indices of a dictionary of type `kind`, in order of appearance; None becomes null."""
    words = [word for word in dict.fromkeys(values) if word is not None]
    if len(words) - 1 > np.iinfo(kind.index_type.to_pandas_dtype()).max:
        raise OverflowError(f"{len(words)} words: do not fit into {kind}")
    number_of: dict[str | None, int] = {word: number for number, word in enumerate(words)}
    number_of[None] = -1
    numbers = np.fromiter(map(number_of.__getitem__, values), kind.index_type.to_pandas_dtype(), len(values))
    known = numbers >= 0
    numbers[~known] = 0
    return pa.DictionaryArray.from_arrays(_array(numbers, known, kind.index_type), _words(words))


def _values_and_marks(chunk: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return (values (n,) of a chunk, True (n,) where a value is not null)."""
    first, end = chunk.offset, chunk.offset + len(chunk)
    marks, data = chunk.buffers()
    values = np.frombuffer(data or b"", chunk.type.to_pandas_dtype())[first:end]
    if marks is None:
        return values, np.ones(len(values), bool)
    # Bits count from the start of the buffer, as values do; the chunk may begin later.
    bits = np.unpackbits(np.frombuffer(marks, np.uint8), count=end, bitorder="little")
    return values, bits[first:].astype(bool)

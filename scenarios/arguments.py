"""Checks and conversions of the arguments of the public functions."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.schema.errors import UserError


def plain_data(value: object) -> Any:
    """Return a deep copy of tables and lists in which NumPy numbers and arrays are Python numbers and lists.

    >>> plain_data({"rounds": np.int64(5), "mean_s": np.arange(3)})
    {'rounds': 5, 'mean_s': [0, 1, 2]}
    """
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: plain_data(inner) for key, inner in value.items()}
    return [plain_data(inner) for inner in value] if isinstance(value, list | tuple) else value


def integer(name: str, value: Any, *, least: int | None = None) -> int:
    """Return `value` as an int; raises UserError unless it is a whole number >= `least`. `name`: the argument, for messages."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (least is not None and number < least):
        raise UserError(f"{name} = {value!r}: must be a whole number{'' if least is None else f' >= {least}'}")
    return number


def integer_or_none(name: str, value: object, *, least: int | None = None) -> int | None:
    """Return None for None, and otherwise the result of `integer`."""
    return None if value is None else integer(name, value, least=least)


def text_or_none(name: str, value: object) -> str | None:
    """Return `value`; raises UserError unless it is a text or None."""
    if value is not None and not isinstance(value, str):
        raise UserError(f"{name} = {value!r}: must be a text")
    return value


def seconds_or_none(name: str, value: Any) -> float | None:
    """Return None for None, and otherwise `value` as a float; raises UserError unless it is a number."""
    if value is None:
        return None
    if isinstance(value, bool | str | bytes):
        raise UserError(f"{name} = {value!r}: must be a number of seconds")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UserError(f"{name} = {value!r}: must be a number of seconds") from None


def list_of_values(name: str, value: object, example: str) -> list[Any]:
    """Return the values in `value` as a list; raises UserError with an `example` for a text, a dictionary or a single value."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise UserError(f"{name} = {value!r}: must be a list, such as {example}")
    return list(value)


def mapping_of_keys(name: str, value: object, example: str) -> Mapping[str, Any]:
    """Return `value`; raises UserError with an `example` unless it is a dictionary with texts as keys."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise UserError(f"{name} = {value!r}: must be a dictionary of dotted keys and values, such as {example}")
    return value


def folder_path(name: str, value: object) -> Path:
    """Return `value` as a Path; raises UserError unless it is a text or a path."""
    if not isinstance(value, str | os.PathLike):
        raise UserError(f"{name} = {value!r}: must be the path of a folder")
    return Path(value)

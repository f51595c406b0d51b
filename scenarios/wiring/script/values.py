"""Values that a script gives, and their records, as plain data."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from pydantic import ValidationError

from netsim.core.protocols import FloatArray, IntArray
from scenarios.schema.errors import UserError
from scenarios.schema.per_client import read_per_client

Some: TypeAlias = "int | str | Sequence[int] | IntArray | None"
"""Clients: one number, the name of a group, several numbers, or None for all. Sub-channels likewise, without names."""
_MOST_LISTED = 32
"""Most values that a record lists; of more values it states the least, the mean and the largest."""


def plain_number(value: object) -> object:
    """Return a NumPy number as a Python number, any other value unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def integer(name: str, value: object, low: int) -> int:
    """Return `value` as an integer; raises UserError unless it is a whole number >= `low`."""
    number = plain_number(value)
    if not isinstance(number, int) or isinstance(number, bool) or number < low:
        raise UserError(f"{name} = {value!r}: must be a whole number from {low} on")
    return number


def to_list(entities: IntArray | None) -> list[int] | None:
    """Return the numbers of clients or sub-channels as a list; None stays None, for all."""
    return None if entities is None else entities.tolist()


def plain(value: object) -> Any:
    """Return a value that a script gives, with NumPy arrays and numbers as Python lists and numbers."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def read_value(value: object, path: str) -> object:
    """Return a parameter's value, as a scenario file would have given it: a table becomes values per client. Raises UserError."""
    plain_value = plain(value)
    if not isinstance(plain_value, dict):
        return plain_value
    try:
        return read_per_client(plain_value)
    except (ValidationError, ValueError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise UserError(f"{path} = {value!r}: {reason}") from error


def label(some: Some, entities: IntArray | None) -> str | None:
    """Return the name of clients for a record: the name that the script used, or their numbers."""
    if isinstance(some, str):
        return some
    return None if entities is None else json.dumps(entities.tolist())


def value_text(value: object, entities: IntArray | None) -> str:
    """Return the value of a parameter for `entities` (None: all) as JSON, shortened if there are many values.

    Equal values become one number. NaN, of entities without the parameter, is left out.
    """
    if not isinstance(value, np.ndarray):
        return json.dumps(value)
    numbers: FloatArray = value if entities is None else value[entities]
    numbers = numbers[~np.isnan(numbers)]
    if numbers.size and (numbers == numbers[0]).all():
        return json.dumps(float(numbers[0]))
    if len(numbers) <= _MOST_LISTED:
        return json.dumps(numbers.tolist())
    mean = math.fsum(numbers.tolist()) / len(numbers)
    return json.dumps({"least": float(numbers.min()), "mean": mean, "largest": float(numbers.max())})

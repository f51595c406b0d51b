"""Parameters that may differ between clients in a scenario file: a number, a ramp, one of these for each group, or a list."""

import math
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue

from scenarios.schema.errors import did_you_mean
from scenarios.schema.section import Section, problem, refusal


class Ramp(Section):
    """A number that runs over the clients of a group: the i-th of n gets from + (to - from) i / n, i = 1..n."""

    start: float = Field(alias="from")
    """Start of the ramp; no client has exactly this value."""
    to: float
    """The value of the group's last client."""


def is_number(value: object) -> bool:
    """Return True if a value of the file is a finite number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def _read_group_value(value: Any) -> float | Ramp:
    """Return the value of one group as a number or a ramp; refuse anything else."""
    if isinstance(value, Ramp):
        return value
    if isinstance(value, dict):
        return Ramp.model_validate(value)
    if is_number(value):
        return float(value)
    raise refusal("must be a finite number or a ramp { from = .., to = .. }")


_NUMBER = {"type": "number"}
_RAMP = {
    "type": "object",
    "properties": {
        "from": {"type": "number", "description": "The i-th of n clients gets from + (to - from) i / n, i = 1..n."},
        "to": {"type": "number", "description": "The value of the last client."},
    },
    "required": ["from", "to"],
    "additionalProperties": False,
}
_GROUP_VALUE = {"anyOf": [_NUMBER, _RAMP]}


class ByGroup(Section):
    """One value or ramp for each group of clients, by the group's name."""

    by_group: dict[str, Annotated[Any, BeforeValidator(_read_group_value), WithJsonSchema(_GROUP_VALUE)]]
    """A number or a ramp for every group."""


PerClientSpec = float | Ramp | ByGroup | list[float]


def is_per_client(value: object) -> bool:
    """Return True if a checked value specifies numbers of clients, and not something else that its key allows (None, a word)."""
    if isinstance(value, Ramp | ByGroup | np.ndarray):
        return True
    return is_number(value) or (isinstance(value, list) and bool(value) and all(is_number(entry) for entry in value))


FORMS = "a finite number, { from = .., to = .. }, { by_group = { NAME = .. } } or a list with one number a client"


def read_per_client(value: Any) -> PerClientSpec:
    """Return `value` of a file as a number, a ramp, a table by group or a list. Checked values pass unchanged.

    Raises:
        ValidationError: an unknown key, at the place of that key.
        PydanticCustomError: any other value; pydantic reports it at the key being read.
    """
    if isinstance(value, Ramp | ByGroup):
        return value
    if isinstance(value, dict) and value:
        if "by_group" in value:
            return ByGroup.model_validate(value)
        if "from" in value or "to" in value:
            return Ramp.model_validate(value)
        key = next(iter(value))
        raise problem((key,), value[key], f"unknown key; {did_you_mean(str(key), ('by_group', 'from', 'to'))}")
    if isinstance(value, list) and value and all(is_number(entry) for entry in value):
        return [float(entry) for entry in value]
    if is_number(value):
        return float(value)
    raise refusal(f"must be {FORMS}")


PER_CLIENT_JSON: JsonSchemaValue = {
    "title": "per client",
    "anyOf": [
        _NUMBER,
        _RAMP,
        {
            "type": "object",
            "properties": {
                "by_group": {
                    "type": "object",
                    "additionalProperties": _GROUP_VALUE,
                    "description": "A number or a ramp for every group, by the group's name.",
                }
            },
            "required": ["by_group"],
            "additionalProperties": False,
        },
        {"type": "array", "items": _NUMBER},
    ],
}
PerClientField = Annotated[Any, BeforeValidator(read_per_client), WithJsonSchema(PER_CLIENT_JSON)]

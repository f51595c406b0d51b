"""The structural type of a detector of changes, and checks that detectors share."""

from __future__ import annotations

import math
import re
from typing import Protocol

from models.errors import ParameterError
from netsim.core.state import State as State


class Detector(Protocol):
    """Detector that watches one stream of numbers in [0, 1] for a change of its mean."""

    def update(self, x: float) -> bool:
        """Take in one more number `x`. Return True if a change is declared; call `reset` before the next number then."""

    def reset(self) -> None:
        """Forget all observations."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


def kind_of(detector: Detector) -> str:
    """Return the name of a detector's kind: its class in small letters with hyphens (`GlrExact`: "glr-exact")."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", type(detector).__name__).lower()


def check_unit(x: float) -> None:
    """Raise ParameterError unless `x` lies in [0, 1]."""
    if not 0.0 <= x <= 1.0:
        raise ParameterError("x", x, "must be between 0 and 1")


def check_probability(name: str, value: float) -> None:
    """Raise ParameterError, naming the parameter, unless 0 < `value` < 1."""
    if not 0.0 < value < 1.0:
        raise ParameterError(name, value, "must be a probability, > 0 and < 1")


def check_positive(name: str, value: float, *, zero: bool = False) -> None:
    """Raise ParameterError, naming the parameter, unless `value` is finite and > 0 (>= 0 if `zero`)."""
    is_allowed = value >= 0 if zero else value > 0
    if not (math.isfinite(value) and is_allowed):
        wanted = ">= 0" if zero else "> 0"
        raise ParameterError(name, value, f"must be finite and {wanted}")

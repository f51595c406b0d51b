"""Bounds of numbers as annotations, by which pydantic checks the keys of a scenario, and `check_bounds` fields of objects."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt

from models.errors import ParameterError

Count = Annotated[int, Ge(1)]
# Far more than any run needs, and small enough for 64-bit arrays.
Amount = Annotated[int, Ge(1), Le(10**12)]
Whole = Annotated[int, Ge(0)]
Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Fraction = Annotated[float, Ge(0), Lt(1)]
Share = Annotated[float, Gt(0), Le(1)]
UnderHalf = Annotated[float, Ge(0), Lt(0.5)]
# Factors of 32-bit floats must be 32-bit floats themselves; smaller steps would be 0.
Rate = Annotated[float, Ge(1e-37), Le(1e38)]
Threads = Annotated[int, Ge(1), Le(256)]
Workers = Annotated[int, Ge(0), Le(256)]
Power = Annotated[float, Ge(0), Le(100)]
Decay = Annotated[float, Ge(0), Le(1e38)]


def check_bounds(options: object, table: str = "") -> None:
    """Raise ParameterError for a field whose value is out of its bounds, or none of its literals; None is always allowed.

    `table` is put before the name of the field.
    """
    for name, hint in get_type_hints(type(options), include_extras=True).items():
        value = getattr(options, name)
        if value is None:
            continue
        # The hint itself may have bounds, or a member of it, as in Count | None.
        for kind in (hint, *get_args(hint)):
            allowed = _allowed_values(kind, value)
            if allowed is not None:
                raise ParameterError(f"{table}{name}", value, f"must be {allowed}")


def _allowed_values(hint: Any, value: Any) -> str | None:
    """Return the values that `hint`, a Literal or a bounded number, allows, as text; None if `value` is among them."""
    if get_origin(hint) is Literal:
        *others, last = get_args(hint)
        return None if value in (*others, last) else f"{', '.join(others)} or {last}"
    # The annotations of a bounded number: a lower bound, and perhaps an upper one.
    bounds = getattr(hint, "__metadata__", ())
    low: Any = next((bound for bound in bounds if isinstance(bound, Gt | Ge)), None)
    high: Any = next((bound for bound in bounds if isinstance(bound, Lt | Le)), Lt(math.inf))
    if low is None:
        return None
    high_enough = low.gt < value if isinstance(low, Gt) else low.ge <= value
    low_enough = value < high.lt if isinstance(high, Lt) else value <= high.le
    if high_enough and low_enough:
        return None
    least = f"> {low.gt}" if isinstance(low, Gt) else f">= {low.ge}"
    if high == Lt(math.inf):
        return f"a finite number {least}" if hint.__origin__ is float else least
    most = f"< {high.lt}" if isinstance(high, Lt) else f"<= {high.le}"
    return f"{least} and {most}"

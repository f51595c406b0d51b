"""Numbers, intervals and costs as text."""

from __future__ import annotations

import math

from analysis.metrics.targets import Cost
from analysis.statistics.intervals import Interval

MISSING = "—"
"""Text of a number that does not exist."""

UNITS: dict[Cost, tuple[str, float]] = {"seconds": ("seconds", 1.0), "bytes": ("MB", 1e-6), "joules": ("kJ", 1e-3)}
"""Unit in which tables and figures show a cost, and the factor by which the cost is multiplied for it."""


def format_number(value: float, *, digits: int | None = None, signed: bool = False) -> str:
    """Return `value` as text with `digits` decimals (default: by its size); "—" for NaN, "∞" for infinity."""
    if math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    decimals = _decimals(value) if digits is None else digits
    return f"{value:{'+' if signed else ''},.{decimals}f}"


def format_interval(interval: Interval, *, scale: float = 1.0, signed: bool = False) -> str:
    """Return "mean ± half-width", both to two significant digits of the half-width, at most 3 decimals.

    The mean alone if there is no half-width. `scale`: factor for both; `signed`: True if the mean shows a plus sign.
    """
    mean, half = interval.mean * scale, interval.half_width * scale
    if not math.isfinite(half):
        return format_number(mean, signed=signed)
    digits = min(3, max(0, 1 - math.floor(math.log10(half)))) if half > 0.0 else _decimals(mean)
    return f"{format_number(mean, digits=digits, signed=signed)} ± {format_number(half, digits=digits)}"


def _decimals(value: float) -> int:
    """Return the number of decimals that suits the size of a value."""
    size = abs(value)
    return 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3


def format_percent(share: float) -> str:
    """Return a share in [0, 1] as a percentage without trailing zeros, such as "95 %"."""
    return f"{share * 100:.10g} %"


def format_seconds(seconds: float) -> str:
    """Return the seconds to four significant digits, with their unit; "any time" for infinity."""
    return "any time" if math.isinf(seconds) else f"{float(f'{seconds:.4g}'):,.10g} s"


def format_cost(amount: float, cost: Cost) -> str:
    """Return an amount of seconds, bytes or joules to four significant digits, in the unit of `UNITS`, such as "12.5 MB"."""
    if cost == "seconds":
        return format_seconds(amount)
    name, scale = UNITS[cost]
    return f"{float(f'{amount * scale:.4g}'):,.10g} {name}"

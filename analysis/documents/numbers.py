"""Numbers, intervals and costs as text."""

from __future__ import annotations

import math

from analysis.metrics.targets import Cost
from analysis.statistics.intervals import Interval

MISSING = "—"

UNITS: dict[Cost, tuple[str, float]] = {"seconds": ("seconds", 1.0), "bytes": ("MB", 1e-6), "joules": ("kJ", 1e-3)}
"""Unit in which tables and figures show a cost, and the factor to it."""


def format_number(value: float, *, digits: int | None = None, signed: bool = False) -> str:
    """Return `value` as text with `digits` decimals (default: by its size); "—" for NaN, "∞" for infinity."""
    if math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    decimals = _decimals(value) if digits is None else digits
    return f"{value:{'+' if signed else ''},.{decimals}f}"


def format_interval(interval: Interval, *, scale: float = 1.0, signed: bool = False) -> str:
    """Return mean ± half-width, to two significant digits of the half-width, 3 decimals at most; the mean alone without it."""
    mean, half = interval.mean * scale, interval.half_width * scale
    if not math.isfinite(half):
        return format_number(mean, signed=signed)
    digits = min(3, max(0, 1 - math.floor(math.log10(half)))) if half > 0.0 else _decimals(mean)
    return f"{format_number(mean, digits=digits, signed=signed)} ± {format_number(half, digits=digits)}"


def _decimals(value: float) -> int:
    size = abs(value)
    return 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3


def format_percent(share: float) -> str:
    """Return a share as a percentage, as short as possible."""
    return f"{share * 100:.10g} %"


def format_seconds(seconds: float) -> str:
    """Return the seconds to four significant digits, with their unit."""
    return "any time" if math.isinf(seconds) else f"{float(f'{seconds:.4g}'):,.10g} s"


def format_cost(amount: float, cost: Cost) -> str:
    """Seconds, bytes or joules to four significant digits, with the unit they are shown in."""
    if cost == "seconds":
        return format_seconds(amount)
    name, scale = UNITS[cost]
    return f"{float(f'{amount * scale:.4g}'):,.10g} {name}"

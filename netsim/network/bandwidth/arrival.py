"""Arrival of a message: its delay passes, then its bytes, then its flight, and they are added in this order in every form.

Rounding depends on the order of additions. So a message that is simulated by events and one that is worked out in arrays arrive
at the same time to the last bit: both call `arrival_s`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray

SecondsT = TypeVar("SecondsT", "float", "FloatArray")


def arrival_s(start_s: SecondsT, delay_s: SecondsT, bytes_s: SecondsT, flight_s: SecondsT | float = 0.0) -> SecondsT:
    """Return the arrival of a message begun at `start_s`, seconds: of one message, or of n as arrays (n,).

    >>> arrival_s(10.0, 0.5, 2.0, 0.25)
    12.75
    """
    return start_s + delay_s + bytes_s + flight_s

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
    """Return when a message arrives that begins at `start_s`: after its delay, its bytes and its flight; all in seconds.

    Takes one message, or n as arrays (n,). The order of the sum must stay: events and arrays share it bit for bit.

    >>> arrival_s(10.0, 0.5, 2.0, 0.25)
    12.75
    """
    return start_s + delay_s + bytes_s + flight_s

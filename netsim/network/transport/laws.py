"""Laws of the links between clients: delay, bandwidth, loss, and disturbances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from netsim.core.errors import ParameterError

if TYPE_CHECKING:
    from netsim.core.protocols import ChannelLaw, DelayLaw, FloatArray, Timeline
    from netsim.network.bandwidth.carriers import Carrier
    from netsim.network.jammable import JammedRoutes
    from netsim.network.jamming import Jammers
    from netsim.network.outages import ClientOutages
    from netsim.network.transport.link_outages import Cuts
    from netsim.network.transport.messages import Message

_LEAST_KM_PER_S = 1e-9
"""Smallest speed of propagation, km/s: a metre takes a fortnight, so that every distance takes a finite time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLaws:
    """The laws of all links.

    Values that differ between clients are those of the sender. A message takes distance / `speed_km_per_s` + bytes /
    `bandwidth_bytes_per_s` + a draw of `delay`, and survives as `channel` decides. Raises ValueError for a value out of range.
    """

    delay: Timeline[DelayLaw]
    channel: Timeline[ChannelLaw]
    """Channel law of the links; a law with memory advances once a slot."""
    speed_km_per_s: float = math.inf
    bandwidth_bytes_per_s: float | FloatArray = math.inf
    """Bytes a second: a number, or one for each client (K,)."""
    carrier: Carrier | None = None
    """Carrier in place of a constant bandwidth, if bandwidth is shared or changes over time. The bytes then follow the delay."""

    def __post_init__(self) -> None:
        if not self.speed_km_per_s >= _LEAST_KM_PER_S:
            raise ParameterError("speed_km_per_s", self.speed_km_per_s, f"must be >= {_LEAST_KM_PER_S:g} km/s")
        least = float(np.min(self.bandwidth_bytes_per_s))
        # At a smaller bandwidth a message of a few bytes would take longer than any run.
        if not least >= 1e-6:
            raise ParameterError("bandwidth_bytes_per_s", least, "must be >= 1e-06 bytes/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbances:
    """Causes of loss other than the channel law."""

    outages: Sequence[Cuts] = ()
    """Outages of links, of every kind; of two that a message meets, the first one's cause counts."""
    absences: Cuts | None = None
    """Links of clients that are away, or None. They count after `outages`."""
    clients: ClientOutages | None = None
    """Outages of clients, or None."""
    jammed: JammedRoutes[Message] | None = None
    """Links that jammers can jam; None without jammers."""
    jammers: Jammers | None = None
    """The jammers of these links, on the clock."""


UNDISTURBED = Disturbances()

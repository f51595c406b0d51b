"""Corrections of the max-min model of bandwidth sharing towards the behaviour of TCP, and presets that other simulators use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

from netsim.core.errors import ParameterError

_NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrections:
    """Changes of the plain model, all off by default.

    Raises ParameterError for a factor or a window that is not > 0, and a negative weight or share.
    """

    latency_factor: float = 1.0
    """Factor of the delay of a route."""
    bandwidth_factor: float = 1.0
    """Factor of the share of bandwidth that a flow gets."""
    window_bytes: float = _NEVER
    """Bytes of a flow that may be under way at a time: bounds its rate by window / (2 x delay)."""
    rtt_fair: bool = False
    """True if a flow's share falls with its delay: its penalty is delay + weight_s x sum of 1 / bandwidth, or 1 if that is 0.

    With `weight_s` = 0 the penalty is the delay, as SimGrid's code has it; its documentation says that 0 switches this off.
    """
    weight_s: float = 0.0
    """Bytes that each link, divided by its bandwidth, adds to the penalty of a flow."""
    reverse_share: float = 0.0
    """Share of a flow's rate that also loads the way back (acknowledgements)."""

    first_window_bytes: float = _NEVER
    """Bytes that a connection sends before the first acknowledgement; it doubles them in every round trip (TCP's slow start).

    14,480 in TCP (RFC 6928: ten segments). Every transfer is a new connection, which takes `start_up_s` longer.
    """

    def __post_init__(self) -> None:
        for name in ("latency_factor", "bandwidth_factor", "window_bytes", "first_window_bytes"):
            if not getattr(self, name) > 0.0:
                raise ParameterError(name, getattr(self, name), "must be > 0")
        for name in ("weight_s", "reverse_share"):
            if not 0.0 <= getattr(self, name) < _NEVER:
                raise ParameterError(name, getattr(self, name), "must be >= 0 and finite")

    def penalty(self, delay_s: float, bandwidths: Sequence[float]) -> float:
        """Return the penalty of a flow over links of these bandwidths (bytes/s), of `delay_s` together."""
        if not self.rtt_fair:
            return 1.0
        # A flow over a link without bandwidth does not move at all, so the penalty does not matter.
        sum_of_inverses = sum(1.0 / bandwidth for bandwidth in bandwidths if bandwidth > 0.0)
        penalty = delay_s + self.weight_s * sum_of_inverses
        # A penalty must be > 0.
        return penalty if penalty else 1.0

    def start_up_s(self, size_bytes: float, delay_s: float, bandwidths: Sequence[float]) -> float:
        """Return the seconds that the growth of its window adds to a transfer over links of these bandwidths (bytes/s).

        The window doubles in each round trip, twice `delay_s`, until it holds the transfer, or all that is under way at the
        flow's greatest rate: from then on the link is busy. What was sent before that is taken off.

        >>> tcp = Corrections(first_window_bytes=10_000.0)
        >>> tcp.start_up_s(1e6, 0.05, [400_000.0])          # the link holds 40 kB: two doublings, in which 30 kB pass
        0.125
        """
        trip_s = 2.0 * delay_s
        rate = self.bandwidth_factor * self.bound(delay_s, bandwidths) if bandwidths else 0.0
        full_window_bytes = min(size_bytes, rate * trip_s)
        if not full_window_bytes > self.first_window_bytes:
            return 0.0
        # The windows before the full one, w + 2w + 4w + ..., add up to the full window less w. These bytes are sent meanwhile, so
        # the time that they take at the full rate is not lost.
        doubling_s = trip_s * log2(full_window_bytes / self.first_window_bytes)
        return doubling_s - (full_window_bytes - self.first_window_bytes) / rate

    def bound(self, delay_s: float, bandwidths: Sequence[float]) -> float:
        """Return the greatest rate of a flow, bytes/s, before `bandwidth_factor`."""
        window = self.window_bytes / (2.0 * delay_s) if delay_s > 0.0 else _NEVER
        return min(*bandwidths, window)


PRESETS = {
    "lv08": Corrections(
        latency_factor=13.01,
        bandwidth_factor=0.97,
        window_bytes=4_194_304.0,
        rtt_fair=True,
        weight_s=20_537.0,
        reverse_share=0.05,
    ),
    "cm02": Corrections(window_bytes=4_194_304.0, rtt_fair=True, reverse_share=0.05),
}
"""Models of SimGrid (Velho and Legrand 2009; Casanova and Marchal 2002) by name."""

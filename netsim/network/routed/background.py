"""Background traffic on a network: one flow for ever, an on-off flow, or transfers that begin at random times."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from netsim.network.routed.journeys import ENDLESS_BYTES

if TYPE_CHECKING:
    from netsim.core.protocols import State
    from netsim.core.streams import Stream
    from netsim.network.bandwidth.carriers import Key
    from netsim.network.routed.network import RoutedNetwork

_NEVER = float("inf")


@dataclass(kw_only=True, eq=False)
class Source(ABC):
    """Base of traffic of one source between two ends of `network`.

    `limit_bytes_per_s`: largest rate of a flow. `name` is the owner of its transfers, so it must differ from the directions of
    carriers.
    """

    network: RoutedNetwork
    name: str
    ends: tuple[int, int]
    draws: Stream
    limit_bytes_per_s: float = _NEVER

    _endless: ClassVar[bool] = False
    """True if a transfer that has arrived is followed by another."""

    def __post_init__(self) -> None:
        self._owner = f"background.{self.name}"
        self._drawn = 0
        self._sent = 0
        self._due_s = _NEVER
        """Time of the source's next event; inf if there is none."""
        self.network.listen(self._owner, self._on_transfer_end)

    @abstractmethod
    def begin(self) -> None:
        """Start the traffic, as the first round opens."""

    @abstractmethod
    def _run_event(self) -> None:
        """Run the event that is due now, and schedule the next one by `_call_in`."""

    def _on_transfer_end(self, key: Key, cause: str | None) -> None:
        """Handle the end of a transfer: an endless source sends the next one, unless this one was lost."""
        # Begin the next flow by a call, not directly: over a cable that carries nothing any more, flows would end and begin for
        # ever in one instant.
        if self._endless and cause is None:
            self._call_in(0.0)

    def _send(self, size_bytes: float) -> None:
        """Begin a transfer between the ends of the source."""
        self._sent += 1
        self.network.send(self._owner, ("background", self._sent), self.ends, size_bytes, self.limit_bytes_per_s)

    def _exponential(self, mean: float) -> float:
        """Draw an exponential number of this mean, from the next address of the source's stream."""
        self._drawn += 1
        u = float(self.draws.uniforms(self._drawn, 1)[0])
        # Inverse of the distribution function. `log1p` keeps the digits of small u, and u < 1 keeps the result finite.
        return -mean * math.log1p(-u)

    def _call_in(self, seconds: float) -> None:
        """Schedule the source's next event in `seconds`."""
        self._call_at(self.network.clock.now + seconds)

    def _call_at(self, time_s: float) -> None:
        """Schedule the source's next event at `time_s`."""
        self._due_s = time_s
        self.network.clock.call_at(time_s, self._on_alarm)

    def _on_alarm(self, payload: None) -> None:
        """Callback at the time of the source's next event."""
        self._due_s = _NEVER
        self._run_event()

    def state_dict(self) -> State:
        """Return counts, and the time of the next event."""
        return {"drawn": self._drawn, "sent": self._sent, "due_s": self._due_s}

    def load_state_dict(self, state: State) -> None:
        """Go on from a saved state."""
        self._drawn, self._sent = state["drawn"], state["sent"]
        if state["due_s"] < _NEVER:
            self._call_at(state["due_s"])


class ConstantTraffic(Source):
    """Traffic of one flow for ever, at most at `limit_bytes_per_s`."""

    _endless = True

    def begin(self) -> None:
        """Begin the endless flow."""
        self._send(ENDLESS_BYTES)

    def _run_event(self) -> None:
        """Begin the flow that follows one whose bytes have passed."""
        self._send(ENDLESS_BYTES)


@dataclass(kw_only=True, eq=False)
class OnOffTraffic(Source):
    """Traffic of a flow during exponential times of mean `on_s`, and no flow during exponential times of mean `off_s`.

    It begins off.
    """

    on_s: float
    off_s: float

    def begin(self) -> None:
        """Schedule the first flow."""
        self._call_in(self._exponential(self.off_s))

    def _run_event(self) -> None:
        """End the flow under way, or begin one; schedule the opposite."""
        key = "background", self._sent
        if (self._owner, key) in self.network:
            self.network.cancel(self._owner, key)
            self._call_in(self._exponential(self.off_s))
        else:
            self._send(ENDLESS_BYTES)
            self._call_in(self._exponential(self.on_s))


@dataclass(kw_only=True, eq=False)
class PoissonTraffic(Source):
    """Transfers of `size_bytes` on average that begin `per_s` times a second.

    `exponential`: sizes are exponential, else all are equal.
    """

    per_s: float
    size_bytes: float
    exponential: bool = True

    def begin(self) -> None:
        """Schedule the first transfer."""
        self._call_in(self._exponential(1.0 / self.per_s))

    def _run_event(self) -> None:
        """Begin a transfer, and schedule the next."""
        size_bytes = self._exponential(self.size_bytes) if self.exponential else self.size_bytes
        self._send(size_bytes)
        self._call_in(self._exponential(1.0 / self.per_s))

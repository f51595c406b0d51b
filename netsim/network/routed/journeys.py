"""Transfers under way on a network, and their routes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netsim.network.carriers import Key

Hops = Sequence[tuple[int, str]]
"""A route: the number of each cable on the way, and the node that it leads to."""


ENDLESS_BYTES = 1e18
"""Size of a flow without an end: one that has passed is followed by another. Flow times stay finite, as for all sizes."""


@dataclass(slots=True, eq=False)
class Journey:
    """A transfer under way. `owner`: the carrier or source that sent it; `source`, `target`: clients, or SERVER."""

    owner: str
    key: Key
    source: int
    target: int
    size_bytes: float
    sent_s: float
    begin_s: float
    """Time at which its flow begins."""
    round: int
    cause: str | None
    """Cause of its loss, as far as that is known; jamming and outages come on top."""
    jammed: bool | None = False

    @property
    def endless(self) -> bool:
        """True for background traffic that no size ends."""
        return self.size_bytes >= ENDLESS_BYTES

    @property
    def good(self) -> bool:
        """True if no law has lost it so far."""
        return self.cause is None

"""Transfers under way on a network, and their routes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netsim.network.bandwidth.carriers import Key

Hops = Sequence[tuple[int, str]]
"""A route: for each cable on the way its number and the node that it leads to."""


ENDLESS_BYTES = 1e18
"""Size of an endless flow, which is followed by another when it has passed, so that times of flows stay finite."""


@dataclass(slots=True, eq=False)
class Journey:
    """A transfer in progress. `owner`: carrier or source that sent it. `source`, `target`: client numbers, or SERVER."""

    owner: str
    key: Key
    source: int
    target: int
    size_bytes: float
    sent_s: float
    begin_s: float
    """Time at which the flow begins."""
    round: int
    cause: str | None
    """Cause of the loss, if it is decided already; jamming and outages are checked at the end."""
    jammed: bool | None = False

    @property
    def endless(self) -> bool:
        """True for background traffic without an end."""
        return self.size_bytes >= ENDLESS_BYTES

    @property
    def good(self) -> bool:
        """True if no cable's law has lost the transfer so far."""
        return self.cause is None

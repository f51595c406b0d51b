"""Keys of the links between clients. They belong to the world: every server whose clients exchange messages uses them."""

from typing import Annotated

from pydantic import Field

from scenarios.registry.components import component_of
from scenarios.schema.section import Section

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Pause = Annotated[float, Field(ge=0, le=1e9)]
"""Seconds between two actions of a client; at most some thirty years."""
Whole = Annotated[int, Field(ge=0)]


class Outage(Section):
    """Links that are down for a while."""

    from_s: NonNegative
    """Time of the failure."""
    to_s: Positive | None = None
    """Time of the return; absent: never."""
    links: list[Annotated[list[Whole], Field(min_length=2, max_length=2)]] = []
    """Pairs of neighbours whose link is down."""
    groups: list[list[Whole]] = []
    """A partition: every link between two of these groups of clients is down; who is named in none is in one further group."""


class ResendKeys(Section):
    """Keys of links whose lost messages are sent again."""

    max_resends: Annotated[int, Field(ge=0, le=999)] = 0
    """Number of times that a lost message is sent again."""
    resend_after_s: Pause = 0.0
    """Seconds after the time at which a lost message would have arrived, until it is sent again."""


class PeerKeys(ResendKeys):
    """Keys of the links between clients that links to the server do not have."""

    topology: component_of("topology") = {"kind": "random-geometric"}  # type: ignore[valid-type]
    """Graph of neighbours."""
    speed_km_per_s: Positive = 299_792.458
    """Speed of signals."""
    outages: list[Outage] = []
    """Links that fail and come back, and partitions."""

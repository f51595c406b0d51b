"""The type of all servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from netsim.servers.rounds import RoundServer
    from netsim.servers.slotted import SlotServer
    from netsim.servers.tiers.tree import TreeServer

Server: TypeAlias = "RoundServer | SlotServer | TreeServer"
"""A server, put together."""

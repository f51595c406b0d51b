"""The type of all servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from netsim.servers.rounds import RoundServer
    from netsim.servers.slotted import SlotServer

Server: TypeAlias = "RoundServer | SlotServer"
"""A server, put together."""

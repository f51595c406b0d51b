"""The type of all servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from netsim.servers.kinds.slotted import SlotServer
    from netsim.servers.rounds.round_server import RoundServer
    from netsim.servers.tiers.tree import TreeServer

Server: TypeAlias = "RoundServer | SlotServer | TreeServer"
"""Server of a run, of any kind: of rounds, of slots, or above edges."""

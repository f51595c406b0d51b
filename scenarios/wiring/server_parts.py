"""Parts of a server that scripts, summaries and reports of a run look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from netsim.network.access import AssignedAccess
from netsim.servers.instruments import Detections

if TYPE_CHECKING:
    from netsim.clients.update import Update
    from netsim.network.transport.transport import Transport
    from netsim.peers.consensus import ConsensusPhase
    from netsim.servers.rounds import RoundServer
    from netsim.servers.slotted import SlotServer

Server: TypeAlias = "RoundServer | SlotServer"
"""A server, put together."""


def assigned_access(server: Server) -> AssignedAccess[Update] | None:
    """Return the sub-channels with states, or None if the server has none."""
    access = server.clients.medium.access
    return access if isinstance(access, AssignedAccess) else None


def detections(server: Server) -> Detections | None:
    """Return the instrument of the changes that a scheduler declares, or None without a scheduler."""
    return next((part for part in server.loop.instruments if isinstance(part, Detections)), None)


def consensus_phase(server: Server) -> ConsensusPhase | None:
    """Return the phase in which clients decide among themselves, or None if the server decides."""
    # Asked for by its name: the class of such a server is imported only by runs that have one.
    phase: ConsensusPhase | None = getattr(server, "consensus", None)
    return phase


def message_transport(server: Server) -> Transport | None:
    """Return the transport of messages between clients, or of opinions, or None if the server has neither."""
    transport: Transport | None = getattr(server, "transport", None)
    return transport

"""Semi-synchronous server: rounds of fixed length; an update that misses a close enters the next round.

As a round opens, a policy chooses among the clients that are not at work any more. As it closes, all updates that arrived since
the last close make a new model, whichever model they started from. No update is late, and the server waits for no client: the
clock alone divides time, as in systems that merge on a schedule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netsim.servers.rounds.close import FixedLengthCarryOver
from netsim.servers.rounds.dispatch import PolicyDispatch, SelectionRule
from netsim.servers.rounds.loop import RoundLoop
from netsim.servers.rounds.round_server import RoundServer
from netsim.servers.sub_channels.channels import OwnLinks

if TYPE_CHECKING:
    from netsim.clients.served import ServedClients
    from netsim.core.protocols import Learner


def semi_synchronous_server(
    *,
    pool: ServedClients,
    selecting: SelectionRule,
    learner: Learner,
    round_s: float,
    from_opening: bool = False,
    channels: OwnLinks | None = None,
) -> RoundServer:
    """Return the server. Round t ends at t times `round_s` seconds or, with `from_opening`, `round_s` after its opening.

    Raises ValueError unless `round_s` is > 0 and finite.
    """
    channels = channels or OwnLinks()
    dispatch = PolicyDispatch(pool=pool, rule=selecting, learner=learner, carry_over=True)
    loop = RoundLoop(
        pool=pool,
        dispatch=dispatch,
        close=FixedLengthCarryOver(pool=pool, round_s=round_s, from_opening=from_opening),
        learner=learner,
        instruments=[*channels.instruments, *selecting.instruments],
        assignment=channels.assignment,
        outlast=True,
    )
    return RoundServer(loop=loop, recording=channels.recording, probing=selecting.probing)

"""The semi-synchronous server: rounds of fixed length, and a client that misses a close enters the next round.

As a round opens a policy chooses among the clients that are not at work any more; as it closes, all updates that arrived since
the last close make a new model, whichever model they started from. No update is late and nobody is waited for: time is divided by
the clock alone, as in systems that merge on a schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from netsim.records.sinks import NoRecorder
from netsim.servers.channels import OwnLinks
from netsim.servers.close import FixedLengthCarryOver
from netsim.servers.dispatch import PolicyDispatch
from netsim.servers.loop import RoundLoop
from netsim.servers.rounds import RoundServer

if TYPE_CHECKING:
    from netsim.clients.pool import ClientPool
    from netsim.core.protocols import Learner, SelectionPolicy
    from netsim.core.streams import Streams
    from netsim.servers.probing import Probing


def semi_synchronous_server(
    *,
    pool: ClientPool,
    policy: SelectionPolicy,
    learner: Learner,
    streams: Streams,
    round_s: float,
    channels: OwnLinks | None = None,
    probing: Probing | None = None,
    retain: Callable[[list[int]], None] | None = None,
) -> RoundServer:
    """Round t ends at t times `round_s` seconds; `retain` as of `RoundLoop`.

    Raises ValueError unless `round_s` is > 0 and finite.
    """
    channels = channels or OwnLinks()
    asking = [] if probing is None else [probing]
    dispatch = PolicyDispatch(
        pool=pool, policy=policy, learner=learner, streams=streams, need=0, carry_over=True, probing=probing
    )
    loop = RoundLoop(
        clock=pool.clock,
        pool=pool,
        dispatch=dispatch,
        close=FixedLengthCarryOver(pool=pool, round_s=round_s),
        learner=learner,
        instruments=[*channels.instruments, *asking],
        assignment=channels.assignment,
        retain=retain,
    )
    return RoundServer(loop=loop, recorder=NoRecorder(), recording=channels.recording, probing=probing)

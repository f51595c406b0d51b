"""The synchronous server: a policy chooses m clients, and the round closes once they have answered, or a rule says so earlier.

It waits for all whom it selected, for a deadline, or for the first n of m (over-selection); whichever rule, a round also closes
as soon as nothing of it is in flight any more. What arrives later is late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from netsim.records.sinks import NoRecorder
from netsim.servers.channels import OwnLinks
from netsim.servers.close import WaitRule, WhenEnded
from netsim.servers.dispatch import PolicyDispatch
from netsim.servers.instruments import Reward
from netsim.servers.loop import RoundLoop
from netsim.servers.rounds import RoundServer

if TYPE_CHECKING:
    from netsim.clients.pool import ClientPool
    from netsim.core.protocols import Learner, RewardMeter, SelectionPolicy
    from netsim.core.streams import Streams
    from netsim.servers.probing import Probing


def synchronous_server(
    *,
    pool: ClientPool,
    policy: SelectionPolicy,
    learner: Learner,
    streams: Streams,
    wait: WaitRule,
    need: int,
    meter: RewardMeter,
    channels: OwnLinks | None = None,
    probing: Probing | None = None,
    reselect_busy: bool = False,
    stragglers: Literal["finish", "cancel"] = "finish",
) -> RoundServer:
    """Rounds one after the other; `need` and `reselect_busy` as of `PolicyDispatch`.

    `stragglers`: "finish" lets the clients that missed a close go on (they stay busy, their updates end as late, lost or aborted
    in their own time), "cancel" cancels them as the round closes.
    """
    channels = channels or OwnLinks()
    asking = [] if probing is None else [probing]
    dispatch = PolicyDispatch(
        pool=pool, policy=policy, learner=learner, streams=streams, need=need, reselect_busy=reselect_busy, probing=probing
    )
    loop = RoundLoop(
        clock=pool.clock,
        pool=pool,
        dispatch=dispatch,
        close=WhenEnded(pool=pool, rule=wait, at_once=probing is None),
        learner=learner,
        instruments=[Reward(dispatch=dispatch, meter=meter), *channels.instruments, *asking],
        assignment=channels.assignment,
        straggle=stragglers == "finish",
    )
    return RoundServer(loop=loop, recorder=NoRecorder(), recording=channels.recording, probing=probing)

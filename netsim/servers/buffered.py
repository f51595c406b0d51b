"""The buffered asynchronous server: so many clients are at work at all times, and every b deliveries make a new model.

Whoever ends is followed by another client, sent the model of that moment; nobody waits for anybody. With b > 1 it is FedBuff
(Nguyen et al. 2022, Algorithm 1), with b = 1 FedAsync (Xie, Koyejo and Gupta 2019). A round is the time from one new model to
the next; no update is late, it may only have started from an old version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from netsim.records.sinks import NoRecorder
from netsim.servers.channels import OwnLinks
from netsim.servers.close import BufferFull
from netsim.servers.dispatch import KeepAtWork
from netsim.servers.loop import RoundLoop
from netsim.servers.rounds import RoundServer

if TYPE_CHECKING:
    from netsim.clients.pool import ClientPool
    from netsim.core.protocols import Learner, SelectionPolicy
    from netsim.core.streams import Streams
    from netsim.servers.staleness_bound import StalenessRule


def buffered_server(
    *,
    pool: ClientPool,
    policy: SelectionPolicy,
    learner: Learner,
    streams: Streams,
    concurrency: int,
    buffer: int,
    rule: StalenessRule | None = None,
    channels: OwnLinks | None = None,
    retain: Callable[[list[int]], None] | None = None,
) -> RoundServer:
    """Rounds one after the other. `concurrency` as of `KeepAtWork`, `buffer` and `rule` as of `BufferFull`."""
    channels = channels or OwnLinks()
    dispatch = KeepAtWork(pool=pool, policy=policy, learner=learner, streams=streams, concurrency=concurrency)
    loop = RoundLoop(
        clock=pool.clock,
        pool=pool,
        dispatch=dispatch,
        close=BufferFull(pool=pool, dispatch=dispatch, buffer=buffer, rule=rule),
        learner=learner,
        instruments=channels.instruments,
        assignment=channels.assignment,
        retain=retain,
    )
    return RoundServer(loop=loop, recorder=NoRecorder(), recording=channels.recording)

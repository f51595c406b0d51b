"""Synchronous server: a policy chooses m clients, and the round closes when all have answered, or earlier by a rule.

It waits for all selected clients, for a deadline, or for the first n of m (over-selection); a round also closes as soon as none
of its updates is in flight any more. An update that arrives after the close is late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from netsim.servers.rounds.close import WhenEnded
from netsim.servers.rounds.dispatch import PolicyDispatch, SelectionRule
from netsim.servers.rounds.instruments import Reward
from netsim.servers.rounds.loop import RoundLoop
from netsim.servers.rounds.round_server import RoundServer
from netsim.servers.sub_channels.channels import OwnLinks

if TYPE_CHECKING:
    from netsim.clients.served import ServedClients
    from netsim.core.closing import ClosingRule
    from netsim.core.protocols import Learner, RewardMeter


def synchronous_server(
    *,
    pool: ServedClients,
    selecting: SelectionRule,
    learner: Learner,
    wait: ClosingRule,
    meter: RewardMeter | None = None,
    channels: OwnLinks | None = None,
    stragglers: Literal["finish", "cancel"] = "finish",
) -> RoundServer:
    """Return the server.

    `wait`: rule of the close. `meter`: measures the policy's reward, or None. `stragglers`: with "finish", clients that missed
    a close go on (they stay busy, and their updates end later as late, lost or aborted); with "cancel" the close ends their
    attempts.
    """
    channels = channels or OwnLinks()
    dispatch = PolicyDispatch(pool=pool, rule=selecting, learner=learner)
    rewards = [] if meter is None else [Reward(dispatch=dispatch, meter=meter)]
    loop = RoundLoop(
        pool=pool,
        dispatch=dispatch,
        close=WhenEnded(pool=pool, rule=wait),
        learner=learner,
        instruments=[*rewards, *channels.instruments, *selecting.instruments],
        assignment=channels.assignment,
        straggle=stragglers == "finish",
    )
    return RoundServer(loop=loop, recording=channels.recording, probing=selecting.probing)

"""The asynchronous server with ages: every round, every client that is present gets a sub-channel and sends what it has.

Clients whose update was delivered are sent the new model and train; the others keep theirs and send it again. A round lasts a
fixed time, or until nothing is being sent any more. Where no phase takes time, the clock stands still and round t is round t of
the untimed algorithm (Li et al. 2025).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from netsim.records.sinks import NoRecorder
from netsim.servers.close import FixedLength, NothingOnTheAir, check_round_s
from netsim.servers.dispatch import Everyone
from netsim.servers.instruments import Ages
from netsim.servers.loop import CloseRule, RoundLoop
from netsim.servers.rounds import RoundServer

if TYPE_CHECKING:
    from netsim.clients.pool import ClientPool
    from netsim.core.protocols import Learner
    from netsim.core.scheduling import AgeMeter
    from netsim.servers.channels import ScheduledChannels


def age_aware_server(
    *,
    pool: ClientPool,
    channels: ScheduledChannels,
    learner: Learner,
    meter: AgeMeter,
    retain: Callable[[list[int]], None] | None = None,
    round_s: float | None = None,
    wait_for_compute: bool = False,
) -> RoundServer:
    """Rounds one after the other; `round_s`: the length of each, None: as of `NothingOnTheAir`, with `wait_for_compute`.

    Raises ValueError for a length that is not > 0.
    """
    spectrum = channels.access.spectrum

    def announce(end_s: float) -> None:
        spectrum.round_ends_s = end_s

    close: CloseRule
    if round_s is None:
        close = NothingOnTheAir(pool=pool, wait_for_compute=wait_for_compute)
    else:
        close = FixedLength(pool=pool, round_s=check_round_s(round_s), announce=announce)
    dispatch = Everyone(pool=pool, learner=learner, round_s=round_s)
    pool.life.takes_all = True
    loop = RoundLoop(
        clock=pool.clock,
        pool=pool,
        dispatch=dispatch,
        close=close,
        learner=learner,
        instruments=[Ages(pool=pool, spectrum=spectrum, dispatch=dispatch, meter=meter), *channels.instruments],
        assignment=channels.assignment,
        straggle=False,
        retain=retain,
    )
    return RoundServer(
        loop=loop, recorder=NoRecorder(), rows_at_close=True, recording=channels.recording
    )

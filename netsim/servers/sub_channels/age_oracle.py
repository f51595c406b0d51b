"""The oracle of AoI regret: a scheduler that knows the states of the sub-channels, run beside the real one, with its own ages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from netsim.core.scheduling import OracleScheduler, SlotView
from netsim.core.state import StateFields
from netsim.servers.rounds.checks import check_schedule

if TYPE_CHECKING:
    from netsim.core.protocols import BoolArray, IntArray
    from netsim.core.streams import Streams


class AgeOracle(StateFields):
    """Runs `scheduler` without time: in every round each of K `clients` sends, and succeeds exactly if its sub-channel lets it.

    The scheduler is shown the states (N,) of the sub-channels before it assigns them. A sub-channel that is jammed as the round
    opens counts as Bad; jamming later in a round does not reach the oracle.
    """

    state_fields = ("ages", "scheduler")

    def __init__(self, *, scheduler: OracleScheduler, clients: int, channels: int, streams: Streams) -> None:
        self.scheduler = scheduler
        self.ages: IntArray = np.ones(clients, np.int64)
        """Age (K,) of each client in rounds: 1 after a success."""
        self._channels = channels
        self._contribution = np.ones(clients)
        self._draws = streams["oracle"]

    def measure(self, round: int, good: BoolArray) -> float:
        """Let the oracle send in `round` on the states `good` (N,), and return the sum of its ages after that."""
        # The same order as for a real scheduler, assign and then observe, except that it is shown the states first.
        self.scheduler.show(good)
        view = SlotView(round, self.ages, self._contribution, draws=self._draws.generator)
        channels = self.scheduler.assign(view)
        check_schedule(channels, clients=len(self.ages), channel_count=self._channels, contention=False)
        arrived = good[channels]
        self.scheduler.observe(view, channels, arrived)
        # Lists, because with few clients a single operation on an array costs more than a loop over all.
        ages = [1 if has_arrived else age + 1 for age, has_arrived in zip(self.ages.tolist(), arrived.tolist(), strict=True)]
        self.ages = np.array(ages, np.int64)
        return float(sum(ages))

"""Links between clients that are cut and healed as a run goes, on top of what is known beforehand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from netsim.network.scripted_outages import ScriptedOutages

if TYPE_CHECKING:
    from netsim.network.transport.link_outages import Cuts


class ScriptedCuts(ScriptedOutages):
    """`Cuts` of `schedule`, and of links that a script cuts."""

    def __init__(self, *, schedule: Cuts) -> None:
        super().__init__()
        self._schedule = schedule

    def __bool__(self) -> bool:
        return True

    def cause(self, link: int, start_s: float, end_s: float) -> str | None:
        return "cut" if self.destroys(link, start_s, end_s) else self._schedule.cause(link, start_s, end_s)

    def quiet_until(self, time_s: float) -> float:
        """Return -inf: a script may cut a link, or change a law, at any time."""
        return -math.inf

    def next_return_s(self, time_s: float) -> float:
        return self._schedule.next_return_s(time_s)

    def returning(self, time_s: float) -> list[int]:
        return [link for link in self._schedule.returning(time_s) if not self._times.get(link)]

    def down_indefinitely(self, time_s: float) -> set[int]:
        return self._schedule.down_indefinitely(time_s) | self.down()

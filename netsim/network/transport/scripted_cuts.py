"""Links between clients that are cut and healed as a run goes, on top of what is known beforehand."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from netsim.core.intervals import Intervals

if TYPE_CHECKING:
    from netsim.core.protocols import State
    from netsim.network.transport.link_outages import Cuts


class ScriptedCuts:
    """`Cuts` of `schedule`, and of links that a script cuts: each is down until it was healed as often as cut.

    Protocols do not wait for such a link, since its healing is not known beforehand; `listen` names a callback for that.
    """

    def __init__(self, *, schedule: Cuts) -> None:
        self._schedule = schedule
        self._intervals: dict[int, Intervals] = {}
        self._times: dict[int, int] = {}
        self._on_return: Callable[[set[int]], None] = lambda links: None

    def __bool__(self) -> bool:
        return True

    def listen(self, on_return: Callable[[set[int]], None]) -> None:
        """Call `on_return` with links that were healed just now."""
        self._on_return = on_return

    def cut(self, links: Collection[int], time_s: float) -> None:
        """These are down from now on; what is under way over them is lost, but for what ends in this very instant."""
        for link in links:
            times = self._times[link] = self._times.get(link, 0) + 1
            if times == 1:
                self._intervals.setdefault(link, Intervals()).add(time_s)

    def heal(self, links: Collection[int], time_s: float) -> None:
        """These are down no more, unless they were cut more than once."""
        back = set()
        for link in links:
            self._times[link] -= 1
            if not self._times[link]:
                self._intervals[link].close(time_s)
                back.add(link)
        self._on_return(back)

    def cause(self, link: int, start_s: float, end_s: float) -> str | None:
        intervals = self._intervals.get(link)
        if intervals is not None and intervals.overlap(start_s, end_s):
            return "cut"
        return self._schedule.cause(link, start_s, end_s)

    def quiet_until(self, time_s: float) -> float:
        """Return `time_s`: a script may cut a link, or change a law, at any time."""
        return -math.inf

    def next_return_s(self, time_s: float) -> float:
        return self._schedule.next_return_s(time_s)

    def returning(self, time_s: float) -> list[int]:
        return [link for link in self._schedule.returning(time_s) if not self._times.get(link)]

    def down_indefinitely(self, time_s: float) -> set[int]:
        return self._schedule.down_indefinitely(time_s) | {link for link, times in self._times.items() if times}

    def state_dict(self) -> State:
        """Which links are cut, and when links were."""
        return {"times": dict(self._times), "intervals": {link: list(those) for link, those in self._intervals.items()}}

    def load_state_dict(self, state: State) -> None:
        """Go on from a saved state."""
        self._times = dict(state["times"])
        self._intervals = {link: Intervals(those) for link, those in state["intervals"].items()}
